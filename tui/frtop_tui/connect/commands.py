"""Commands of the operator: tensors, native stacks, captures. Outcomes are in the frame.

Stacks, and looking at ranks again: `agent_requests`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from frtop_probe import wire
from frtop_tui.connect.capture_collector import CaptureCollector
from frtop_tui.connect.file_worker import FileWorker
from frtop_tui.connect.request_tracker import RequestTracker
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.files.formats.writing import write_collected
from frtop_tui.job.model import Writing
from frtop_tui.job.naming import same_job
from frtop_tui.job.state import JobState

NATIVE_NS: Final = 20_000_000_000
"""How long to wait for native stacks: the agent gives its tool 10 s, and the process 5 s."""


class Commands:
    """Belongs to the source's thread."""

    def __init__(self, tracker: RequestTracker, state: JobState) -> None:
        self._tracker = tracker
        self._state = state
        self._files = FileWorker()
        self._collectors: dict[str, CaptureCollector] = {}  # by kind of file, the last one
        self._shown: wire.Job | None = None
        self._inspecting: set[tuple[str, int]] = set()
        """Ranks that are being asked, by host and key."""
        self._native: set[tuple[str, int]] = set()
        """Ranks whose native stacks are being taken, by host and key."""
        self._ask_again: set[int] = set()
        """Ranks whose agent was restarted before they answered."""

    @property
    def writings(self) -> tuple[Writing, ...]:
        """The last file of each kind."""
        return tuple(one.writing for one in self._collectors.values())

    def inspect(self, frame: Frame | None, rank: int, now: int) -> None:
        """Asks a rank for its tensors; its view gets the response, or why there is none."""
        view = frame.ranks.get(rank) if frame is not None else None
        if frame is None or view is None or (view.host, view.key) in self._inspecting:
            return
        reason, text = why_not_ask(frame, view)
        if reason:
            self._set_error(view, reason, text)
            return
        self._inspecting.add((view.host, view.key))
        received = partial(self._inspected, view)
        request = wire.TensorsRequest(0, view.key, devices=True)
        self._tracker.request(view.host, request, received, now)

    def _inspected(self, view: JudgedRank, response: wire.Response, _now: int) -> None:
        """The session has put a response of the rank into the job's state already."""
        self._inspecting.discard((view.host, view.key))
        if isinstance(response, wire.Error) and response.reason == "gone":
            self._ask_again.add(view.rank)  # by its new key: the former may be another rank's
        elif isinstance(response, wire.Error):
            self._set_error(view, response.reason or "refused", response.text)

    def _set_error(self, view: JudgedRank, error: str, text: str) -> None:
        response = wire.TensorsResponse(0, view.host, view.key, 0, error=error, help=text)
        self._state.apply_tensors(view.host, response)

    def take_native(self, frame: Frame | None, rank: int, now: int) -> None:
        """Takes a rank's native stacks; its view gets them, or why there are none.

        Sent once: a request that was lost may have stopped the process all the same.
        """
        view = frame.ranks.get(rank) if frame is not None else None
        if frame is None or view is None or (view.host, view.key) in self._native:
            return
        reason, text = why_not_ask(frame, view)
        if not reason and view.exit_info is not None:
            reason, text = "gone", f"process {view.identity.pid} has ended and has no stacks"
        if reason:
            self._set_native_error(view, reason, text)
            return
        self._native.add((view.host, view.key))
        received = partial(self._native_taken, view)
        request = wire.NativeStacksRequest(0, view.key)
        self._tracker.request(view.host, request, received, now, timeout_ns=NATIVE_NS, once=True)

    def _native_taken(self, view: JudgedRank, response: wire.Response, _now: int) -> None:
        """The session has put stacks of the rank into the job's state already."""
        self._native.discard((view.host, view.key))
        if isinstance(response, wire.Error):
            self._set_native_error(view, response.reason or "refused", response.text)

    def _set_native_error(self, view: JudgedRank, error: str, text: str) -> None:
        dump = wire.StackDump(view.identity.pid, error=error, help=text)
        response = wire.NativeStacksResponse(0, view.host, view.key, 0, dump=dump)
        self._state.apply_native(view.host, response)

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
        ranks, self._ask_again = self._ask_again, set()
        for rank in ranks:
            self.inspect(frame, rank, now)
        for collector in self._collectors.values():
            collector.update(frame, now)

    def _forget_files(self) -> None:
        """Another job is shown: files of the former would seem to be of it."""
        self._collectors = {kind: one for kind, one in self._collectors.items() if not one.over}

    def close(self) -> None:
        """Lets the last write end."""
        self._files.close()


_EMPTY = Frame(0, 0)


def why_not_ask(frame: Frame, view: JudgedRank) -> tuple[str, str]:
    """Why a rank must not be asked, as a reason of the wire and a sentence; "" if it may."""
    host = next((one for one in frame.hosts if one.name == view.host), None)
    if frame.read_only:
        return "permission", f"ranks cannot be asked: {frame.read_only}"
    if host is not None and not host.may_act:
        text = f"our key may only read on {view.host}; its owner can allow more: `frtop key admit`"
        return "permission", text
    if view.state == "unheard" or (host is not None and host.state == "failed"):
        return "unheard", f"{view.host} is not heard; ask again when it is"
    return "", ""
