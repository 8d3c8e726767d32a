"""Starts and stops the recorder in this process: by hand, by wrapper, or not at all.

All functions are idempotent and safe before torch is imported. Recording begins with the first
process group, or with `start()` in a process that a launcher made a rank.
"""

from __future__ import annotations

import atexit
import os
import sys
import sysconfig
import threading
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Final, TypeVar

from frtop_probe.recorder.guard import guarded, log_line, raised_by_signal_handler
from frtop_probe.recorder.marks import fetches, phases, steps
from frtop_probe.recorder.marks.marks import MAX_NUMBER
from frtop_probe.recorder.ops import graph_captures, group_calls
from frtop_probe.recorder.own_ring import LONGER_RING, NoRingSpace, create, lengthened
from frtop_probe.recorder.process.import_hook import when_imported
from frtop_probe.recorder.recorder import Recorder
from frtop_probe.ring.folder import FolderError, candidates, taken
from frtop_probe.ring.layout import MarkKind

C10D: Final = "torch.distributed.distributed_c10d"
OPTIMIZERS: Final = "torch.optim.optimizer"
LOADERS: Final = "torch.utils.data.dataloader"
Value = TypeVar("Value")
FREE_THREADED: Final = (
    "this Python is a free-threaded build ({version}t), which the recorder does not support: "
    "use the build with the GIL, python{version}"
)


class Lifecycle:
    """The recorder of this process, if any, and the hooks that drive it."""

    def __init__(self) -> None:
        self.recorder: Recorder | None = None
        self.wanted = True
        self._lock = threading.RLock()
        self._prepared = False
        self._refused = False
        self._watched: set[str] = set()
        self._kinds: set[MarkKind] = set()
        self._parents_recorder: Recorder | None = None

    # -- called from outside

    def prepare(self, c10d: ModuleType | None = None) -> None:
        """Waits until the program imports `torch.distributed`; this costs almost nothing.

        Args:
            c10d: `distributed_c10d`, if the caller has just seen its import.
        """
        if self._prepared or os.environ.get("FRTOP_OFF") == "1":
            return
        self._prepared = True
        atexit.register(self._at_exit)
        os.register_at_fork(after_in_child=self._after_fork)
        if c10d is not None:
            self._always_guarded(self._wrap)(c10d)
        else:
            when_imported(C10D, self._always_guarded(self._wrap))

    def start(self) -> None:
        """Records from now on, or from the first process group if this is not a rank yet."""
        self._always_guarded(self._start)()

    def _start(self) -> None:
        if os.environ.get("FRTOP_OFF") == "1":
            return
        self.wanted = True
        self._leave_to_parent()
        self.prepare()
        c10d: Any = sys.modules.get(C10D)
        grouped = c10d is not None and c10d.is_initialized()
        if grouped or _is_launched_rank():
            self._begin()
        if grouped:
            self._attach(c10d)

    def stop(self) -> None:
        self.wanted = False
        if self.recorder is not None and self.recorder.running:
            self.recorder.stop()

    def step(self, number: int | None, samples: int = 0) -> None:
        if self._running():
            known = None if number is None else _number_of(number)
            self._recorder.steps.stepped(known, _number_of(samples))

    def report(self, step: int | None, values: Mapping[str, Any]) -> None:
        recorder = self.recorder
        if recorder is None or not recorder.alive[0]:
            return
        try:
            recorder.reports.report(None if step is None else _number_of(step), values)
        except Exception as error:
            if raised_by_signal_handler(error):
                raise
            self._failed(error)

    def annotate(self, text: str) -> None:
        if self._running():
            self._recorder.ring.write_note(text)

    # -- group_calls.GroupListener

    def init_called(self, arguments: dict[str, Any]) -> None:
        self._always_guarded(self._init_called)(arguments)

    def call_began(self, kind: str, arguments: dict[str, Any]) -> int:
        try:
            if not self._enabled():
                return 0
            members = group_calls.participants(kind, arguments, sys.modules[C10D])
            return self._recorder.begin_pseudo(kind, members)
        except Exception as error:
            if raised_by_signal_handler(error):
                raise
            self._failed(error)
            return 0

    def call_ended(self, kind: str, token: int, failed: bool) -> None:
        if token:
            self._guarded(self._call_ended)(kind, token, failed)

    def group_registered(self, name: str, process_group: Any) -> None:
        if self._enabled():
            self._guarded(self._recorder.groups.register)(name, process_group)

    def group_destroying(self, process_group: Any | None) -> None:
        if self._enabled():
            self._guarded(self._recorder.release_handles)(process_group)

    def group_destroyed(self, process_group: Any | None) -> None:
        if self._enabled():
            self._guarded(self._recorder.groups.end)(process_group)

    # -- inside

    def _init_called(self, arguments: dict[str, Any]) -> None:
        if not self.wanted:
            return
        self._leave_to_parent()
        self._begin()
        if self.recorder is not None:
            self.recorder.init_called(arguments)
            self._attach(sys.modules[C10D])

    def _call_ended(self, kind: str, token: int, failed: bool) -> None:
        recorder = self._recorder
        try:
            # Before the call ends, so that a rank whose store does not answer is seen in this call.
            if kind == group_calls.INIT and not failed:
                recorder.default_group_created(sys.modules[C10D])
        finally:
            recorder.end_pseudo(token, failed)
        recorder.groups.describe_all()

    def _begin(self) -> None:
        with self._lock:
            if self._refused:
                return
            if self.recorder is not None:
                self.recorder.resume()
                return
            if why := refusal():
                self._refuse(why)
                return
            try:
                folders = candidates()
                # An agent serves all folders of its user; its files are in the first one, even if
                # that has no room for the ring.
                self.recorder = Recorder(create(folders), folders)
            except (FolderError, NoRingSpace) as error:
                self._refuse(str(error))
                return
            if others := taken():
                self.recorder.say(others)
            self.recorder.exceptions.install(self._guarded)
            self.recorder.begin()

    def _attach(self, c10d: Any) -> None:
        with self._lock:
            recorder = self.recorder
            if recorder is None or recorder.hook is not None:
                return
            parents, self._parents_recorder = self._parents_recorder, None
            recorder.attach(sys.modules["torch"], c10d, parents)
            if recorder.hook is None:
                return  # it logged why
            self._watch_marks()
            when_imported(OPTIMIZERS, self._always_guarded(self._watch_optimizers))
            when_imported(LOADERS, self._always_guarded(self._watch_loaders))
            when_imported(graph_captures.GRAPHS, self._always_guarded(self._watch_captures))
            recorder.install_phases = self._watch_phases
            if phases.wanted():
                recorder.switch_phases(True)
            if os.environ.get(LONGER_RING) == "1" and (problem := lengthened(recorder.ring)):
                recorder.say(problem)
            for feature in recorder.features:
                feature.attached()
            if c10d.is_initialized():
                recorder.default_group_created(c10d)

    def _wrap(self, c10d: ModuleType) -> None:
        group_calls.wrap(c10d, self, sys.modules.get("torch.distributed"))

    # Each call looks up the recorder, because a forked child has a different one.

    def _watch_optimizers(self, module: ModuleType) -> None:
        def begins(optimizer: Any) -> None:
            if (recorder := self.recorder) is not None:
                if recorder.watch.watching:
                    recorder.watch.step_begins(optimizer)
                recorder.steps.optimizer_begins(optimizer)

        def stepped(optimizer: Any) -> None:
            if (recorder := self.recorder) is not None:
                recorder.steps.optimizer_stepped(optimizer)
                if recorder.watch.watching:
                    recorder.watch.step_ended(optimizer)

        if OPTIMIZERS not in self._watched:
            self._watched.add(OPTIMIZERS)
            torch, counter = sys.modules["torch"], self._recorder.steps
            hooks = steps.watch_optimizers(
                torch, module, counter, self._marking(begins), self._marking(stepped)
            )
            if len(hooks) > 1:
                self._watch_marks(MarkKind.OPTIMIZER)

    def _watch_loaders(self, module: ModuleType) -> None:
        def begin(iterator: Any) -> int:
            recorder = self.recorder
            return recorder.fetches.begin(iterator) if recorder is not None else 0

        def end(mark: int | None) -> None:
            if (recorder := self.recorder) is not None:
                recorder.fetches.end(mark)

        if LOADERS not in self._watched:
            self._watched.add(LOADERS)
            if fetches.watch_fetches(module, self._marking(begin), self._marking(end)):
                self._watch_marks(MarkKind.FETCH)

    def _watch_captures(self, module: ModuleType) -> None:
        captures = graph_captures.captures

        def began(graph: Any) -> None:
            captures.began(graph, list(self._recorder.groups.known.values()))

        def ended(graph: Any) -> None:
            captures.ended(graph, list(self._recorder.groups.known.values()))

        graph_captures.watch_captures(module, self._guarded(began), self._guarded(ended))

    def _watch_phases(self) -> bool:
        def recorder() -> phases.PhaseRecorder:
            return self._recorder.phases

        if phases.SETTING not in self._watched:
            self._watched.add(phases.SETTING)
            torch = sys.modules["torch"]
            if phases.install(torch, recorder, self._marking):
                self._kinds.add(MarkKind.BACKWARD)
        return MarkKind.BACKWARD in self._kinds

    def _watch_marks(self, *kinds: MarkKind) -> None:
        """Writes into the ring which marks are recorded; a forked child has its own ring."""
        self._kinds.update(kinds)
        self._recorder.ring.marks.watch(*self._kinds)

    @property
    def _recorder(self) -> Recorder:
        assert self.recorder is not None
        return self.recorder

    def _running(self) -> bool:
        return self.recorder is not None and self.recorder.running

    def _enabled(self) -> bool:
        return self.recorder is not None and bool(self.recorder.enabled[0])

    def _guarded(self, function: Callable[..., Value]) -> Callable[..., Value | None]:
        return guarded(function, self._running, self._failed)

    def _marking(self, function: Callable[..., Value]) -> Callable[..., Value | None]:
        """Like `_guarded`, but cheaper."""

        def active() -> bool:
            return (recorder := self.recorder) is not None and bool(recorder.alive[0])

        return guarded(function, active, self._failed)

    def _always_guarded(self, function: Callable[..., Value]) -> Callable[..., Value | None]:
        return guarded(function, lambda: True, self._failed)

    def _failed(self, error: BaseException) -> None:
        if self.recorder is not None:
            self.recorder.fail(error)
        else:
            self._refuse(f"{type(error).__name__}: {error}")

    def _refuse(self, why: str) -> None:
        self._refused = True
        log_line(f"recorder off: {why}. Training goes on")

    def _at_exit(self) -> None:
        if self._running():
            self._guarded(self._recorder.exceptions.recall)()
            self._guarded(self._recorder.stop)()

    def _leave_to_parent(self) -> None:
        """Does in a child forked by C what happens after a fork seen by Python.

        The child's flag is clear, so nothing has been recorded there until now.
        """
        if self.recorder is not None and self.recorder.pid != os.getpid():
            self._after_fork()

    def _after_fork(self) -> None:
        """Leaves the ring to the parent; the child may get its own later."""
        recorder, self.recorder = self.recorder, None
        self._lock = threading.RLock()
        graph_captures.captures.clear()
        if recorder is not None:
            recorder.abandon_in_child()
            # Kept alive, because the child must not drop handles of the parent's ops here.
            self._parents_recorder = recorder


def _number_of(value: object) -> int:
    """Returns a number from the program, within the ring's bounds; 0 if it is not a number."""
    try:
        return max(0, min(int(value), MAX_NUMBER))  # type: ignore[call-overload, no-any-return]
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return 0


def _is_launched_rank() -> bool:
    """Returns whether a launcher made this process a rank.

    False for the parent of `mp.spawn`, and for spawned DataLoader workers, which also import the
    program and inherit its environment.
    """
    processes: Any = sys.modules.get("multiprocessing.process")
    spawned = processes is not None and (
        processes.parent_process() is not None
        or getattr(processes.current_process(), "_inheriting", False)
    )
    return "RANK" in os.environ and not spawned


lifecycle: Final = Lifecycle()


def refusal() -> str:
    """Returns why the recorder does not run in this Python and what to use instead; "" if it does.

    The hook has no locks: it relies on the GIL for each step on a dict, a deque, a counter and the
    ring, and on objects being freed with their last reference. A build without the GIL guarantees
    neither, so the recorder would change training's memory. Such a build is refused even while its
    GIL is on (`PYTHON_GIL=1`, or an extension that needs it): it still counts references
    differently.
    """
    if not _free_threaded():
        return ""
    return FREE_THREADED.format(version=f"{sys.version_info.major}.{sys.version_info.minor}")


def _free_threaded() -> bool:
    """Checks features, not versions: first the running interpreter, then its build."""
    running = getattr(sys, "_is_gil_enabled", None)  # since 3.13, in every build
    if running is None:
        return False
    return not running() or bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
