"""What happens when in a scripted job: a pure function of the time, the same in every process.

Every step runs the same program of ops on a mesh pp x dp x tp. A fault at one rank spreads as in
reality: first the ranks of its tp group wait, then those that share a dp group with one of these,
and so on until all do. A rank's level is its distance from the culprit, which has level 0.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from frtop_probe.ring.rank_ranges import fold
from frtop_tui.demo.faults import SLOW
from frtop_tui.errors import UsageError

MS: Final = 1_000_000
SECOND: Final = 1_000 * MS
TP_SIZE: Final = 8
MOST_HOSTS: Final = 128
"""Each needs two connections with a handshake: more would take long on a small machine."""
LEAST: Final = 16
MOST: Final = 16_384
PERIOD_NS: Final = SECOND
"""Duration of a step without a fault."""
DELAY_NS: Final = 150 * MS
"""How much longer the straggler needs for each step. If throttled, it is late by a part of that to
each op of its tp group, which come first in the program; with slow data, by all of it to the
first."""
STEPS_BEFORE: Final = 400
"""Steps before the start of the demo, to have a history."""
FAULT_AFTER: Final = 12
"""Steps from the start of the demo to the fault."""
JITTER_NS: Final = 600_000
"""Ranks issue an op within this time of each other."""

WORLD, PP, DP, TP = 1, 2, 3, 4
GROUP_NAMES: Final = {WORLD: "default_pg", PP: "pp", DP: "dp", TP: "tp"}


class PlannedOp(NamedTuple):
    """An op of the program. Times in ns from the start of the step; `elements` are of bfloat16."""

    kind: str
    group: int
    file: str
    line: int
    function: str
    begin_ns: int
    took_ns: int
    elements: int


def _program() -> tuple[PlannedOp, ...]:
    layer, train = "/home/ml/llama/model/parallel.py", "/home/ml/llama/train.py"
    ops = [PlannedOp("all_reduce", TP, layer, 61, "embed", 22 * MS, 3 * MS, 2**23)]
    for index in range(6):
        at = (30 + 50 * index) * MS
        ops.append(PlannedOp("all_gather", TP, layer, 88, "forward", at, 4 * MS, 2**24))
        ops.append(
            PlannedOp("reduce_scatter", TP, layer, 97, "forward", at + 30 * MS, 5 * MS, 2**24)
        )
    for index in range(6):
        at = (350 + 75 * index) * MS
        ops.append(PlannedOp("all_gather", TP, layer, 121, "backward", at, 4 * MS, 2**24))
        ops.append(
            PlannedOp("reduce_scatter", TP, layer, 130, "backward", at + 45 * MS, 5 * MS, 2**24)
        )
    ops += [
        PlannedOp("reduce_scatter", DP, train, 231, "reduce", at, 48 * MS, 2**27)
        for at in (785 * MS, 840 * MS)
    ]
    ops.append(PlannedOp("all_reduce", PP, train, 236, "clip", 897 * MS, 3 * MS, 1))
    ops.append(PlannedOp("all_reduce", WORLD, train, 240, "log", 906 * MS, 8 * MS, 1))
    ops.append(PlannedOp("all_gather", DP, train, 244, "gather", 940 * MS, 45 * MS, 2**27))
    return tuple(ops)


PROGRAM: Final = _program()
DATA_NS: Final = 18 * MS
"""How long each step waits for its batch, at its start."""
AFTER_OPS_NS: Final = 3 * MS
"""Time from the last op of a forward or backward to its end, and from there to the next phase."""
OPTIMIZER_NS: Final = 14 * MS


@dataclass(frozen=True)
class ScriptedMesh:
    """The mesh. Ranks count along tp first, so a tp group is on one host."""

    pp: int
    dp: int
    tp: int

    @classmethod
    def of(cls, ranks: int) -> ScriptedMesh:
        """The mesh of a number of ranks.

        Raises:
            UsageError: there is none.
        """
        if not LEAST <= ranks <= MOST or ranks % TP_SIZE:
            raise UsageError(
                f"{ranks} ranks cannot be scripted",
                f"a multiple of {TP_SIZE} from {LEAST} to {MOST}: frtop demo --ranks 4096",
            )
        pp = 4 if ranks >= 128 and ranks % (4 * TP_SIZE) == 0 else 1
        return cls(pp, ranks // pp // TP_SIZE, TP_SIZE)

    @property
    def world(self) -> int:
        return self.pp * self.dp * self.tp

    @property
    def per_host(self) -> int:
        """Ranks of one host: whole tp groups."""
        groups = self.world // self.tp
        return self.tp * -(-groups // MOST_HOSTS)

    @property
    def hosts(self) -> int:
        return -(-self.world // self.per_host)

    def place(self, rank: int) -> tuple[int, int, int]:
        """On the axes pp, dp and tp."""
        rest, tp = divmod(rank, self.tp)
        pp, dp = divmod(rest, self.dp)
        return pp, dp, tp

    def members(self, group: int, rank: int) -> str:
        pp, dp, tp = self.place(rank)
        if group == TP:
            return f"{rank - tp}-{rank - tp + self.tp - 1}"
        if group == DP:
            first = pp * self.dp * self.tp + tp
            return fold(range(first, first + self.dp * self.tp, self.tp))
        if group == PP:
            return fold(range(dp * self.tp + tp, self.world, self.dp * self.tp))
        return f"0-{self.world - 1}"

    def size(self, group: int) -> int:
        """The number of ranks in a group of this axis."""
        return {TP: self.tp, DP: self.dp, PP: self.pp}.get(group, self.world)

    def index(self, group: int, rank: int) -> int:
        """The index of a rank's group among those of one axis."""
        pp, dp, tp = self.place(rank)
        return {TP: pp * self.dp + dp, DP: pp * self.tp + tp, PP: dp * self.tp + tp}.get(group, 0)


class ScriptedPhase(NamedTuple):
    """What a rank does on its own, as its recorder marks it; `kind` is the mark's."""

    kind: str
    begin_ns: int
    end_ns: int


class Position(NamedTuple):
    """Where a rank is: it has issued `issued` ops of `step`; the last may be `pending`."""

    step: int
    issued: int
    pending: bool


@dataclass(frozen=True)
class Script:
    """The job's course. Times are of one monotonic clock; hosts show them with a skew."""

    shape: ScriptedMesh
    fault: str
    begin_ns: int

    @cached_property
    def program(self) -> tuple[PlannedOp, ...]:
        """The program; omits the ops of an axis with one rank."""
        return tuple(op for op in PROGRAM if op.group != PP or self.shape.pp > 1)

    @cached_property
    def numbers(self) -> tuple[tuple[int, int], ...]:
        """For each op of the program: how many its group has in a step, and which one it is."""
        count = {group: [op.group for op in self.program].count(group) for group in GROUP_NAMES}
        seen = dict.fromkeys(GROUP_NAMES, 0)
        found = []
        for op in self.program:
            found.append((count[op.group], seen[op.group]))
            seen[op.group] += 1
        return tuple(found)

    @cached_property
    def culprit(self) -> int:
        """The rank of the fault."""
        return self.shape.world * 5 // 8 + 5

    @property
    def fault_step(self) -> int:
        return STEPS_BEFORE + FAULT_AFTER

    @property
    def hangs(self) -> bool:
        return self.fault != "none" and not self.slow

    @property
    def slow(self) -> bool:
        return self.fault in SLOW

    @property
    def fault_ns(self) -> int:
        return self.step_ns(self.fault_step)

    def level(self, rank: int) -> int:
        """How many groups are between a rank and the culprit: 0 is the culprit itself."""
        pp, dp, _ = self.shape.place(rank)
        bad_pp, bad_dp, _ = self.shape.place(self.culprit)
        if rank == self.culprit:
            return 0
        return 1 if (pp, dp) == (bad_pp, bad_dp) else 2 if pp == bad_pp else 3

    @cached_property
    def struck(self) -> tuple[int, ...]:
        """The first op of the program, by level, in which a rank waits for the culprit."""
        groups = [op.group for op in self.program]
        last = groups.index(PP) if PP in groups else groups.index(WORLD)
        return (0, 0, groups.index(DP), last)

    def step_ns(self, step: int) -> int:
        at = self.begin_ns + (step - STEPS_BEFORE) * PERIOD_NS
        slow = step - self.fault_step if self.slow else 0
        return at + max(0, slow) * DELAY_NS

    def step_at(self, now_ns: int) -> int:
        """The step at a time; a hung job stays in the step of its fault."""
        step = STEPS_BEFORE + (now_ns - self.begin_ns) // PERIOD_NS
        if self.hangs:
            return min(step, self.fault_step)
        if self.slow and step > self.fault_step:
            since = now_ns - self.fault_ns
            step = self.fault_step + since // (PERIOD_NS + DELAY_NS)
        return int(step)

    def issue_ns(self, rank: int, level: int, step: int, op: int) -> int:
        """When a rank issues an op, or would without the hang."""
        late = self._late_ns(level, step, op + (level == 0))
        jitter = (rank * 7919 + step * 104_729 + op * 1_299_709) % JITTER_NS
        return self.step_ns(step) + self.program[op].begin_ns + late + jitter

    def end_ns(self, level: int, step: int, op: int) -> int:
        """When the members of a group finish an op, all together."""
        planned = self.program[op]
        late = self._late_ns(level, step, op + 1)
        return self.step_ns(step) + planned.begin_ns + planned.took_ns + late

    def _late_ns(self, level: int, step: int, ops: int) -> int:
        """How late the straggler has made a rank after `ops` ops of a step."""
        if not self.slow or step < self.fault_step:
            return 0
        if level < 2:
            before = 1 if self.fault == "slow-data" else self.numbers[0][0]
            return DELAY_NS * min(ops, before) // before
        return DELAY_NS * (ops > self.struck[level])

    def data_ns(self, level: int, step: int) -> int:
        """How long a rank's fetch of the step's batch lasts."""
        waits = self.fault == "slow-data" and level == 0 and step >= self.fault_step
        return DATA_NS + DELAY_NS * waits

    def phases(self, level: int, step: int) -> tuple[ScriptedPhase, ...]:
        """What a rank does in a step, in order; the optimizer after the last op of all ranks."""
        begin = self.step_ns(step)
        fetched = begin + self.data_ns(level, step)
        forward, backward, log = (self.end_ns(level, step, op) for op in self._last_of_phase)
        forward, backward = forward + AFTER_OPS_NS, backward + AFTER_OPS_NS
        optimizer = log + AFTER_OPS_NS
        return (
            ScriptedPhase("fetch", begin, fetched),
            ScriptedPhase("forward", fetched, forward),
            ScriptedPhase("backward", forward + AFTER_OPS_NS, backward),
            ScriptedPhase("optimizer", optimizer, optimizer + OPTIMIZER_NS),
        )

    @cached_property
    def _last_of_phase(self) -> tuple[int, int, int]:
        functions = [op.function for op in self.program]
        return tuple(  # type: ignore[return-value]
            len(functions) - 1 - functions[::-1].index(name)
            for name in ("forward", "backward", "log")
        )

    def position(self, rank: int, level: int, now_ns: int) -> Position:
        step = self.step_at(now_ns)
        if self.hangs and step == self.fault_step:
            most = self.struck[level] + 1 if level or self.fault == "mismatch" else 0
        else:
            most = len(self.program)
        issued = bisect_right(
            range(most), now_ns, key=lambda op: self.issue_ns(rank, level, step, op)
        )
        if not issued:
            return Position(step, 0, pending=False)
        hung = self.hangs and step == self.fault_step and issued == self.struck[level] + 1
        return Position(step, issued, hung or now_ns < self.end_ns(level, step, issued - 1))

    def number(self, step: int, op: int) -> int:
        count, index = self.numbers[op]
        return step * count + index + 1
