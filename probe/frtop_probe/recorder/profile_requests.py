"""Runs torch's profiler in this rank when an operator asks for it.

An order waits for the thread that trains: it begins and ends at that thread's own steps or ops,
never inside a backward or a CUDA graph capture, nor while an op of gloo is under way, whose end
torch would write into memory that the profiler has given back.

Nothing stays on. Whoever ordered must ask again and again (`LEASE_S`); an order that nobody asks
for is withdrawn, and its files are removed. A thread that comes to no step and no op cannot be
told to stop: then its profiler ends where it comes to one.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal

from frtop_probe.recorder.graph_captures import captures
from frtop_probe.recorder.guard import raised_by_signal_handler
from frtop_probe.recorder.pending import PendingOps
from frtop_probe.recorder.profile_order import ProfileOrder, order_of
from frtop_probe.recorder.requests import INVALID, GoOn, Handler, Request, Response
from frtop_probe.recorder.steps import StepCounter
from frtop_probe.recorder.torch_profiler import (
    OF_ITS_OWN,
    CannotProfileError,
    ProfilerEntrances,
    TorchProfiler,
    in_backward,
    why_not,
)
from frtop_probe.ring.profile_files import FILES, profile_file

LEASE_S: Final = 15.0
"""How long an order lives on without a word from its operator."""
REMEMBERED_S: Final = 60.0
"""How long it is known why an order came to nothing."""
OVERTIME_S: Final = 120.0
"""A profile by steps ends after this time, however few they were."""
MAX_GROWTH: Final = 512 * 1024 * 1024
"""Memory in bytes by which the process may grow: then the profile ends early."""
MAX_FILE: Final = 1024 * 1024 * 1024
SETTLE_S: Final = 1.0
"""After the observer was turned off, until nothing can be inside of it any more."""
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")

Stage = Literal["waiting", "running", "saving", "ready", "over"]


class _Session:
    """One order, from its begin to the removal of its files."""

    def __init__(self, order: ProfileOrder, now: float) -> None:
        self.order = order
        self.stage: Stage = "waiting"
        self.lease = now + LEASE_S
        self.deadline = now + order.wait_s
        self.profiler: TorchProfiler | None = None
        self.thread = 0
        self.ending = ""
        """Why it ends before its time; "" while it does not."""
        self.discarded = False
        self.first = self.last = 0
        """Steps that were recorded, the first and the last."""
        self.begun = self.ended = 0.0
        self.memory = 0
        self.clocks: list[tuple[int, int]] = []
        """Monotonic and wall clock in ns, at both ends."""
        self.stood_still_ns = 0
        self.error = self.help = ""
        self.files: dict[str, int] = {}


class ProfileRequests:
    """The order of this rank, if there is one. Ends with its recorder."""

    def __init__(
        self,
        torch: Any,
        ring: Path,
        steps: StepCounter,
        pending: PendingOps,
        expect_ops: Callable[[bool], None],
    ) -> None:
        """Orders nothing.

        Args:
            torch: the package.
            ring: path of the ring: files lie beside it.
            steps: calls at each step.
            pending: ops under way.
            expect_ops: says whether `at_op` is to be called at the next ops.
        """
        self._torch = torch
        self._ring = ring
        self._steps = steps
        self._pending = pending
        self._expect_ops = expect_ops
        self._session: _Session | None = None
        self._lock = threading.Lock()
        self._ours = False
        self._entrances = ProfilerEntrances(torch, self._script_enters)

    @property
    def handlers(self) -> dict[str, Handler]:
        """What can be asked for."""
        return {"profile": self._respond}

    # -- the recorder's thread

    def _respond(self, request: Request, go_on: GoOn) -> Response:  # noqa: ARG002 - it is a handler
        action, now = request.get("action"), time.monotonic()
        if not self._lock.acquire(timeout=1.0):
            return {"error": "deadline", "help": "the profiler is being started or stopped"}, b""
        try:
            if action == "begin":
                return self._begin(order_of(request), now)
            session = self._session
            if session is None or session.order.token != request.get("order"):
                return {"error": "gone", "help": "the rank has no such order (any more)"}, b""
            if action == "withdraw":
                self._withdraw(session, "withdrawn")
            elif action != "status":
                return INVALID
            session.lease = now + LEASE_S
            return self._status(session, now), b""
        finally:
            self._lock.release()

    def _begin(self, order: ProfileOrder | None, now: float) -> Response:
        if order is None:
            return INVALID
        session = self._session
        if session is not None and session.order.token == order.token:
            return self._status(session, now), b""
        if session is not None and session.stage != "over":
            return {"error": "busy", "help": "another operator profiles this rank"}, b""
        if why := why_not(self._torch):
            return {"error": "failed", "help": why}, b""
        self._remove_files()
        self._session = session = _Session(order, now)
        self._entrances.watch()
        self._steps.reached = self._at_step
        self._expect_ops(not order.steps)
        return self._status(session, now), b""

    def _status(self, session: _Session, now: float) -> dict[str, Any]:
        running = session.stage == "running"
        lasted = (now if running else session.ended) - session.begun if session.begun else 0.0
        return {
            "error": session.error,
            "help": session.help or session.ending,
            "stage": session.stage,
            "steps": [session.first, session.last],
            "lasted_ns": round(lasted * 1e9),
            "stood_still_ns": session.stood_still_ns,
            "clocks": session.clocks,
            "files": list(session.files.items()),
        }

    def beat(self) -> None:
        """Ends what is overdue, and writes what was recorded."""
        session = self._session
        if session is None or not self._lock.acquire(blocking=False):
            return
        try:
            now = time.monotonic()
            if now > session.lease and not session.ending:
                self._withdraw(session, "its operator is gone")
            if session.stage == "waiting" and now > session.deadline:
                what = "step" if session.order.steps else "step and no op"
                text = f"the thread that trains came to no {what} in {session.order.wait_s:.0f} s"
                self._over(session, "deadline", text)
            elif session.stage == "running" and not session.ending:
                self._end_in_time(session, now)
            elif session.stage == "saving" and (
                not session.order.execution or now > session.ended + SETTLE_S
            ):
                self._save(session)
            elif session.stage == "ready" and session.ending:
                self._over(session, "gone", session.ending)
            if session.stage == "over" and now > session.lease + REMEMBERED_S:
                self._session = None
        finally:
            self._lock.release()

    def _end_in_time(self, session: _Session, now: float) -> None:
        order, lasted = session.order, now - session.begun
        if not order.steps and lasted >= order.seconds:
            self._expect_ops(True)
        elif lasted > OVERTIME_S:
            session.ending = f"ended after {OVERTIME_S:.0f} s"
        elif _own_memory() - session.memory > MAX_GROWTH:
            session.ending = f"ended early: the rank had grown by {MAX_GROWTH >> 20} MB"
        elif order.execution and _size(profile_file(self._ring, "execution")) > MAX_FILE:
            session.ending = "ended early: its execution trace had grown too large"
        if session.ending:
            self._expect_ops(True)

    def _withdraw(self, session: _Session, why: str) -> None:
        session.ending = session.ending or why
        if session.stage == "running":
            session.discarded = True
            self._expect_ops(True)
        elif session.stage != "over":
            self._over(session, "gone", why)

    def _over(self, session: _Session, error: str, text: str) -> None:
        """Ends an order without a file."""
        session.stage, session.error, session.help = "over", error, text
        profiler, session.profiler = session.profiler, None
        if profiler is not None:
            profiler.drop()
        self._disarm()
        self._remove_files()
        session.files.clear()

    def _disarm(self) -> None:
        self._expect_ops(False)
        self._steps.reached = None
        self._entrances.leave()

    def _save(self, session: _Session) -> None:
        profiler, session.profiler = session.profiler, None
        assert profiler is not None
        begun = time.monotonic_ns()
        try:
            if session.order.execution:
                profiler.finish_execution_trace()
            room = os.statvfs(self._ring.parent)
            if room.f_bavail * room.f_frsize < max(64 << 20, 2 * (_own_memory() - session.memory)):
                raise OSError(0, "there is too little room", str(self._ring.parent))
            profiler.save(profile_file(self._ring, "trace"))
        except OSError as error:
            text = f"the trace was not written ({error.strerror or error}, {self._ring.parent})"
            self._over(session, "failed", text)
            return
        except Exception as error:  # noqa: BLE001 - torch's; the order fails and nothing else
            self._over(session, "failed", f"torch wrote no trace: {type(error).__name__}: {error}")
            return
        session.stood_still_ns += time.monotonic_ns() - begun
        sizes = {name: _size(profile_file(self._ring, name)) for name in FILES}
        session.files = {name: size for name, size in sizes.items() if size}
        session.stage = "ready"

    def close(self) -> None:
        """The interpreter may end now, or the recorder is stopped: nothing goes on."""
        session = self._session
        if session is not None and self._lock.acquire(timeout=1.0):
            try:
                if session.stage == "running" and session.thread == threading.get_ident():
                    self._end(session)
                self._over(session, "gone", "the rank has ended")
                self._session = None
            finally:
                self._lock.release()

    def abandon_in_child(self) -> None:
        """In a forked child: what its thread has inherited records nothing any more."""
        session, self._session = self._session, None
        self._lock = threading.Lock()
        if session is not None:
            self._steps.reached = None
            self._entrances.leave()
            if session.profiler is not None and session.thread == threading.get_ident():
                with suppress(Exception):
                    session.profiler.leave_in_child()

    # -- the thread that trains

    def _at_step(self, step: int) -> None:
        """Called at the end of each step while there is an order."""
        self._visit(step)

    def at_op(self) -> None:
        """Called at an op, as long as that was asked for."""
        session = self._session
        if session is None:
            self._expect_ops(False)
            return
        # Steps tell which thread trains; without them it is the main one.
        trains = self._steps.thread or threading.main_thread().ident
        if threading.get_ident() == (session.thread or trains):
            self._visit(0)

    def _visit(self, step: int) -> None:
        """Starts, goes on or stops, if this is the moment for it; never raises."""
        # Not waited for: whoever has it may be below us, in this very thread.
        if not self._lock.acquire(blocking=False):
            return
        try:
            session = self._session
            if session is not None and not (captures.active or in_backward(self._torch)):
                self._go_on(session, step)
        except Exception as error:
            if raised_by_signal_handler(error):
                raise
            self._fail(error)
        finally:
            self._lock.release()

    def _go_on(self, session: _Session, step: int) -> None:
        if session.stage == "waiting" and (step or not session.order.steps):
            self._start(session)
        elif session.stage == "running" and session.thread == threading.get_ident():
            if step:
                session.last = step
            if self._is_due(session) and not self._op_is_under_way():
                self._stop(session)
            elif step and session.profiler is not None:
                session.profiler.step(self._steps.current)

    def _fail(self, error: Exception) -> None:
        session = self._session
        if session is None:
            return
        if session.stage == "running" and session.profiler is not None:
            with suppress(Exception):
                session.profiler.end()
        text = f"torch's profiler failed: {type(error).__name__}: {error}"
        self._over(session, "failed", text[:300])

    def _start(self, session: _Session) -> None:
        execution = profile_file(self._ring, "execution") if session.order.execution else None
        profiler = TorchProfiler(self._torch, session.order, execution)
        begun = time.monotonic()
        self._ours = True
        try:
            profiler.begin(self._steps.current)
        except CannotProfileError as why:
            self._over(session, "failed", str(why))
            return
        finally:
            self._ours = False
        session.profiler, session.thread = profiler, threading.get_ident()
        session.first = self._steps.current
        session.memory = _own_memory()
        session.stage, session.begun = "running", time.monotonic()
        session.clocks = [_clocks()]
        session.stood_still_ns = round((session.begun - begun) * 1e9)
        self._expect_ops(False)

    def _is_due(self, session: _Session) -> bool:
        if session.ending:
            return True
        order = session.order
        if order.steps:
            # A device is behind: with a step more its part of the last one is there as well.
            more = 1 if order.devices and self._pending.device_ops else 0
            return session.last - session.first + 1 >= order.steps + more
        return time.monotonic() - session.begun >= order.seconds

    def _op_is_under_way(self) -> bool:
        return any(not entry[0].is_completed() for entry in list(self._pending.handles.values()))

    def _stop(self, session: _Session) -> None:
        self._end(session)
        if session.discarded:
            self._over(session, "gone", session.ending)
        else:
            session.stage = "saving"
            self._disarm()

    def _end(self, session: _Session) -> None:
        begun = time.monotonic()
        session.clocks.append(_clocks())
        assert session.profiler is not None
        session.profiler.end()
        session.ended = time.monotonic()
        session.stood_still_ns += round((session.ended - begun) * 1e9)

    def _script_enters(self) -> None:
        """The script starts a profiler itself: ours ends first, and keeps nothing."""
        if self._ours or not self._lock.acquire(timeout=5.0):
            return
        try:
            session = self._session
            if session is None:
                return
            if session.stage == "running" and session.thread == threading.get_ident():
                self._end(session)
            self._over(session, "failed", OF_ITS_OWN)
        except Exception as error:
            if raised_by_signal_handler(error):
                raise
            self._fail(error)
        finally:
            self._lock.release()

    def _remove_files(self) -> None:
        for name in FILES:
            with suppress(OSError):
                profile_file(self._ring, name).unlink()


def _clocks() -> tuple[int, int]:
    return time.monotonic_ns(), time.time_ns()


def _own_memory() -> int:
    """Memory of this process alone, in bytes; 0 where the kernel does not say."""
    try:
        _, resident, shared, *_ = Path("/proc/self/statm").read_text().split()
    except (OSError, ValueError):
        return 0
    return (int(resident) - int(shared)) * _PAGE


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
