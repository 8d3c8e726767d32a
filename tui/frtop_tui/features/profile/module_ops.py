"""Ops of torch and their times, by module and phase, from a profile with labels of module calls.

It counts the ops that a dispatch mode would see, as far as a profile shows them: an op that is
made of other ops only is replaced by these, and ops inside another op's kernel are left out. If an
op works on DTensors, its ops on the local parts are counted as well.

A backward has no module labels. But a node of autograd has the sequence number of the op that
made it, and that op ran inside a label.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from frtop_probe.features.profile.files import MODULE_LABEL

TRIVIAL: Final = frozenset({
    "aten::detach", "aten::t", "aten::view", "aten::_to_copy", "aten::as_strided",
    "aten::transpose",
})  # fmt: skip
"""As CommDebugMode has them."""
MOST_ROWS: Final = 50_000
NODE: Final = "autograd::engine::evaluate_function: "
SUBCLASS: Final = "PythonSubclass"
"""torch's event around what a tensor subclass does in place of an op."""
_WAIT: Final = "_c10d_functional::wait_tensor"
"""Directly inside that event, these are waits for a result (AsyncCollectiveTensor), no DTensor."""
OPTIMIZER: Final = "Optimizer.step#"
_NO_OPS: Final = ("torch::autograd::", "autograd::", MODULE_LABEL)
_COLLECTIVES: Final = ("c10d::", "_c10d_functional::", "_c10d_functional_autograd::")
"""These are counted separately, with their bytes."""


class TraceEvent(NamedTuple):
    """One event of a thread, in µs; `sequence` is autograd's number, -1 for none.

    An `annotation` is a label by the program or a library.
    """

    begin: float
    end: float
    thread: str
    name: str
    sequence: int = -1
    shapes: str = ""
    annotation: bool = False

    @property
    def lasted_ns(self) -> int:
        """From begin to end."""
        return max(0, round(1e3 * (self.end - self.begin)))

    @property
    def is_op(self) -> bool:
        """Whether it is an op of torch: a program's labels may have any name."""
        return not self.annotation and "::" in self.name and not self.name.startswith(_NO_OPS)


class ModuleOp(NamedTuple):
    """What the ops in a row share; `module` is as in a label, "" for none."""

    module: str
    phase: str
    name: str
    shapes: str
    of_dtensors: bool

    def is_at(self, level: int) -> bool:
        """Whether CommDebugMode shows the op at this level (1 or higher)."""
        trivial = self.name in TRIVIAL
        return level > 2 or (not trivial and (level > 1 or self.of_dtensors))


class ModulePlace(NamedTuple):
    """Where ops are: the module, as in a label, and the phase."""

    module: str
    phase: str


_NOWHERE: Final = ModulePlace("", "outside")


@dataclass(slots=True)
class OpsAndTimes:
    """Ops and times of one or more ranks: times in ns, on threads of the host."""

    ops: Counter[ModuleOp] = field(default_factory=Counter)
    op_ns: Counter[ModuleOp] = field(default_factory=Counter)
    """From begin to end, including what an op calls."""
    self_ns: Counter[ModulePlace] = field(default_factory=Counter)
    """Without calls of other modules; outside of modules, only the time of ops counts."""

    def add(self, other: OpsAndTimes) -> None:
        """Adds another rank."""
        self.ops.update(other.ops)
        self.op_ns.update(other.op_ns)
        self.self_ns.update(other.self_ns)


class _Event:
    """An event with the events inside it."""

    __slots__ = ("event", "inside")

    def __init__(self, event: TraceEvent) -> None:
        self.event = event
        self.inside: list[_Event] = []

    @property
    def self_ns(self) -> int:
        """How long it ran, without the events inside it."""
        inside = sum(one.event.lasted_ns for one in self.inside)
        return max(0, self.event.lasted_ns - inside)


_SHOWN, _LOCAL, _TAKEN_OVER, _HIDDEN = range(4)
"""Of what is inside of an event: a dispatch mode sees it; sees it, and it is on local parts of
DTensors; sees it as soon as the subclass has taken over; does not see it."""


def module_ops(
    events: Iterable[TraceEvent], composite: Collection[str], *, dtensors: bool
) -> OpsAndTimes:
    """Counts the ops of one rank, and sums their times.

    `composite` has the names of ops that consist of other ops. Without `dtensors` in the model, no
    op counts as one on DTensors.
    """
    roots = list(_nested(events))
    makers = _makers(roots)
    found = OpsAndTimes()
    rest = [(root, _NOWHERE, _SHOWN) for root in roots]
    while rest:
        one, place, seen = rest.pop()
        event = one.event
        place = _place_in(one, place, makers)
        if place != _NOWHERE or event.is_op:
            found.self_ns[place] += one.self_ns
        if event.name.startswith((MODULE_LABEL, NODE)):
            seen = _SHOWN
        elif event.name == SUBCLASS and seen == _TAKEN_OVER:
            seen = _LOCAL
        elif event.is_op and seen <= _LOCAL and event.name not in composite:
            of_dtensors = dtensors and seen == _SHOWN and _is_of_dtensors(one)
            seen = _TAKEN_OVER if of_dtensors else _HIDDEN
            key = ModuleOp(place.module, place.phase, event.name, event.shapes, of_dtensors)
            known = key in found.ops or len(found.ops) < MOST_ROWS
            if known and not event.name.startswith(_COLLECTIVES):
                found.ops[key] += 1
                found.op_ns[key] += event.lasted_ns
        rest += [(inner, place, seen) for inner in one.inside]
    return found


def _place_in(one: _Event, place: ModulePlace, makers: dict[int, str]) -> ModulePlace:
    name = one.event.name
    if name.startswith(MODULE_LABEL):
        again = place.phase in ("backward", "recompute")
        return ModulePlace(name[len(MODULE_LABEL) :], "recompute" if again else "forward")
    if name.startswith(NODE):
        return ModulePlace(makers.get(_number_of(one), ""), "backward")
    if name.startswith(OPTIMIZER):
        return ModulePlace("", "optimizer")
    return place


def _number_of(node: _Event) -> int:
    """The sequence number of a node; a node with pre-hooks has it only on the event inside."""
    name = node.event.name[len(NODE) :]
    own = (one.event.sequence for one in node.inside if one.event.name == name)
    return node.event.sequence if node.event.sequence >= 0 else next(own, -1)


def _nested(events: Iterable[TraceEvent]) -> Iterator[_Event]:
    """The outermost events of each thread."""
    stack: list[_Event] = []
    for event in sorted(events, key=lambda one: (one.thread, one.begin, -one.end)):
        while stack and (
            stack[-1].event.thread != event.thread or stack[-1].event.end <= event.begin
        ):
            stack.pop()
        one = _Event(event)
        if stack:
            stack[-1].inside.append(one)
        else:
            yield one
        stack.append(one)


def _makers(roots: Iterable[_Event]) -> dict[int, str]:
    """The module in which each node of autograd was made, by sequence number.

    An op has the number that the next node will get. So the last op with a number made its node.
    """
    made: dict[int, tuple[float, str]] = {}
    rest = [(root, "", False) for root in roots]
    while rest:
        one, module, in_node = rest.pop()
        event = one.event
        if event.name.startswith(MODULE_LABEL):
            module, in_node = event.name[len(MODULE_LABEL) :], False
        elif event.name.startswith(NODE):
            in_node = True
        elif event.sequence >= 0 and not in_node:
            known = made.get(event.sequence)
            if known is None or event.begin >= known[0]:
                made[event.sequence] = event.begin, module
        rest += [(inner, module, in_node) for inner in one.inside]
    return {number: module for number, (_, module) in made.items()}


def _is_of_dtensors(op: _Event) -> bool:
    """Whether a tensor subclass took over an op, and did not only wait."""
    labels = [one for one in op.inside if not one.event.is_op]
    labels += [deeper for one in labels for deeper in one.inside]
    taken = [one for one in labels if one.event.name == SUBCLASS]
    return bool(taken) and all(inner.event.name != _WAIT for one in taken for inner in one.inside)
