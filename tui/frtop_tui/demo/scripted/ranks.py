"""The ranks of one scripted host, as its agent reports them. Pure: the time is an argument."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from frtop_probe import wire
from frtop_probe.statistics.op_bytes import op_bytes
from frtop_tui.demo.scripted.culprit import (
    COMPUTING,
    ENDS,
    FEW_WORKERS,
    LOOKS,
    MAIN_IDENT,
    RankLook,
    exception,
    waiting_in,
)
from frtop_tui.demo.scripted.script import (
    GROUP_NAMES,
    MS,
    PP,
    SECOND,
    WORLD,
    Position,
    Script,
)

RUN: Final = "demo"
QUICK_NS: Final = 400 * MS
"""Updates omit the last op of a group that has moved since: it would be outdated at once."""
PROCESS_TICKS: Final = 8
"""Every eighth tick sends the process and the GPU of a rank; ranks take turns."""
HISTORY_OPS: Final = 4096
HEARTBEAT_NS: Final = 250 * MS
GPU: Final = wire.Gpu(0, "GPU-scripted", "scripted GPU", 700_000, 80 << 30, 90_000, 1)


class HostRanks:
    """A rank's key is its number plus one. All outgoing times are on the host's clock."""

    def __init__(self, script: Script, index: int) -> None:
        self.script = script
        self.name = f"node{index}"
        self.skew_ns = (index * 7919 % 2000) * MS  # every host has a clock of its own
        each = script.shape.per_host
        self.index = index
        self.ranks = range(index * each, min((index + 1) * each, script.shape.world))
        self.levels = {rank: script.level(rank) for rank in self.ranks}
        self.sites = tuple(wire.Site(op.file, op.line, op.function) for op in script.program)
        self.signatures = tuple(
            wire.Signature(
                op.kind,
                reduce="sum" if "reduce" in op.kind else None,
                inputs=(wire.TensorSpec("bfloat16", (op.elements,), device="cuda:0"),),
            )
            for op in script.program
        )
        self.bytes = tuple(
            op_bytes(signature, script.shape.size(op.group)) or 0
            for op, signature in zip(script.program, self.signatures, strict=True)
        )
        self._sent: dict[int, dict[int, int]] = {rank: {} for rank in self.ranks}
        self._sent_last: dict[int, set[int]] = {rank: set() for rank in self.ranks}
        self._pending: dict[int, int] = {}
        self._dead: set[int] = set()
        self._ticks = 0

    # what an agent publishes

    def changes(self, now_ns: int) -> tuple[wire.RankUpdate, ...]:
        self._ticks += 1
        found = (self._update(rank, now_ns, full=False) for rank in self.ranks)
        return tuple(one for one in found if one is not None)

    def state(self, now_ns: int) -> tuple[wire.RankUpdate, ...]:
        found = (self._update(rank, now_ns, full=True) for rank in self.ranks)
        return tuple(one for one in found if one is not None)

    def _update(self, rank: int, now_ns: int, *, full: bool) -> wire.RankUpdate | None:
        script, level = self.script, self.levels[rank]
        at = script.position(rank, level, now_ns)
        ended = self._ended(rank, now_ns)
        if ended is not None and rank in self._dead and not full:
            return None
        sent, sent_last = self._sent[rank], self._sent_last[rank]
        progress: list[wire.GroupProgress] = []
        for group in GROUP_NAMES:
            if group == PP and script.shape.pp == 1:
                continue
            one = self._progress(rank, group, at, now_ns)
            if full or sent.get(group) != one.number or (one.last and group not in sent_last):
                progress.append(one)
            if not full:
                sent[group] = one.number
                (sent_last.add if one.last is not None else sent_last.discard)(group)
        pending = self.pending(rank, at)
        sequence = pending[0].sequence if pending else 0
        changed = full or self._pending.get(rank, 0) != sequence
        if not full:
            self._pending[rank] = sequence
        raised = None
        if ended is not None:
            self._dead.add(rank)
            raised = exception(ended.at_ns) if script.fault == "exception" else None
        dated = (self._ticks + rank) % PROCESS_TICKS == 0
        return wire.RankUpdate(
            rank + 1,
            identity=self._identity(rank) if full else None,
            status=self.status(rank, at, now_ns),
            groups=self._groups(rank) if full else (),
            group_progress=tuple(progress),
            pending=pending if changed else None,
            process=self._process(rank, at, now_ns) if full or dated else None,
            exception=raised,
            exit_info=ended,
            gauges=wire.Gauges((self.gpu(rank, now_ns),)) if full or dated else None,
        )

    def _identity(self, rank: int) -> wire.Identity:
        shape, local = self.script.shape, rank - self.ranks[0]
        job = wire.Job("node0", 29500, shape.world, RUN, 0, "scripted", "train_llm.py")
        settings = (
            ("CUDA_VISIBLE_DEVICES", str(local)),
            ("NCCL_ALGO", "Tree" if self.index == 1 else "Ring"),  # one host differs
            ("NCCL_IB_HCA", "mlx5"),
            ("TORCH_NCCL_TRACE_BUFFER_SIZE", "2000"),
        )
        begun = self.script.step_ns(0) + self.skew_ns
        return wire.Identity(
            20_000 + local, 1, rank, local, job,
            ("train_llm.py", "--config", "70b.toml"), "/home/ml/llama", "2.15.0", "3.12.4", begun,
            MAIN_IDENT, settings=settings,
        )  # fmt: skip

    def _groups(self, rank: int) -> tuple[wire.Group, ...]:
        shape, found = self.script.shape, []
        for group, name in GROUP_NAMES.items():
            if group == PP and shape.pp == 1:
                continue
            index = shape.index(group, rank)
            label = name if group == WORLD else f"{name}:{index}"
            key = "0" if group == WORLD else f"{name}{index}"
            found.append(
                wire.Group(group, key, label, "nccl", shape.members(group, rank), timeout_s=600.0)
            )
        return tuple(found)

    def _progress(self, rank: int, group: int, at: Position, now_ns: int) -> wire.GroupProgress:
        """How far the rank is in one of its groups, with the last op if that was a while ago."""
        script = self.script
        step, op = at.step, at.issued - 1
        while op >= 0 and script.program[op].group != group:
            op -= 1
        if op < 0:
            step = at.step - 1
            op = max(n for n, one in enumerate(script.program) if one.group == group)
        issued_ns = script.issue_ns(rank, self.levels[rank], step, op)
        hangs = at.pending and step == at.step and op == at.issued - 1
        last = self.op(rank, step, op, pending=hangs) if now_ns - issued_ns > QUICK_NS else None
        number = script.number(step, op)
        return wire.GroupProgress(
            group, number, 0, issued_ns + self.skew_ns, last,
            enqueued=number, completed=number - hangs,
            advanced_ns=issued_ns + self.skew_ns, watched=True,
        )  # fmt: skip

    def status(self, rank: int, at: Position, now_ns: int) -> wire.RankStatus:
        script = self.script
        look = self._look(rank, at, now_ns)
        heartbeat = now_ns - now_ns % HEARTBEAT_NS
        if not look.heartbeats:
            heartbeat = min(heartbeat, script.fault_ns + 30 * MS)
        begun = script.step_ns(at.step)
        fetched = begun + script.data_ns(self.levels[rank], at.step)
        fetch = wire.DataLoaderFetch(begun + self.skew_ns, fetched + self.skew_ns, 1,
                                     30_001, FEW_WORKERS)  # fmt: skip
        if look.loads or now_ns < fetched:
            fetch = wire.DataLoaderFetch(begun + self.skew_ns, 0, 1, 30_001, FEW_WORKERS)
        ops = at.step * len(script.program) + at.issued
        return wire.RankStatus(
            1, heartbeat + self.skew_ns, ops, at.step, begun + self.skew_ns, fetch
        )

    def pending(self, rank: int, at: Position) -> tuple[wire.Op, ...]:
        """The op that the rank is in, if it is in one."""
        return (self.op(rank, at.step, at.issued - 1, pending=True),) if at.pending else ()

    def op(self, rank: int, step: int, op: int, *, pending: bool) -> wire.Op:
        script, level = self.script, self.levels[rank]
        planned, signature = script.program[op], self.signatures[op]
        if level == 0 and script.fault == "mismatch" and step == script.fault_step:
            signature = wire.Signature("barrier")
        return wire.Op(
            step * len(script.program) + op + 1,
            planned.group,
            script.number(step, op),
            signature,
            self.sites[op],
            script.issue_ns(rank, level, step, op) + self.skew_ns,
            0 if pending else script.end_ns(level, step, op) + self.skew_ns,
            MAIN_IDENT,
            sync=True,
            usual_ns=planned.took_ns,
            usual_count=step,
        )

    def came_to_ns(self, rank: int, at: Position, now_ns: int) -> int:
        """Until when a rank kept going: now, or when it hung."""
        script = self.script
        if not script.hangs or at.step < script.fault_step:
            return now_ns
        if at.pending:
            issued = script.issue_ns(rank, self.levels[rank], at.step, at.issued - 1)
            return issued if at.issued > script.struck[self.levels[rank]] else now_ns
        loads = LOOKS.get(script.fault, RankLook()).loads
        hung_ns = script.fault_ns + (10 if loads else 20) * MS
        return min(now_ns, hung_ns) if rank == script.culprit else now_ns

    # what an agent sees from outside

    def _ended(self, rank: int, now_ns: int) -> wire.ExitInfo | None:
        script = self.script
        ended = ENDS.get(script.fault) if rank == script.culprit else None
        at_ns = script.fault_ns + 20 * MS
        if ended is None or now_ns < at_ns:
            return None
        return wire.ExitInfo(at_ns + self.skew_ns, ended.exit_code, ended.signal, ended.clean)

    def _look(self, rank: int, at: Position, now_ns: int) -> RankLook:
        """The process and main thread of a rank at a time."""
        script = self.script
        if at.pending:
            op = self.op(rank, at.step, at.issued - 1, pending=True)
            assert op.signature is not None
            assert op.site is not None
            return waiting_in(op.signature.kind, op.site)
        if rank == script.culprit and script.hangs and now_ns > script.fault_ns + 20 * MS:
            return LOOKS.get(script.fault, RankLook())
        if now_ns < script.step_ns(at.step) + script.data_ns(self.levels[rank], at.step):
            return LOOKS["stall"]
        return RankLook(COMPUTING)

    def _process(self, rank: int, at: Position, now_ns: int) -> wire.Process:
        look = self._look(rank, at, now_ns)
        script, pid = self.script, 20_000 + rank - self.ranks[0]
        worked = now_ns if look.busy else script.step_ns(at.step)
        cpu = (worked - script.step_ns(0)) * 7 // 10
        return wire.Process(
            pid, look.state, "python", look.wchan, look.syscall, look.file, cpu, 0,
            (41 << 30) + (rank << 20), 38, FEW_WORKERS,
        )  # fmt: skip

    def gpu(self, rank: int, now_ns: int) -> wire.Gpu:
        """The rank's GPU with a current sample: a power brake slows the straggler's."""
        script = self.script
        braked = script.fault == "slow" and rank == script.culprit and now_ns >= script.fault_ns
        sample = wire.GpuSample(
            now_ns + self.skew_ns, 99 if braked else 92 + rank % 6,
            310_000 if braked else 640_000 + rank % 7 * 1000, (66 << 30) + (rank % 5 << 28),
            1_110 if braked else 1_980, 0x80 if braked else 0,
        )  # fmt: skip
        return wire.Gpu(
            rank - self.ranks[0], f"{GPU.uuid}-{rank}", GPU.name, GPU.power_limit_mw,
            GPU.memory_total, GPU.idle_mw, 1, samples=(sample,),
        )  # fmt: skip

    def snapshot(self, rank: int, now_ns: int, *, stacks: bool, ops: int) -> wire.Snapshot:
        """The rank's processes, stacks and last ops, as requested."""
        at = self.script.position(rank, self.levels[rank], now_ns)
        key, taken = rank + 1, now_ns + self.skew_ns
        last = tuple(self.last_ops(rank, now_ns, ops)) if ops else ()
        if self._ended(rank, now_ns) is not None:
            return wire.Snapshot(key, taken, self.status(rank, at, now_ns), ops=last)
        look, own = self._look(rank, at, now_ns), self._process(rank, at, now_ns)
        workers = tuple(
            wire.Process(
                30_000 + n, look.worker[0] if n == 1 else "S", "pt_data_worker", "",
                look.worker[1] if n == 1 else "futex", look.worker[2] if n == 1 else "",
                90 * SECOND, 0, 2 << 30, 3, parent=own.pid,
            )
            for n in range(FEW_WORKERS)
        )  # fmt: skip
        dumps: tuple[wire.StackDump, ...] = ()
        if stacks:
            main = wire.ThreadStack(
                MAIN_IDENT, own.pid, "MainThread", look.active, look.owns_gil, look.frames
            )
            dumps = (wire.StackDump(own.pid, (main,)),)
        return wire.Snapshot(
            key, taken, self.status(rank, at, now_ns), (own, *workers), dumps, last,
            addresses=(f"10.0.0.{self.index}",),
        )  # fmt: skip

    def last_ops(self, rank: int, now_ns: int, most: int) -> list[wire.Op]:
        """The newest ops, oldest first."""
        at = self.script.position(rank, self.levels[rank], now_ns)
        return [
            self.op(rank, step, op, pending=at.pending and (step, op) == (at.step, at.issued - 1))
            for step, op in self.places(at, most)
        ]

    def places(self, at: Position, most: int) -> list[tuple[int, int]]:
        """Step and op of the newest ops, oldest first."""
        length = len(self.script.program)
        count = at.step * length + at.issued
        return [divmod(n, length) for n in range(max(0, count - most), count)]


def known_ranks(host: HostRanks, keys: Iterable[int]) -> list[int]:
    return [key - 1 for key in keys if key - 1 in host.ranks]
