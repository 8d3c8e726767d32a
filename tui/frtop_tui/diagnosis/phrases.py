"""The parts that verdicts are worded with: ranks, ops, ages, and lines of evidence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from frtop_probe import wire
from frtop_tui.diagnosis.deaths import INTERRUPTED, Death
from frtop_tui.diagnosis.judged import Layer
from frtop_tui.diagnosis.places import place_line
from frtop_tui.diagnosis.point import Crowd, Point, crowd
from frtop_tui.job.model import GroupKey, Rank
from frtop_tui.job.naming import duration, folded, group_label, shortened
from frtop_tui.job.stack_frames import site_line, user_frame

MOST_BEHIND: Final = 8
"""Points of a chain that are told."""


@dataclass(frozen=True, slots=True)
class Missed:
    """An op that others were in when it was already too late for a rank to come."""

    group: wire.Group
    kind: str
    number: int

    @property
    def text(self) -> str:
        label = group_label(self.group.name, self.group.description)
        number = f" #{self.number}" if self.number else ""  # messages have none
        return f"{self.kind}{number} of {label}"


def op_text(point: Point) -> str:
    """`all_reduce #8812 of default_pg`."""
    number = f" #{point.number}" if point.number is not None else ""
    if point.group is None or point.op.pseudo:
        return f"{point.kind}{number}"
    peer = point.peer
    side = ""
    if point.op.p2p and peer is not None:
        side = f" {'from' if 'recv' in point.kind else 'to'} rank {peer}"
    label = group_label(point.group.name, point.group.description)
    return f"{point.kind}{number}{side} of {label}"


def who(views: Mapping[int, Rank], ranks: Sequence[int]) -> str:
    """`rank 2 (node4 pid 90077)`; several ranks without their places."""
    if len(ranks) == 1 and (view := views.get(ranks[0])) is not None and not view.dumped:
        host = "" if view.host in ("", "local") else f"{view.host} "
        return f"rank {view.rank} ({host}pid {view.identity.pid})"
    return folded(ranks)


def has(ranks: Sequence[int]) -> str:
    return "has" if len(ranks) == 1 else "have"


def wait_text(ranks: Iterable[int]) -> str:
    return crowd_text(crowd(ranks))


def crowd_text(waiting: Crowd) -> str:
    if not waiting.ranks:
        return "nobody waits yet"
    if len(waiting.ranks) == 1:
        return f"rank {waiting.folded} waits"
    return f"ranks {shortened(waiting.folded)} wait"


def group_key(group: wire.Group | None) -> GroupKey | None:
    return GroupKey(group.name, group.ranks, group.epoch) if group is not None else None


def kind_of(op: wire.Op) -> str:
    return op.signature.kind if op.signature is not None else "an op"


def at_line(op: wire.Op) -> str:
    return f" at {site_line(op.site)}" if op.site is not None else ""


def usual_text(op: wire.Op) -> str:
    usual = op.usual_ns / 1e9
    return duration(usual) if usual >= 1 else f"{usual * 1e3:.0f}ms"


def wait_evidence(point: Point, now_ns: int) -> list[str]:
    oldest = point.oldest
    text = f"rank {oldest.rank} waits in {op_text(point)}"
    if oldest.undated:
        return [f"{text}{at_line(oldest.op)}; its dump does not tell for how long"]
    text += f" for {duration((now_ns - oldest.since_ns) / 1e9)}"
    if oldest.op.usual_count:
        text += f" (there usually {usual_text(oldest.op)})"
    text += at_line(oldest.op)
    if not oldest.sure:
        text += "; seen from outside only, not by its stack"
    return [text]


def chain_evidence(points: Sequence[Point]) -> list[str]:
    """How a wait at the first of `points` keeps others waiting elsewhere, and whom for."""
    lines = []
    for point in points[1 : 1 + MOST_BEHIND]:
        awaited = {*point.sinks, *point.onward}
        whom = f" for {folded(awaited)}" if awaited and not point.op.p2p else ""
        lines.append(f"{wait_text(point.waiting)} in {op_text(point)}{whom}")
    more = len(points) - 1 - len(lines)
    return [*lines, f"and more behind these: {more} ops that wait"] if more > 0 else lines


def last_op_evidence(views: Mapping[int, Rank], culprits: Sequence[int]) -> list[str]:
    """What the culprits did last, as far as they are known at all."""
    lines = []
    for view in filter(None, map(views.get, culprits[:3])):
        known = [front.last for front in view.group_progress.values() if front.last is not None]
        if not known:
            continue
        last = max(known, key=lambda op: op.sequence)
        group = view.groups.get(last.group)
        of = f" of {group_label(group.name, group.description)}" if group is not None else ""
        exact = group is not None and group.exact and not last.p2p
        number = f" #{last.number}" if exact else ""
        lines.append(f"rank {view.rank} last issued {kind_of(last)}{number}{of}{at_line(last)}")
    return lines


def broken_evidence(views: Mapping[int, Rank], ranks: Iterable[int]) -> list[str]:
    """One line of what the followers raised."""
    for rank in sorted(ranks):
        view = views.get(rank)
        if view is not None and view.exception is not None:
            text = view.exception.text.strip().splitlines()
            return [f"then rank {rank}: {view.exception.kind}: {text[0][:160] if text else ''}"]
    return []


def ended_ns(view: Rank) -> int:
    return view.exit_info.at_ns + view.clock_ns if view.exit_info is not None else 0


def ended_age(view: Rank, now_ns: int) -> float:
    return max(0.0, (now_ns - ended_ns(view)) / 1e9)


def cut(text: str) -> str:
    return text if len(text) <= 120 else f"{text[:119]}…"


def death_text(death: Death) -> str:
    if death.cause == "signal" and death.crashed:
        return f"ended by {death.text}: a crash in native code, or an abort"
    if death.cause == "signal":
        return f"ended by {death.text}; nothing seen here says who sent it"
    if death.cause == INTERRUPTED:
        return f"{death.text}: somebody pressed it, or sent SIGINT"
    if death.cause == "exit_status":
        return f"it ended with {death.text}, without an exception that was seen"
    return death.text


def death_layer(death: Death) -> Layer:
    """Where to look for the cause: who sends a signal is seldom the program itself."""
    sent = death.cause == "signal" and not death.crashed
    return "unknown" if sent or death.cause in (INTERRUPTED, "unknown") else "software"


def after_death(death: Death, view: Rank) -> str:
    output = f"read the end of rank {death.rank}'s own output"
    if death.cause == "exception" and view.exception is not None and view.exception.frames:
        return f"look at {place_line(user_frame(view.exception.frames))}"
    steps = {
        INTERRUPTED: "nothing to look at in the code: it was ended on purpose",
        "oom": f"less memory per rank on {view.host}, or a higher limit: dmesg | grep -i oom",
        "signal": f"on {view.host}: dmesg | tail; who sent it: the scheduler, an operator,"
        " the kernel?",
    }
    if death.nature == "abort":
        return f"{output}: an abort says why there"
    if death.crashed:
        return f"{output}; `python -X faulthandler` prints the stack of a crash"
    return steps.get(death.cause, output)
