"""Starts and stops torch's profiler in the thread that trains.

Everything here happens in that thread, as in a script that profiles itself: Kineto refuses setup
by another thread. We do not profile all threads from outside
(`_ExperimentalConfig(profile_all_threads=True)`), because then ops of other threads write into
memory that the end of the profiler has freed (torch 2.13; its own test of profiler_kineto.cpp
mentions crashes). So only threads that inherit the profiler are recorded: those of backwards, not
those that pin memory.

We check for features, never versions: torch 2.8 to 2.15 have them under these names.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from frtop_probe.features.profile.in_rank.order import RankOrder
from frtop_probe.ring.beside import create_file

OF_ITS_OWN: Final = "the script profiles itself, and torch has one profiler per process"
DAEMON: Final = "KINETO_USE_DAEMON"
_STEP: Final = "ProfilerStep"
_ENTRANCES: Final = ("_prepare_profiler", "_enable_profiler")
"""Functions of `torch.autograd.profiler`: every profiler that a script starts calls one."""
_OBSERVER: Final = "_add_execution_trace_observer"


class CannotProfileError(Exception):
    """torch or the program prevents a profile; the text says how."""


class TorchProfiler:
    """One use of the profiler: `prepare`, `begin`, `step`s, `end`, and `save` from any thread.

    As in a schedule of `torch.profiler`, a device's activities are collected from `prepare` on, and
    dropped at `begin`.
    """

    def __init__(self, torch: Any, order: RankOrder, execution: Path | None) -> None:
        self._torch = torch
        self._order = order
        self._execution = execution
        self._profile: Any = None
        self._label: Any = None
        self._records = False
        self.trouble = ""
        """Why part of the order is not recorded, or ""."""

    def prepare(self) -> None:
        """Gets ready to record in this thread.

        Raises:
            CannotProfileError: it did not start.
        """
        if why := why_not(self._torch):
            raise CannotProfileError(why)
        if self._order.stacks and (sys.getprofile() is not None or sys.gettrace() is not None):
            raise CannotProfileError(
                "the program has a trace function of its own (a debugger, coverage, cProfile), "
                "which stacks would replace: ask without stacks"
            )
        module = self._torch.autograd.profiler
        profile = module.profile(
            use_cpu=True,
            use_device="cuda" if _has_cuda(self._torch) else None,
            record_shapes=self._order.shapes,
            with_stack=self._order.stacks,
            profile_memory=self._order.memory,
            use_kineto=True,
        )
        profile._prepare_trace()  # noqa: SLF001
        self._profile = profile

    def begin(self, step: int) -> None:
        """Starts recording in the thread that prepared it."""
        self._records = True
        self._profile._start_trace()  # noqa: SLF001
        with suppress(Exception):  # the trace is useful without it
            self._say_which_rank()
        try:
            self._begin_execution_trace()
            self.step(step)
        except BaseException:
            with suppress(Exception):
                self.end()
            raise

    def step(self, number: int) -> None:
        """Begins the label of a step, by which other tools find steps in a trace."""
        self._end_label()
        label = self._torch.autograd.profiler.record_function(f"{_STEP}#{number}")
        label.__enter__()
        self._label = label

    def end(self) -> None:
        """Stops recording. torch assembles the events: some microseconds for each."""
        self._end_label()
        profile = self._profile
        if self._execution is not None:
            with suppress(Exception):
                self._torch._C._profiler._disable_execution_trace_observer()  # noqa: SLF001
        if profile is not None:
            if not self._records:  # what is prepared can only be ended like this, as in torch
                profile._start_trace()  # noqa: SLF001
            # It would wait for the device.
            profile.use_device = None
            profile.__exit__(None, None, None)

    def save(self, path: Path) -> None:
        """Writes the trace. torch holds the GIL meanwhile: some microseconds for each event.

        Raises:
            OSError: the file is incomplete.
        """
        results, self._profile = self._profile.kineto_results, None
        create_file(path)
        results.save(str(path))
        path.chmod(0o600)  # some versions write another file and rename it
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 64))
            if not file.read().rstrip().endswith(b"}"):
                raise OSError(0, "torch did not write it to its end: is there room?", str(path))

    def finish_execution_trace(self) -> None:
        """Closes the observer's file, once no thread can be inside the observer."""
        execution, self._execution = self._execution, None
        if execution is not None:
            self._torch._C._profiler._remove_execution_trace_observer()  # noqa: SLF001

    def drop(self) -> None:
        self._profile = None

    def leave_in_child(self) -> None:
        """Removes the callbacks that a forked child has inherited, but leaves Kineto alone.

        Kineto's threads and locks belong to the parent.
        """
        activities = {self._torch.autograd.ProfilerActivity.CPU}
        self._torch.autograd._toggle_collection_dynamic(False, activities)  # noqa: SLF001
        self._torch.autograd.profiler._run_on_profiler_stop()  # noqa: SLF001
        if self._order.stacks:
            sys.setprofile(None)

    def _say_which_rank(self) -> None:
        """Writes the rank into the trace, as `torch.profiler` does, for other tools."""
        dist = self._torch.distributed
        if dist.is_initialized():
            info = {
                "backend": dist.get_backend(),
                "rank": dist.get_rank(),
                "world_size": dist.get_world_size(),
                "pg_count": dist.get_pg_count(),
            }
            self._torch.autograd._add_metadata_json("distributedInfo", json.dumps(info))  # noqa: SLF001

    def _end_label(self) -> None:
        label, self._label = self._label, None
        if label is not None:
            label.__exit__(None, None, None)

    def _begin_execution_trace(self) -> None:
        if self._execution is None:
            return
        try:
            core = self._torch._C._profiler  # noqa: SLF001
            create_file(self._execution)
            core._add_execution_trace_observer(str(self._execution))  # noqa: SLF001
            # It also returns true if it did nothing because another observer exists.
            if _is_open(self._execution):
                core._enable_execution_trace_observer()  # noqa: SLF001
                return
            why = "the script has an observer of its own, and torch has one per process"
        except (AttributeError, OSError, RuntimeError) as error:  # the profile goes on without
            why = str(error)
        self._execution = None
        self.trouble = f"without an execution trace: {why}"


def why_not(torch: Any) -> str:
    """Returns why torch's profiler cannot be started in this process, or ""."""
    module = torch.autograd.profiler
    missing = [
        name for name in ("profile", "record_function", *_ENTRANCES) if not _has(torch, name)
    ]
    if missing:
        return f"this torch's profiler has no {missing[0]}"
    available = getattr(torch.autograd, "kineto_available", None)
    if available is None or not available():
        return "this torch was built without Kineto"
    if os.environ.get(DAEMON):
        return f"{DAEMON} is set: a daemon profiles this job"
    # A waiting schedule has a step counter: torch does not record yet, but will.
    counters = getattr(getattr(module, "KinetoStepTracker", None), "_step_dict", {})
    if getattr(module, "_is_profiler_enabled", False) or _STEP in counters:
        return OF_ITS_OWN
    enabled = getattr(torch.autograd, "_profiler_enabled", None)
    return OF_ITS_OWN if enabled is not None and enabled() else ""


def in_backward(torch: Any) -> bool:
    """Returns whether this thread runs a backward, after which autograd restores its state."""
    current = getattr(torch._C, "_current_graph_task_id", None)  # noqa: SLF001
    return current is not None and current() != -1


class ProfilerEntrances:
    """Notices when the script starts its own profiler, so that ours can end first.

    torch has one per process and raises for a second one, which would be the script's. A second
    execution trace observer is ignored silently.
    """

    def __init__(self, torch: Any, entering: Callable[[], None]) -> None:
        self._places = [(torch.autograd.profiler, name) for name in _ENTRANCES]
        module = sys.modules.get("torch.profiler.profiler")
        if hasattr(module, _OBSERVER):
            self._places.append((module, _OBSERVER))
        self._entering = entering
        self._originals: list[tuple[Any, str, Any, Any]] = []

    def watch(self) -> None:
        for module, name in self._places:
            original = getattr(module, name)

            def enter(*args: Any, _original: Any = original, **kwargs: Any) -> Any:
                self._entering()
                return _original(*args, **kwargs)

            self._originals.append((module, name, original, enter))
            setattr(module, name, enter)

    def leave(self) -> None:
        for module, name, original, ours in self._originals:
            if getattr(module, name) is ours:
                setattr(module, name, original)
        self._originals.clear()


def _is_open(path: Path) -> bool:
    """Returns whether this process has a file open."""
    wanted = path.stat()
    with os.scandir("/proc/self/fd") as descriptors:
        for one in descriptors:
            with suppress(OSError):  # closed since
                if os.path.samestat(os.stat(one.path), wanted):  # noqa: PTH116 - an open file
                    return True
    return False


def _has(torch: Any, name: str) -> bool:
    return callable(getattr(torch.autograd.profiler, name, None))


def _has_cuda(torch: Any) -> bool:
    """Returns whether this process uses a GPU that torch's profiler can follow."""
    cuda = getattr(torch, "cuda", None)
    activity = getattr(torch.autograd.ProfilerActivity, "CUDA", None)
    supported = getattr(torch.autograd, "_supported_activities", set)
    return cuda is not None and cuda.is_initialized() and activity in supported()
