"""Writes the tensors of a pending op to a file on order, one file at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from msgspec import Struct

from frtop_probe import wire
from frtop_tui.connect.asking import why_not_ask
from frtop_tui.connect.file_worker import FileWorker
from frtop_tui.connect.followers import Follower, Order
from frtop_tui.connect.request_tracker import RequestTracker
from frtop_tui.diagnosis.model import Frame
from frtop_tui.features.tensors.download import TensorDownload
from frtop_tui.job.model import Problem, Writing
from frtop_tui.job.naming import same_job

_EMPTY: Final = Frame(0, 0)


class SaveOrder(Struct, Order, frozen=True):
    """Write the tensors of one pending op as safetensors: `Frame.writings`."""

    rank: int
    sequence: int
    path: Path


class TensorDownloads(Follower):
    """The last file is shown as long as its job is."""

    name = "tensors"
    orders = (SaveOrder,)

    def __init__(self, tracker: RequestTracker) -> None:
        super().__init__(tracker)
        self._files = FileWorker()
        self._download: TensorDownload | None = None
        self._shown: wire.Job | None = None

    @property
    def writings(self) -> tuple[Writing, ...]:
        return () if self._download is None else (self._download.writing,)

    def take(self, order: SaveOrder, frame: Frame | None, now: int) -> None:
        if self._download is not None and not self._download.over:
            self._download.refuse(order.path)
            return
        frame = frame if frame is not None else _EMPTY
        self._download = TensorDownload(
            self._tracker,
            self._files,
            frame,
            rank=order.rank,
            sequence=order.sequence,
            path=order.path,
            now=now,
        )
        view = frame.ranks.get(order.rank)
        reason, text = why_not_ask(frame, view) if view is not None else ("", "")
        if reason:
            self._download.give_up(Problem.parse(text), now)

    def update(self, frame: Frame | None, now: int) -> None:
        self._files.update(now)
        if frame is None or frame.job is None:
            return
        other = self._shown is not None and not same_job(frame.job, self._shown)
        if other and self._download is not None and self._download.over:
            self._download = None
        self._shown = frame.job

    def close(self, now: int) -> None:
        """Leaves no partial file; lets the last write end."""
        if self._download is not None and self._download.writing.state == "collecting":
            self._download.give_up(Problem("frtop was closed"), now)
        self._files.close()


FOLLOWERS: Final = (TensorDownloads,)
