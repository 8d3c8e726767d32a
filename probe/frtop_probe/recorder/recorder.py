"""The recorder of one rank: its parts, and the order in which they start and stop."""

from __future__ import annotations

import itertools
import mmap
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, Final, cast

from frtop_probe import feature_folders
from frtop_probe.recorder.feature import OpWatch, RankFeature
from frtop_probe.recorder.guard import log_line
from frtop_probe.recorder.marks import fetches, phases, reports, steps
from frtop_probe.recorder.native.install import NativeHook
from frtop_probe.recorder.native.library import NotUsableError
from frtop_probe.recorder.ops.call_sites import CallSites
from frtop_probe.recorder.ops.device_watch import DeviceWatch
from frtop_probe.recorder.ops.groups import GroupTable
from frtop_probe.recorder.ops.kernel import (
    EXPECTING,
    OFF,
    ON,
    FindIssuer,
    Hook,
    TorchTooOldError,
    hide_from_dynamo,
)
from frtop_probe.recorder.ops.pending import PendingOps
from frtop_probe.recorder.ops.reduce_ops import ReduceOps
from frtop_probe.recorder.ops.signatures import SignatureTable
from frtop_probe.recorder.ops.transports import TransportWatch
from frtop_probe.recorder.own_ring import OwnRing
from frtop_probe.recorder.process import agent_launch, identity, trace_permission
from frtop_probe.recorder.process.exceptions import ExceptionRecorder
from frtop_probe.recorder.process.spawn_lock import failure_message, is_first_of_host
from frtop_probe.recorder.requests.control import ControlRequests
from frtop_probe.recorder.requests.requests import GoOn, Request, RequestTable, Response
from frtop_probe.recorder.requests.responder import Responder
from frtop_probe.recorder.requests.thread import RecorderThread
from frtop_probe.ring import beside, layout
from frtop_probe.ring.folder import FolderError, agent_lives, claim, preferred
from frtop_probe.ring.layout import Event, Flag, Side, State, StatusCell

AGENT_EVERY_S: Final = 5.0
_MADV_WIPEONFORK: Final = 18
"""Linux's number, the same on all machines; Python has no name for it."""
ATTACH: Final = tuple(
    feature.attach for feature in feature_folders.modules("in_rank") if hasattr(feature, "attach")
)
"""What features do in a rank. Found when this module is imported, never while the program runs."""


class Recorder:
    """Starts with a ring; `attach` adds torch once it is imported."""

    def __init__(self, ring: OwnRing, folders: list[Path]) -> None:
        self.ring = ring
        self._folders = folders
        self.home = folders[0]
        """The folder with the files of the agent that serves all these folders."""
        self.pid = os.getpid()
        self.enabled = process_flag()
        self.alive = process_flag()
        """Like `running`, but notices a fork without a system call: cheap at each step."""
        self.reduce_ops = ReduceOps(ring, self._note_once)
        self.pending = PendingOps(ring)
        self.signatures = SignatureTable(ring)
        self.steps = steps.StepCounter(ring, self.pending.test_oldest)
        self.fetches = fetches.FetchRecorder(ring)
        self.phases = phases.PhaseRecorder(ring, self.steps, self.pending.test_oldest)
        self.reports = reports.ReportRecorder(ring, self.steps, self._note_once)
        self.exceptions = ExceptionRecorder(ring)
        self.groups: GroupTable
        self.devices: DeviceWatch
        self.sites: CallSites
        self.find_issuer: list[FindIssuer] = []
        self.watch = OpWatch()
        self.hook: Hook | NativeHook | None = None
        self.install_phases: Callable[[], bool] | None = None
        """Wraps the starts and ends of phases, once; returns whether phases can be recorded."""
        self.records_phases = False
        self.features: tuple[RankFeature, ...] = ()
        self.requests = RequestTable()
        self.requests.serve({trace_permission.ASK: self._allow_tracing})
        self.rank_identity = identity.from_environment()
        self._site: Callable[..., int] | None = None
        self._pseudo_numbers: dict[str, itertools.count[int]] = {}
        self._thread: RecorderThread | None = None
        self._next_agent = 0.0
        self._transports = TransportWatch()
        self._logged: set[str] = set()
        self.write_identity(self.rank_identity)

    # -- start and stop

    def begin(self) -> None:
        self.ring.cells[StatusCell.STATE] = State.ON if self.hook else State.STARTING
        self.ring.cells[StatusCell.HEARTBEAT_NS] = time.monotonic_ns()
        responder = self._responder()
        thread = RecorderThread(self._tick, self.fail, responder)
        try:
            thread.start()
        except BaseException:  # at the process limit there is no thread to join
            if responder is not None:
                responder.close()
                responder.remove()
            raise
        self._thread = thread
        self.alive[0] = ON

    def attach(self, torch: ModuleType, c10d: ModuleType, parents: Recorder | None = None) -> None:
        """Installs the kernels, or logs once why this torch is unsuitable.

        In a forked child, it first removes the kernels of the parent's recorder.
        """
        if self.hook is not None:
            return
        if parents is not None and parents.hook is not None:
            parents.hook.remove()
            parents.hook = None
        self.write_identity(identity.with_versions(self.rank_identity, torch))
        self.groups = GroupTable(self.ring, c10d)
        words, rows = self.ring.words, self.ring.shape.groups
        self.devices = DeviceWatch(words, rows, self.pending, self.groups.note_device, torch)
        self.groups.front_of = self.devices.front_of
        self.sites = CallSites(self.ring, str(Path(str(torch.__file__)).parent))
        self._site = self.sites.finder()
        features = tuple(attach(self, torch) for attach in ATTACH)
        self.watch = next((one.op_watch for one in features if one.op_watch), self.watch)
        try:
            try:
                self.hook, kernels = NativeHook(self, self.signatures, self.steps, torch), "native"
            except NotUsableError as why:
                self.hook, kernels = Hook(self, self.signatures, torch), f"Python: {why}"
        except TorchTooOldError as error:
            self.turn_off(f"{error}: recorder off, it needs torch 2.8 or newer. Training goes on")
            return
        self.write_identity(replace(self.rank_identity, kernels=kernels))
        for function in (self._site, self.sites.intern, self.pending.finish):
            hide_from_dynamo(torch, getattr(function, "__func__", function))
        self.groups.adopt_all()
        self.features = features
        for feature in features:
            self.requests.serve(feature.handlers)
        self.requests.serve(ControlRequests(self).handlers)
        self.requests.is_complete = True
        self.enabled[0] = ON
        self.ring.cells[StatusCell.STATE] = State.ON

    def resume(self) -> None:
        """Restarts after `stop()`: ops were missed, so all numbers become relative."""
        if self._thread is not None:
            return
        if self.hook is not None:
            self.groups.mark_inexact()
            self.enabled[0] = ON
        self.begin()

    def stop(self) -> None:
        """Disables recording and joins the thread; kernels and ring stay."""
        for feature in self.features:
            feature.stop()
        self.enabled[0] = self.alive[0] = OFF
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.stop()
            if self.hook is not None:
                self.devices.look(time.monotonic_ns())
            for feature in self.features:
                feature.joined()
            self.pending.release()
            self.reduce_ops.decode()
            self.reduce_ops.raw.clear()
        if self.ring.cells[StatusCell.STATE] != State.OFF:
            self.ring.cells[StatusCell.STATE] = State.STOPPED

    def abandon_in_child(self) -> None:
        """Disables this recorder in a forked child, where its thread does not run."""
        self.enabled[0] = self.alive[0] = OFF
        self.exceptions.ring = None
        for feature in self.features:
            feature.abandon_in_child()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.abandon_in_child()

    @property
    def running(self) -> bool:
        return self._thread is not None and self.pid == os.getpid()

    # -- failures

    def fail(self, error: BaseException) -> None:
        """Switches the recorder off after one of its own exceptions, and logs it. Never raises."""
        try:
            self.ring.cells[StatusCell.HOOK_ERRORS] += 1
            where = error.__traceback__
            while where is not None and where.tb_next is not None:
                where = where.tb_next
            line = ""
            if where is not None:
                file = Path(where.tb_frame.f_code.co_filename).name
                line = f" at {file}:{where.tb_lineno}"
            self.turn_off(
                f"recorder switched itself off ({type(error).__name__}: {error}{line}); "
                "training goes on; please report this"
            )
        except Exception:  # noqa: BLE001 - nothing of ours may reach the program
            self.enabled[0] = OFF

    def turn_off(self, why: str) -> None:
        self.enabled[0] = OFF
        self.ring.cells[StatusCell.STATE] = State.OFF
        if self._note_once(why):
            log_line(why)

    def say(self, text: str) -> None:
        """Writes a note; also a line to stderr in the first rank of the host."""
        if self._note_once(text) and is_first_of_host():
            log_line(text)

    def _note_once(self, text: str) -> bool:
        """Writes a note unless it was written before; returns whether it was new."""
        if text in self._logged:
            return False
        self._logged.add(text)
        self.ring.write_note(text)
        return True

    # -- ops that somebody waits for

    def at_op(self) -> None:
        """Called before an op while ops are expected. Never raises."""
        for feature in self.features:
            feature.at_op()

    def expect_ops(self, expected: bool) -> None:
        if self.enabled[0]:
            self.enabled[0] = EXPECTING if expected else ON

    # -- events besides ops

    def write_identity(self, rank_identity: identity.RankIdentity) -> None:
        self.rank_identity = rank_identity
        self.ring.write_entry(Side.IDENTITY, 0, rank_identity.payload())
        self.ring.cells[StatusCell.RANK] = rank_identity.rank

    def begin_pseudo(self, kind: str, members: str = "") -> int:
        """Writes a slot for a call that is not an op but in which a rank can hang."""
        ring = self.ring
        now = time.monotonic_ns()
        number = next(self._pseudo_numbers.setdefault(kind, itertools.count(1)))
        form = self.signatures.pseudo(kind, members)
        site = self._site(sys._getframe().f_back) if self._site else 0  # noqa: SLF001
        sequence = ring.next_sequence()
        self.pending.open[sequence] = layout.NO_GROUP
        body = layout.SLOT_BODY.pack(
            *(sequence, now, number, threading.get_ident(), layout.NO_GROUP, form, site, 0, 0),
            *(Event.PSEUDO, Flag.SYNC, 0, 0),
        )
        ring.write_slot(sequence, body)
        return sequence

    def end_pseudo(self, sequence: int, failed: bool) -> None:
        entry = (None, sequence, 0, 0, layout.NO_GROUP, False, None, None)
        self.pending.finish(entry, time.monotonic_ns(), failed)

    def default_group_created(self, c10d: ModuleType) -> None:
        rank_identity = identity.with_default_group(self.rank_identity, c10d)
        if rank_identity != self.rank_identity:
            self.write_identity(rank_identity)

    def init_called(self, arguments: dict[str, Any]) -> None:
        """Updates the identity from the environment and the arguments of the call."""
        rank_identity = identity.with_arguments(identity.from_environment(), arguments)
        known = self.rank_identity
        self.write_identity(
            replace(
                rank_identity,
                nonce=known.nonce,
                torch=known.torch,
                nccl=known.nccl,
                kernels=known.kernels,
            )
        )

    def release_handles(self, process_group: Any | None) -> None:
        """Drops handles before a group is destroyed: they would keep its connections open."""
        self.watch.unfinished.clear()
        if process_group is None:
            self.devices.close()
            self.pending.release()
            return
        group = self.groups.known.get(id(process_group))
        if group is not None:
            self.devices.close(group.id)
            self.pending.release(group.id)

    # -- the thread

    def _tick(self) -> None:
        cells = self.ring.cells
        cells[StatusCell.HEARTBEAT_NS] = time.monotonic_ns()
        cells[StatusCell.HEARTBEATS] += 1
        self.ring.set_recorder_tid(threading.get_native_id())
        self.reduce_ops.decode()
        self.pending.reap()
        self.pending.overflow.spill()
        if self.hook is not None:
            self.devices.look(time.monotonic_ns())
            self.groups.copy_last_ops()
        self.ring.drop_old_entries()
        for feature in self.features:
            feature.beat()
        self._check_agent()
        if (transports := self._transports.changed()) is not None:
            self.ring.write_entry(Side.TRANSPORTS, 0, transports)

    def _check_agent(self) -> None:
        now = time.monotonic()
        if now < self._next_agent:
            return
        self._next_agent = now + AGENT_EVERY_S
        try:
            if not agent_lives(self.home):  # it may have had no room there
                self.home = preferred(self._folders)[0]
            problem = agent_launch.ensure_agent(claim(self.home))
        except (OSError, FolderError) as error:
            problem = failure_message(str(error))
        if problem:
            self._note_once(problem)

    # -- requests

    def switch_phases(self, on: bool) -> str:
        """Starts or stops recording phases; returns why that is impossible, or ""."""
        if on and not (self.install_phases is not None and self.install_phases()):
            return "phases cannot be recorded with this torch"
        self.phases.switch(on=on)
        self.records_phases = on
        return ""

    def _responder(self) -> Responder | None:
        try:
            return Responder(beside.socket_of(self.ring.path), self.requests.respond)
        except OSError as error:
            folder = self.ring.path.parent
            self._note_once(
                f"tensors cannot be inspected: no socket in {folder} ({error.strerror}); "
                "set FRTOP_DIR to another folder"
            )
            return None

    def _allow_tracing(self, request: Request, go_on: GoOn) -> Response:  # noqa: ARG002
        return trace_permission.respond(self.home, request)


def process_flag() -> list[int]:
    """Returns a flag that every forked child finds clear: `flag[0]`, a number from 0 to 255.

    Python runs its at-fork hooks only in `os.fork`. The child of a C++ data loader, or of a library
    that forks by itself, would go on with the recorder of its parent and write its ops into the
    parent's ring. The pid would show this, but reading it at each op is a system call (0.3 µs, six
    times as much as all other checks). Instead the kernel clears one page in each child
    (`MADV_WIPEONFORK`), and the hook reads its flag from there, which takes 8 ns longer than from a
    list. A child that shares its parent's memory (`vfork`, `posix_spawn`) never runs Python. The
    ring itself stays mapped in children (no `MADV_DONTFORK`): otherwise a store would be a SIGSEGV.

    If the kernel cannot clear the page (before 4.14, gVisor), the flag is an ordinary list:
    then only forks that Python sees are noticed.
    """
    try:
        page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        page.madvise(_MADV_WIPEONFORK)
    except (OSError, ValueError):
        return [0]
    # Callers only read and set items, as in a list.
    return cast("list[int]", memoryview(page))
