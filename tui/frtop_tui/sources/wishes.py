"""What the operator asks for beside looking: tensors, files. Each wish ends in the frame."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.job.model import Writing
from frtop_tui.job.state import JobState
from frtop_tui.sources.asking import Asking
from frtop_tui.sources.collecting import Collecting, same_job
from frtop_tui.sources.saving import Saving
from frtop_tui.sources.scribe import Scribe


class Wishes:
    """Belongs to the source's thread."""

    def __init__(self, asking: Asking, state: JobState) -> None:
        self._asking = asking
        self._state = state
        self._scribe = Scribe()
        self._saving: Saving | None = None
        self._collecting: Collecting | None = None
        self._shown: wire.Job | None = None
        self._inspected: set[tuple[str, int]] = set()
        """Ranks that are being asked now, by host and key."""

    @property
    def writings(self) -> tuple[Writing, ...]:
        """The last file of each kind."""
        return tuple(one.writing for one in (self._collecting, self._saving) if one is not None)

    def inspect(self, frame: Frame | None, rank: int, now: int) -> None:
        """Asks a rank what is in its tensors; the answer, or why not, is in its view."""
        view = frame.ranks.get(rank) if frame is not None else None
        if frame is None or view is None or (view.host, view.key) in self._inspected:
            return
        why, text = _deaf(frame, view)
        if why:
            self._tell(view, why, text)
            return
        self._inspected.add((view.host, view.key))
        then = partial(self._inspection, view)
        self._asking.errands.ask(view.host, wire.TensorsRequest(0, view.key), then, now)

    def _inspection(self, view: JudgedRank, answer: wire.Response, _now: int) -> None:
        """An answer of the rank itself is in the job's state already."""
        self._inspected.discard((view.host, view.key))
        if isinstance(answer, wire.Error):
            self._tell(view, answer.reason or "refused", answer.text)

    def _tell(self, view: JudgedRank, error: str, text: str) -> None:
        answer = wire.TensorsResponse(0, view.host, view.key, 0, error=error, help=text)
        self._state.apply_tensors(view.host, answer)

    def save(self, frame: Frame | None, rank: int, sequence: int, path: Path, *, now: int) -> None:
        if self._saving is not None and not self._saving.over:
            self._saving.refuse(path)
            return
        frame = frame if frame is not None else _NOTHING
        self._saving = Saving(
            self._asking.errands,
            self._scribe,
            frame,
            rank=rank,
            sequence=sequence,
            path=path,
            now=now,
        )
        view = frame.ranks.get(rank)
        why, text = _deaf(frame, view) if view is not None else ("", "")
        if why:
            self._saving.give_up(text, now)

    def capture(self, frame: Frame | None, path: Path, *, automatic: bool, now: int) -> None:
        if self._collecting is not None and not self._collecting.over:
            self._collecting.refuse(path)
            return
        frame = frame if frame is not None else _NOTHING
        self._collecting = Collecting(
            self._asking.errands,
            self._scribe,
            frame,
            path=path,
            automatic=automatic,
            now=now,
        )

    def turn(self, frame: Frame | None, now: int) -> None:
        self._scribe.turn(now)
        if frame is not None and frame.job is not None:
            if self._shown is not None and not same_job(frame.job, self._shown):
                self._forget()
            self._shown = frame.job
        if self._collecting is not None and frame is not None:
            self._collecting.turn(frame, now)

    def _forget(self) -> None:
        """Another job is shown: that files of the former are there would seem to be of it."""
        if self._saving is not None and self._saving.over:
            self._saving = None
        if self._collecting is not None and self._collecting.over:
            self._collecting = None

    def close(self, now: int) -> None:
        """No half file is left; one that is being written may end."""
        if self._saving is not None and self._saving.writing.state == "collecting":
            self._saving.give_up("frtop was closed", now)
        self._scribe.close()


_NOTHING = Frame(0, 0)


def _deaf(frame: Frame, view: JudgedRank) -> tuple[str, str]:
    """Why a rank need not be asked: a word and the sentence; empty when it may be."""
    host = next((one for one in frame.hosts if one.name == view.host), None)
    if frame.read_only:
        return "permission", f"nothing may be asked of the ranks: {frame.read_only}"
    if host is not None and not host.may_act:
        text = f"our key may only read on {view.host}: its owner can allow more, `frtop key admit`"
        return "permission", text
    if view.state == "unheard" or (host is not None and host.state == "failed"):
        return "unheard", f"{view.host} is not heard: ask again when it is"
    return "", ""
