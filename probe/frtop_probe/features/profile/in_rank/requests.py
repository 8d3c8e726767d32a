"""Runs torch's profiler in this rank when an operator asks for it.

An order waits for the thread that trains: it begins and ends at that thread's own steps or ops,
never inside a backward or a CUDA graph capture, nor while a gloo op is under way: torch would
write its end into memory that the profiler has freed.

Nothing stays on. The operator must keep asking (`LEASE_S`); otherwise the rank withdraws the order
and removes its files. The profiler of a thread that reaches no step and no op ends only when the
thread reaches one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from frtop_probe.features.profile.files import MODULE_LABEL, profile_file
from frtop_probe.features.profile.in_rank.order import (
    LEASE_S,
    OVERTIME_S,
    ProfileSession,
    RankOrder,
    order_of,
)
from frtop_probe.features.profile.in_rank.saving import (
    LEAST_ROOM,
    ModuleLabels,
    own_memory,
    remove,
    save,
    why_no_more_execution,
    why_no_room,
)
from frtop_probe.features.profile.in_rank.torch_profiler import (
    OF_ITS_OWN,
    CannotProfileError,
    ProfilerEntrances,
    TorchProfiler,
    in_backward,
    why_not,
)
from frtop_probe.recorder.feature import RankFeature
from frtop_probe.recorder.guard import raised_by_signal_handler
from frtop_probe.recorder.marks.steps import StepCounter
from frtop_probe.recorder.ops.graph_captures import captures
from frtop_probe.recorder.ops.pending import PendingOps
from frtop_probe.recorder.requests.requests import INVALID, GoOn, Request, Response

REMEMBERED_S: Final = 60.0
"""How long the rank remembers why an order failed."""
MAX_GROWTH: Final = 512_000_000
"""If the process grows by this many bytes, the profile ends early."""
ENTER_S: Final = 5.0
"""How long a script that starts a profiler in another thread waits for ours to end."""
VISIT_S: Final = 0.02
"""How long the end of the last step may wait for the recorder's thread, or for ops."""
SETTLE_S: Final = 1.0
"""Wait after turning the observer off, until no thread can be inside it."""


class ProfileRequests(RankFeature):
    """Carries out the order of this rank, if there is one."""

    def __init__(
        self,
        torch: Any,
        ring: Path,
        steps: StepCounter,
        pending: PendingOps,
        expect_ops: Callable[[bool], None],
    ) -> None:
        """`expect_ops` sets whether `at_op` is called at the next ops."""
        self._torch = torch
        self._ring = ring
        self._steps = steps
        self._pending = pending
        self._expect_ops = expect_ops
        self.modules: ModuleLabels | None = None
        """Labels module calls in the profile, if the rank records modules."""
        self._session: ProfileSession | None = None
        self._lock = threading.Lock()
        self._ours = False
        self._entrances = ProfilerEntrances(torch, self._script_enters)
        self.handlers = {"ProfileRank": self._respond}

    def modules_recorded(self, issuers: Any) -> None:
        self.modules = issuers.of_profile(MODULE_LABEL)

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
                return {"error": "gone", "help": "the rank has no such order"}, b""
            if action == "withdraw":
                self._withdraw(session, "withdrawn")
            elif action != "status":
                return INVALID
            session.lease = now + LEASE_S
            return session.status(now), b""
        finally:
            self._lock.release()

    def _begin(self, order: RankOrder | None, now: float) -> Response:
        if order is None:
            return INVALID
        session = self._session
        if session is not None and session.order.token == order.token:
            session.lease = now + LEASE_S  # asked again: our answer was lost
            return session.status(now), b""
        if session is not None and session.stage != "over":
            return {"error": "busy", "help": "another operator profiles this rank"}, b""
        remove(self._ring)
        why = order.why_too_late(self._steps.current) or why_not(self._torch)
        if why := why or why_no_room(self._ring, LEAST_ROOM):
            return {"error": "failed", "help": why}, b""
        self._session = session = ProfileSession(order, now)
        self._entrances.watch()
        self._steps.reached = self._at_step
        self._expect_ops(not order.steps)
        return session.status(now), b""

    def beat(self) -> None:
        """Ends an overdue profile, and writes the recording of an ended one."""
        session, now = self._session, time.monotonic()
        if session is None:
            return
        # Without the lock, because it takes a while, and the last step may end meanwhile.
        running = session.stage == "running" and not session.ending
        early = self._why_early(session, now) if running else ""
        if not self._lock.acquire(blocking=False):
            return
        try:
            if now > session.lease and not session.discarded:
                self._withdraw(session, "its operator is gone")
            if session.stage == "waiting" and now > session.deadline:
                self._over(session, "deadline", self._why_not_begun(session.order))
            elif session.stage == "running" and not session.ending:
                self._end_in_time(session, now, early)
            elif session.stage == "saving" and (
                not session.order.execution or now > session.ended + SETTLE_S
            ):
                self._finish(session)
            if session.stage == "over" and now > session.lease + REMEMBERED_S:
                self._session = None
        finally:
            self._lock.release()

    def _why_not_begun(self, order: RankOrder) -> str:
        what = "no step" if order.steps else "no step and no op"
        if order.at_step and self._steps.last:
            what = f"step {self._steps.current}, not step {order.at_step - order.warm_up},"
        return f"the thread that trains reached {what} in {order.wait_s:.0f} s"

    def _why_early(self, session: ProfileSession, now: float) -> str:
        """Returns why it must end early, or ""."""
        if now - session.begun > OVERTIME_S:
            return f"ended after {OVERTIME_S:.0f} s"
        if own_memory() - session.memory > MAX_GROWTH:
            return f"ended early: the rank had grown by {MAX_GROWTH // 1_000_000} MB"
        if session.order.execution and (why := why_no_more_execution(self._ring)):
            return f"ended early: {why}"
        return ""

    def _end_in_time(self, session: ProfileSession, now: float, early: str) -> None:
        order = session.order
        if not order.steps and now - session.begun >= order.seconds:
            self._expect_ops(True)
        elif early:
            session.ending = early
            self._expect_ops(True)

    def _withdraw(self, session: ProfileSession, why: str) -> None:
        if session.stage in ("running", "saving"):
            if not session.discarded:
                session.discarded, session.ending = "gone", why
            self._expect_ops(session.stage == "running")
        elif session.stage != "over":
            self._over(session, "gone", why)

    def _over(self, session: ProfileSession, error: str, text: str) -> None:
        """Ends an order that yields no file."""
        session.stage, session.error, session.help = "over", error, text
        profiler, session.profiler = session.profiler, None
        if profiler is not None:
            profiler.drop()
        self._disarm()
        if self.modules is not None:
            self.modules.drop()
        remove(self._ring)
        session.files.clear()

    def _disarm(self) -> None:
        if self.modules is not None:
            self.modules.end()
        self._expect_ops(False)
        self._steps.reached = None
        self._entrances.leave()

    def _finish(self, session: ProfileSession) -> None:
        """Writes the recording, or drops it."""
        profiler = session.profiler
        assert profiler is not None
        begun = time.monotonic_ns()
        grown = own_memory() - session.memory
        try:
            profiler.finish_execution_trace()
            if session.discarded:
                self._over(session, session.discarded, session.ending)
                return
            session.files = save(self._ring, profiler, grown, self.modules)
        except OSError as error:
            text = f"the trace was not written: {error.strerror or error}"
            self._over(session, "failed", text)
        except Exception as error:  # noqa: BLE001 - torch's; only the order fails
            self._over(session, "failed", f"torch wrote no trace: {type(error).__name__}: {error}")
        else:
            session.stood_still_ns += time.monotonic_ns() - begun
            session.stage, session.profiler = "ready", None

    def stop(self) -> None:
        """Ends the order."""
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
        """Stops what a forked child's thread has inherited from the parent."""
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
        """Called before an op while ops are expected."""
        session = self._session
        if session is None:
            self._expect_ops(False)
            return
        # The training thread is the one that makes steps; without steps, the main thread.
        trains = self._steps.thread or threading.main_thread().ident
        if threading.get_ident() == (session.thread or trains):
            self._visit(0)

    def _visit(self, step: int) -> None:
        """Starts, continues or stops the profile, if this is the moment; never raises."""
        session = self._session
        # This thread may hold the lock itself, further up its stack. At a step we wait a little;
        # otherwise the profile would have a step too many.
        waits = step and session is not None and session.stage in ("waiting", "running")
        if not self._lock.acquire(timeout=VISIT_S if waits else 0):
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

    def _go_on(self, session: ProfileSession, step: int) -> None:
        order = session.order
        if session.stage == "waiting" and (step or not order.steps):
            if self._steps.current >= order.at_step - order.warm_up:
                self._start(session)
        elif session.stage == "running" and session.thread == threading.get_ident():
            if step:
                session.last = step
            due = session.is_due(time.monotonic(), device_ops=bool(self._pending.device_ops))
            if due and not self._is_op_under_way(session):
                self._stop(session)
            elif step and not session.is_warming and session.profiler is not None:
                session.profiler.step(self._steps.current)
            elif step and self._steps.current >= session.first:
                self._record(session)

    def _fail(self, error: Exception) -> None:
        session = self._session
        if session is None:
            return
        session.ending = f"torch's profiler failed: {type(error).__name__}: {error}"[:300]
        if session.stage == "running" and session.profiler is not None:
            with suppress(Exception):
                self._end_profiler(session.profiler)
            session.ended = time.monotonic()
            self._ended(session, "failed")
        else:
            self._over(session, "failed", session.ending)

    def _start(self, session: ProfileSession) -> None:
        execution = profile_file(self._ring, "execution") if session.order.execution else None
        profiler = TorchProfiler(self._torch, session.order, execution)
        order, step, begun = session.order, self._steps.current, time.monotonic()
        self._ours = True
        try:
            if self.modules is not None:
                self.modules.begin()
            profiler.prepare()
        except CannotProfileError as why:
            self._over(session, "failed", str(why))
            return
        finally:
            self._ours = False
        session.profiler, session.thread = profiler, threading.get_ident()
        session.first = max(step, order.at_step or step + order.warm_up)
        session.memory = own_memory()
        session.begun = time.monotonic()
        session.stood_still_ns = round((session.begun - begun) * 1e9)
        session.stage = "running"  # last: now the recorder's thread reads all of this
        self._expect_ops(False)
        if session.first <= step:
            self._record(session)

    def _record(self, session: ProfileSession) -> None:
        """Begins to record, in the thread that started the profiler."""
        assert session.profiler is not None
        clocks = _clocks()  # before the first event
        self._ours = True
        try:
            session.profiler.begin(self._steps.current)
        finally:
            self._ours = False
        session.trouble = session.profiler.trouble
        session.clocks = [clocks]
        session.stood_still_ns += time.monotonic_ns() - clocks[0]

    def _is_op_under_way(self, session: ProfileSession) -> bool:
        """Waits a little, once: ops for which C++ waited complete some microseconds later."""
        until = time.monotonic() + (0 if session.has_waited else VISIT_S)
        session.has_waited = True
        while self._pending.is_any_open():
            if time.monotonic() > until:
                return True
            time.sleep(0.0005)
        return False

    def _stop(self, session: ProfileSession) -> None:
        nothing = "failed" if session.is_warming else ""
        self._end(session)
        self._ended(session, session.discarded or nothing)

    def _ended(self, session: ProfileSession, discarded: str) -> None:
        """Lets the recorder's thread write or drop the ended profiler's recording."""
        session.discarded = discarded
        if discarded and not session.order.execution:
            self._over(session, discarded, session.ending)
            return
        session.stage = "saving"
        self._disarm()

    def _end(self, session: ProfileSession) -> None:
        begun = time.monotonic()
        if session.clocks:
            session.clocks.append(_clocks())
        assert session.profiler is not None
        self._end_profiler(session.profiler)
        session.ended = time.monotonic()
        session.stood_still_ns += round((session.ended - begun) * 1e9)

    def _end_profiler(self, profiler: TorchProfiler) -> None:
        """Ends it. One that only warms up is started for that, which is no start of the script."""
        self._ours = True
        try:
            profiler.end()
        finally:
            self._ours = False

    def _script_enters(self) -> None:
        """Ends our profiler without a file, because the script starts its own."""
        if self._ours or not self._lock.acquire(timeout=ENTER_S):
            return
        elsewhere: ProfileSession | None = None
        try:
            session = self._session
            if session is None:
                return
            if session.stage == "running" and session.thread != threading.get_ident():
                session.discarded, session.ending = "failed", OF_ITS_OWN
                self._expect_ops(True)
                elsewhere = session
            else:
                if session.stage == "running":
                    self._end(session)
                if session.profiler is not None:
                    session.profiler.finish_execution_trace()
                self._over(session, "failed", OF_ITS_OWN)
        except Exception as error:
            if raised_by_signal_handler(error):
                raise
            self._fail(error)
        finally:
            self._lock.release()
        # Only the thread that started ours can end it.
        until = time.monotonic() + ENTER_S
        while elsewhere is not None and elsewhere.stage == "running" and time.monotonic() < until:
            time.sleep(0.005)


def _clocks() -> tuple[int, int]:
    return time.monotonic_ns(), time.time_ns()
