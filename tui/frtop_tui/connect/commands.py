"""Files that the operator wants written: captures and exports. Outcomes are in the frame."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from frtop_probe import wire
from frtop_tui.connect.capture_collector import CaptureCollector
from frtop_tui.connect.file_worker import FileWorker
from frtop_tui.connect.request_tracker import RequestTracker
from frtop_tui.diagnosis.model import Frame
from frtop_tui.files.formats.writing import write_collected
from frtop_tui.job.model import Writing
from frtop_tui.job.naming import same_job


class Commands:
    """Belongs to the source's thread."""

    def __init__(self, tracker: RequestTracker) -> None:
        self._tracker = tracker
        self._files = FileWorker()
        self._collectors: dict[str, CaptureCollector] = {}  # by kind of file, the last one
        self._shown: wire.Job | None = None

    @property
    def writings(self) -> tuple[Writing, ...]:
        """The last file of each kind."""
        return tuple(one.writing for one in self._collectors.values())

    def capture(
        self,
        frame: Frame | None,
        path: Path,
        *,
        automatic: bool,
        now: int,
        settle_ns: int = 0,
        redact: bool = False,
    ) -> None:
        """Collects everything that can be known now, and writes it to a file."""
        make = partial(CaptureCollector, automatic=automatic, settle_ns=settle_ns, redact=redact)
        self._collect("capture", frame, path, now, make)

    def export(
        self, frame: Frame | None, path: Path, name: str, *, over: bool, redact: bool, now: int
    ) -> None:
        """Collects the same, and writes it in another format."""
        write = partial(write_collected, name=name)
        make = partial(
            CaptureCollector, kind="export", write=write, may_replace=over, redact=redact
        )
        self._collect("export", frame, path, now, make)

    def _collect(
        self,
        kind: str,
        frame: Frame | None,
        path: Path,
        now: int,
        make: Callable[..., CaptureCollector],
    ) -> None:
        before = self._collectors.get(kind)
        if before is not None and not before.over:
            before.refuse(path)
            return
        shown = frame if frame is not None else _EMPTY
        self._collectors[kind] = make(self._tracker, self._files, shown, path=path, now=now)

    def finish_capture(self, now: int) -> None:
        """Writes what a capture has collected by now."""
        for collector in self._collectors.values():
            collector.finish(now)

    @property
    def wants_frame(self) -> bool:
        """Whether a file waits for the next frame."""
        return any(one.wants_frame for one in self._collectors.values())

    def update(self, frame: Frame | None, now: int) -> None:
        """Takes a step in what is under way."""
        self._files.update(now)
        if frame is not None and frame.job is not None:
            if self._shown is not None and not same_job(frame.job, self._shown):
                self._forget_files()
            self._shown = frame.job
        if frame is None:
            return
        for collector in self._collectors.values():
            collector.update(frame, now)

    def _forget_files(self) -> None:
        """Another job is shown: files of the former would seem to be of it."""
        self._collectors = {kind: one for kind, one in self._collectors.items() if not one.over}

    def close(self) -> None:
        """Lets the last write end."""
        self._files.close()


_EMPTY = Frame(0, 0)
