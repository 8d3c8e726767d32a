"""Samples the numbers in chosen ops and optimizer steps, when a person asks.

While off, `watching` is empty, and the hook checks nothing else. While on, the thread that issues
an op copies its inputs, and the thread whose wait has returned copies its results: only then are
the bytes certainly the op's. If C++ waits, as in DDP, results are copied when the backward has
ended, or else when the next optimizer step begins. A thread of ours computes the statistics,
and ends the watch.
"""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from frtop_probe.features.tensor_checks.in_rank.copies import (
    CopyBuffer,
    TensorCopies,
    aligned,
    copy_tensors,
    tensors_of,
)
from frtop_probe.features.tensor_checks.in_rank.loss_scales import LossScales
from frtop_probe.features.tensor_checks.in_rank.stats import Sample, SampleStats
from frtop_probe.features.tensor_checks.in_rank.watched_ops import (
    WatchedOp,
    WatchedOps,
    in_backward,
)
from frtop_probe.recorder.feature import OpWatch
from frtop_probe.recorder.guard import guarded
from frtop_probe.recorder.marks.steps import StepCounter
from frtop_probe.recorder.ops.operations import Operation
from frtop_probe.recorder.requests.thread import FAULTS
from frtop_probe.ring.layout import Flag

BUFFER: Final = 64 * 1024 * 1024
"""Bytes of the buffer, for copies that wait to be counted."""
MOST_SAMPLES: Final = 4096
"""Most samples that the rank keeps: the newest ones."""
THINNED: Final = 3
"""While the buffer is over half full, the rank samples only every third of the chosen ops, then
every ninth, and so on. It chooses them by number, so other ranks sample the same ops."""
MOST_THINNED: Final = 243
HEARTBEAT_S: Final = 0.2
JOIN_S: Final = 5.0
NICENESS: Final = 10
MAX_STEP: Final = 32 * 1024 * 1024
"""Most bytes of parameters to read in one step, and of gradients: in a larger model, each
step reads the next ones. The step's number decides which, so all ranks read the same."""
NOTED: Final = ("input", "gradient", "sent", "received")
"""Roles whose first NaN a rank notes in its history: after a reduction all ranks have it."""
MOST_PARAMETERS: Final = 256
"""Most parameters to read in one step."""


@dataclass(slots=True)
class WatchPlan:
    """An order, and how much of it is left."""

    every: int
    ops: int
    until_ns: int
    inputs: bool = True
    groups: frozenset[int] = frozenset()
    """Ids of groups; none: all."""
    steps: int = 0
    """Number of optimizer steps whose parameters and gradients are sampled."""
    asked: tuple[int, int, int] = (0, 0, 0)
    """Ops, seconds and steps as ordered."""
    from_step: int = 0
    begin_by_ns: int = 0
    """When it begins at the latest."""
    by: str = ""
    """The operator who asked."""

    def has_begun(self, step: int) -> bool:
        """Returns whether this step is sampled: all ranks begin in the same one."""
        return step >= self.from_step or time.monotonic_ns() >= self.begin_by_ns


class ParameterNames(Protocol):
    """Names of modules: see `issuers.Issuers`."""

    def parameters_of(self, issuer: int) -> Sequence[tuple[str, int]]: ...

    def name_of(self, parameter: Any) -> str: ...


class NumberWatch(OpWatch):
    """The watch of one recorder. The functions of `OpWatch` run in the program's threads."""

    def __init__(
        self,
        torch: Any,
        steps: StepCounter,
        note: Callable[[str], object],
    ) -> None:
        """`note` writes a note into the ring. `watching` has the plan, if there is one."""
        super().__init__()
        self.ops = WatchedOps()
        self.unfinished = self.ops.by_handle
        self.skipped = self.thinned = 0
        """Samples without figures; ops skipped because the buffer filled up."""
        self.count = self.begun_at = 0
        """Samples so far, and before the watch began."""
        self.samples: deque[Sample] = deque(maxlen=MOST_SAMPLES)
        self.failure = ""
        self.install: Callable[[], object] | None = None
        """Wraps backwards and updates, once."""
        self.names: ParameterNames | None = None
        """Set if the rank records modules."""
        self._torch = torch
        self._steps = steps
        self._note = note
        self._buffer: CopyBuffer | None = None
        self._queue: queue.SimpleQueue[tuple[int, Sample, TensorCopies] | None]
        self._queue = queue.SimpleQueue()
        """One for all watches, so that each copy frees its block: a thread of the program may still
        copy after its watch has ended."""
        self.watches = 0
        """Number of the last watch."""
        self.ended_by = ""
        """The operator who ended it early."""
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._noted = False
        self._begun_step = 0
        self._every = 1
        """Only every n-th of the chosen ops is sampled."""
        self._scales = LossScales(steps, self._take)

        def guard(function: Callable[..., Any]) -> Callable[..., Any]:
            return guarded(function, lambda: True, self.failed)

        self.begin, self.handed = guard(self._begin), guard(self._handed)
        self.ended, self.backward_ended = guard(self._ended), guard(self._backward_ended)
        self.step_begins, self.step_ended = guard(self._step_begins), guard(self._step_ended)
        self.update_begins = guard(self._update_begins)
        self.update_ended = guard(self._update_ended)

    # -- on and off, in the recorder's thread

    def start(self, plan: WatchPlan) -> None:
        """Begins a watch, which replaces the current one."""
        if self._buffer is None:
            self._buffer = CopyBuffer(BUFFER)
            if self.install is not None:
                self.install()
        with self._lock:
            self.watches += 1
            self.failure, self.ended_by, self._noted = "", "", False
            self.samples.clear()
            self.begun_at = self.count
            self.ops.unseen = self.skipped = self.thinned = 0
            self._every = 1
            self.watching[:] = [plan]
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="frtop numbers", daemon=True)
                self._thread.start()

    def stop(self, *, join: bool = False) -> None:
        """Ends the watch; samples stay. With `join`, waits for the thread to end."""
        self.watching.clear()
        self.unfinished.clear()
        self._queue.put(None)
        thread = self._thread
        if join and thread is not None and thread is not threading.current_thread():
            thread.join(JOIN_S)

    @property
    def busy(self) -> bool:
        """Whether it watches, or still processes copies."""
        return bool(self.watching) or self._thread is not None

    # -- in the program's threads

    def _begin(  # noqa: PLR0917 - as the hook has it
        self,
        operation: Operation,
        args: Any,
        group: int,
        number: int,
        site: int,
        flags: int,
        issuer: int,
        message: int = 0,
    ) -> WatchedOp | None:
        """Called before an op is passed on; returns it if the watch also samples its result."""
        plan, role, sync = self._plan, "input", bool(flags & Flag.SYNC)
        peer, tag, place = -1, 0, number
        if operation.p2p:
            role = "sent" if operation.name == "send" else "received"
            peer = args[operation.peer] if operation.peer >= 0 else -1
            tag = args[operation.tag] if operation.tag >= 0 else 0
            if message:  # both sides choose the same ones, also where each has a tag of its own
                place = message + tag
        if (
            plan is None
            or place % plan.every
            or plan.ops <= 0
            or operation.barrier
            or (role == "sent" and not plan.inputs)
            or (plan.groups and group not in plan.groups)
            or not plan.has_begun(self._steps.current)
        ):
            return None
        if place % (plan.every * self._every):
            self.thinned += 1
            return None
        self._thin()
        plan.ops -= 1
        now = time.monotonic_ns()
        sample = Sample(
            group, number, operation.kind, role, "issue", self._steps.current, now, site, issuer,
            parameters=self.names.parameters_of(issuer) if self.names is not None else (),
            peer=peer, tag=tag, message=message,
        )  # fmt: skip
        if plan.inputs:
            self._take(sample, tensors_of(operation, args, outputs=False))
        if role == "sent" and sync:  # the program runs nothing before its wait
            return None
        results = tensors_of(operation, args, outputs=True)
        return WatchedOp(sample, results, sync, in_backward(2), now, p2p=operation.p2p)

    def _handed(self, op: WatchedOp, work: Any) -> None:
        """Takes the handle that the op's call returned."""
        if self.watching:
            self.ops.add(op, work)

    def _ended(self, op: WatchedOp, taken: str = "wait") -> None:
        """Samples the result of an op, before the program can change it."""
        sent = op.sample.role == "sent"
        if sent and taken != "wait":  # it was over, so the program may have changed it since
            return
        role, now = op.sample.role if op.p2p else "output", time.monotonic_ns()
        self._take(replace(op.sample, role=role, taken=taken, at_ns=now), op.tensors)

    def _backward_ended(self) -> None:
        """Samples ops that C++ (as in DDP) waited for in a backward or the forward before it."""
        # Otherwise the program's modes would notice even an attribute access.
        with self._torch._C.DisableTorchFunction():  # noqa: SLF001
            self._read_complete("backward")

    def _step_begins(self, optimizer: Any) -> None:
        """Samples gradients, before the optimizer uses them."""
        self._begun_step = self._steps.current
        if self._wants_more:
            self._scales.step_begins(self._begun_step)
        with self._torch._C.DisableTorchFunction():  # noqa: SLF001
            self._read_complete("step")
            if self._samples_step:
                self._sample_step(optimizer, "gradient")

    def _step_ended(self, optimizer: Any) -> None:
        """Samples parameters after an optimizer's step."""
        plan = self._plan
        if plan is not None and self._samples_step:
            with self._torch._C.DisableTorchFunction():  # noqa: SLF001
                self._sample_step(optimizer, "parameter")
            plan.steps -= 1

    def _update_begins(self, scaler: Any) -> None:
        """Samples whether gradients had an Inf, before the scaler forgets it."""
        if self._wants_more or self._scales.in_step:
            with self._torch._C.DisableTorchFunction():  # noqa: SLF001
                self._scales.update_begins(scaler)

    def _update_ended(self, scaler: Any) -> None:
        with self._torch._C.DisableTorchFunction():  # noqa: SLF001
            self._scales.update_ended(scaler)

    # -- inside

    @property
    def _plan(self) -> WatchPlan | None:
        """The plan; our thread may end the watch at any time."""
        return next(iter(self.watching), None)

    def _thin(self) -> None:
        """Samples fewer ops while copies arrive faster than they are processed, then more again."""
        fill = self._buffer.fill() if self._buffer is not None else 0.0
        if fill > 0.5:
            self._every = min(self._every * THINNED, MOST_THINNED)
        elif fill < 0.1:
            self._every = max(1, self._every // THINNED)

    @property
    def _samples_step(self) -> bool:
        plan = self._plan
        return plan is not None and plan.steps > 0 and plan.has_begun(self._begun_step)

    @property
    def _wants_more(self) -> bool:
        plan = self._plan
        if plan is None or not (plan.ops > 0 or plan.steps > 0):
            return False
        return plan.has_begun(self._steps.current)

    def _read_complete(self, taken: str) -> None:
        for op in self.ops.take_complete(self._steps.current):
            self._ended(op, taken)

    def _sample_step(self, optimizer: Any, role: str) -> None:
        owner, names = f"optimizer {self._steps.index_of(optimizer)}", self.names
        for place, name, tensor in step_tensors(optimizer, self._begun_step):
            given = tensor if role == "parameter" else tensor.grad
            if given is not None:
                sample = Sample(
                    0, place, name or f"parameter {place}", role, owner, self._begun_step,
                    time.monotonic_ns(), 0,
                    parameter=names.name_of(tensor) if names is not None and not name else "",
                )  # fmt: skip
                self._take(sample, [given])

    def _take(self, sample: Sample, tensors: list[Any]) -> None:
        buffer = self._buffer
        if buffer is not None and tensors:
            watch = self.watches
            self._queue.put((watch, sample, copy_tensors(self._torch, buffer, tensors)))

    def failed(self, error: BaseException) -> None:
        """Ends the watch after an exception of ours."""
        self.failure = f"{type(error).__name__}: {error}"[:200]
        self.watching.clear()
        self.unfinished.clear()

    # -- in our thread

    def _run(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - FAULTS)
        with suppress(OSError):  # on Linux, only of this thread
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
        look = 0.0
        while True:
            try:
                found = self._queue.get(timeout=HEARTBEAT_S)
            except queue.Empty:
                found = None
            if found is not None:
                self._count_copies(*found)
            # A watch must end even if the queue is never empty.
            if found is not None and time.monotonic() < look:
                continue
            look = time.monotonic() + HEARTBEAT_S
            if self._is_over() and self._queue.empty():
                with self._lock:
                    if not self.watching:
                        self._thread = None
                        return

    def _count_copies(self, watch: int, sample: Sample, copies: TensorCopies) -> None:
        try:
            if watch == self.watches:
                self._add(watch, sample, copies)
        except Exception as error:  # noqa: BLE001 - the worker's boundary
            self.failed(error)
        finally:
            if copies.block is not None:
                copies.block.free = True

    def _is_over(self) -> bool:
        """Ends a watch that is complete, or whose time is up."""
        now = time.monotonic_ns()
        self.ops.forget_old(now)
        plan = self._plan
        if plan is None:
            return True
        has_all = plan.ops <= 0 and plan.steps <= 0 and not self.unfinished
        if has_all or now > plan.until_ns:
            self.watching.clear()
            self.ops.give_up()
            return True
        return False

    def _add(self, watch: int, sample: Sample, copies: TensorCopies) -> None:
        stats, buffer = SampleStats(), self._buffer
        if copies.block is not None and buffer is not None:
            view, at = buffer.view(copies.block), 0
            for dtype, size in copies.parts:
                stats.add(self._torch, dtype, view[at : at + size])
                at += aligned(size)
        figures = stats.by_name()
        if copies.error:
            figures["error"] = copies.error
        if copies.shard:
            figures["checksum"] = ""  # no other rank has these bytes
        parameter = sample.parameter or sample.parameter_at(stats.first_bad)
        with self._lock:
            if watch != self.watches:  # another watch has begun
                return
            self.skipped += bool(copies.error)
            self.count += 1
            counted = replace(
                sample,
                n=self.count,
                dtype=copies.dtypes,
                elements=copies.elements,
                size=copies.size,
                seen=copies.seen,
                shape=copies.shape,
                shard=copies.shard,
                parameter=parameter,
                parameters=(),
                **figures,
            )
            self.samples.append(counted)
        nans = figures["nans"]
        if nans and sample.role in NOTED and not self._noted:
            self._noted = True
            op = f"{sample.kind} #{sample.number}" if sample.group else sample.kind
            of_message = sample.role in ("sent", "received")
            what = f"what {op} {sample.role}" if of_message else f"the {sample.role} of {op}"
            if sample.group and parameter:
                what += f", from {parameter} on"
            said = f"{nans:,} NaN in {what}, step {sample.step}: the first one sampled"
            self._note(f"numbers: {said}")


def step_tensors(optimizer: Any, step: int) -> Iterator[tuple[int, str, Any]]:
    """Yields place, name ("" for none) and parameter for each parameter that this step reads."""
    found: list[tuple[int, str, Any]] = []
    for group in optimizer.param_groups:
        names = group.get("param_names") or ()
        for index, parameter in enumerate(group["params"]):
            name = str(names[index]) if index < len(names) else ""
            found.append((len(found), name, parameter))
    turns = _turns([int(one.numel()) * int(one.dtype.itemsize) for _, _, one in found])
    if turns:
        first, last = turns[step % len(turns)]
        yield from found[first:last]


def _turns(sizes: list[int]) -> list[tuple[int, int]]:
    """Returns the first and last place of each step's parameters."""
    found: list[tuple[int, int]] = []
    first = total = 0
    for place, size in enumerate(sizes):
        if place > first and (total + size > MAX_STEP or place - first >= MOST_PARAMETERS):
            found.append((first, place))
            first, total = place, 0
        total += size
    if sizes:
        found.append((first, len(sizes)))
    return found
