"""What the letters of the rank grid show: states, lag, steps, arrival skew, device use. Pure.

A lens gives each rank a letter and a heat: no meaning is in colours alone. A lens without data says
why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final, NamedTuple

from frtop_tui.diagnosis.cases.slow.parts import MIN_STEPS, own_ns, waits_are_known
from frtop_tui.diagnosis.cases.slow.roles import op_rates, peers_of, places
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.job.arrivals import rank_delays
from frtop_tui.job.group_members import members
from frtop_tui.job.statistics import JobStatistics
from frtop_tui.job.units import counted, timing
from frtop_tui.statistics.step_table import newest_steps
from frtop_tui.text.statistics_words import no_steps_words
from frtop_tui.widgets.spans import Line, Span, join, plain

MOST_STEPS: Final = 12
"""Newest steps of each rank: more steps cost time at 10,000 ranks, and change no median."""


class OwnTime(NamedTuple):
    """Medians over one rank's newest steps, in ns.

    `own_ns` is an upper bound: unseen waits are part of it. `more_ns` is how much more it has than
    its peers in the same steps; None without peers, or with too few such steps.
    """

    own_ns: int
    took_ns: int
    more_ns: int | None = None

    @property
    def share(self) -> float | None:
        """`more_ns` as a share of a step."""
        return None if self.more_ns is None or not self.took_ns else self.more_ns / self.took_ns


def own_times(frame: Frame) -> dict[int, OwnTime]:
    """The own time of ranks in their steps, compared with ranks that have the same work.

    All steps are as long as the straggler's, as the others wait for it: own time shows the
    difference. Ranks are left out if no waits of theirs or their peers are recorded.
    """
    statistics = frame.statistics
    if statistics is None:
        return {}
    ranks = [rank for rank in frame.ranks if statistics.steps.get(rank)]
    classes = peers_of(ranks, places(frame.ranks), op_rates(statistics))
    alone = set(ranks).difference(*classes)
    found: dict[int, OwnTime] = {}
    for peers in (*classes, *((rank,) for rank in alone)):
        if waits_are_known(statistics, peers, 0):
            found.update(_compared(statistics, peers))
    return found


def _compared(statistics: JobStatistics, peers: Sequence[int]) -> dict[int, OwnTime]:
    """Compares each of `peers` with the others, step by step."""
    newest = {rank: statistics.steps[rank][-MOST_STEPS:] for rank in peers}
    by_number: dict[int, list[int]] = {}
    for steps in newest.values():
        for step in steps:
            by_number.setdefault(step.number, []).append(own_ns(step))
    others = {number: _Others.of(own) for number, own in by_number.items() if len(own) > 1}
    found = {}
    for rank, steps in newest.items():
        own = [own_ns(step) for step in steps]
        more = [
            ns - others[step.number].median_beside(ns)
            for step, ns in zip(steps, own, strict=True)
            if step.number in others
        ]
        found[rank] = OwnTime(
            round(median(own)),
            round(median(step.took_ns for step in steps)),
            round(median(more)) if len(more) >= MIN_STEPS else None,
        )
    return found


class _Others(NamedTuple):
    """The median of all values but one: one of three, depending on the position of that one."""

    low: int
    high: int
    without_low: float
    without_middle: float
    without_high: float

    @classmethod
    def of(cls, values: list[int]) -> _Others:
        """Of two values or more."""
        values.sort()
        at = len(values) // 2
        if len(values) % 2 == 0:
            low, high = values[at - 1], values[at]
            return cls(low, low, high, high, low)
        low, middle, high = values[at - 1 : at + 2]
        return cls(low, middle, (middle + high) / 2, (low + high) / 2, (low + middle) / 2)

    def median_beside(self, value: int) -> float:
        """The median of the others, for one of the values."""
        if value <= self.low:
            return self.without_low
        return self.without_middle if value <= self.high else self.without_high


UNKNOWN: Final[Span] = ("?", "unreachable")


def no_statistics(frame: Frame) -> str:
    """Why there are none."""
    return "no statistics in this file" if frame.recorded is not None else "no statistics yet"


@dataclass(frozen=True, slots=True)
class LensView:
    """One frame through a lens: `values` in words; `why` there is nothing to see.

    Ranks are compared by `amounts`: the largest first.
    """

    letters: Mapping[int, Span] = field(default_factory=dict)
    values: Mapping[int, str] = field(default_factory=dict)
    amounts: Mapping[int, float] = field(default_factory=dict)
    meanings: tuple[tuple[Span, str], ...] = ()
    why: str = ""

    def legend(self) -> Line:
        """The letters that are on the screen, with their meaning and how many ranks have them."""
        if self.why:
            return plain(self.why, "warn")
        counts = Counter(letter for letter, _ in self.letters.values())
        known = [(letter, words) for letter, words in self.meanings if counts[letter[0]]]
        return join(
            [(letter, (f" {words} {counts[letter[0]]:,}", "")) for letter, words in known],
            between="   ",
        )


Lens = Callable[[Frame], LensView]

_LAG: Final = (
    ((".", "heat0"), "at the front"),
    (("1", "heat1"), "1 op behind"),
    (("2", "heat2"), "2 to 9"),
    (("3", "heat3"), "10 to 99"),
    (("4", "heat4"), "100 and more"),
    (("-", "dim"), "no numbers"),
    (UNKNOWN, "unreachable"),
)


def lag(frame: Frame) -> LensView:
    """How many ops each rank is behind, in the group where it is furthest behind."""
    lags: dict[int, tuple[int, str]] = {}
    over = all(rank.state in ("dead", "done") for rank in frame.ranks.values())  # nobody is late
    for view in frame.groups:
        if not view.exact or not (view.late or over):
            continue
        for member in members(view, frame.ranks, view.late or None):
            ops = view.number - (member.issued or 0)
            if member.issued is not None and ops > lags.get(member.number, (0, ""))[0]:
                lags[member.number] = (ops, view.label)
    letters = {rank: _lag_letter(view, lags) for rank, view in frame.ranks.items()}
    values = {rank: f"{counted(ops, 'op')} behind in {name}" for rank, (ops, name) in lags.items()}
    if not any(group.number for group in frame.groups):
        return LensView(why="no group has issued an op that can be compared")
    amounts = {rank: ops for rank, (ops, _) in lags.items()}
    return LensView(letters, values, amounts, _LAG)


def _lag_letter(rank: JudgedRank, lags: Mapping[int, tuple[int, str]]) -> Span:
    if rank.state == "unreachable":
        return UNKNOWN
    if not rank.evidence.has_numbers or not rank.identity.c10d_readable:
        return ("-", "dim")
    ops, _ = lags.get(rank.rank, (0, ""))
    return _LAG[0 if not ops else min(4, 1 + len(str(ops)) - (ops == 1))][0]


_SLOWER: Final = (
    (("-", "dim"), "faster by 10 % and more"),
    ((".", "heat0"), "within 10 % of the median"),
    (("1", "heat1"), "10 % slower"),
    (("2", "heat2"), "20 %"),
    (("3", "heat3"), "30 to 49 %"),
    (("4", "heat4"), "50 % and more"),
    (("?", "unreachable"), "no steps"),
)


def step_time(frame: Frame) -> LensView:
    """The median step of each rank, compared with the median of all of them."""
    statistics = frame.statistics
    if statistics is None:
        return LensView(why=no_statistics(frame))
    took = {
        rank: median(step.took_ns for step in steps)
        for rank, steps in newest_steps(statistics).items()
    }
    if not took:
        return LensView(why=no_steps_words(frame))
    middle = median(took.values())
    meanings = (
        *_SLOWER[:1],
        (_SLOWER[1][0], f"within 10 % of {timing(round(middle))}"),
        *_SLOWER[2:],
    )
    letters = {rank: _slower_letter(took.get(rank), middle) for rank in frame.ranks}
    values = {rank: f"step {timing(round(ns))}" for rank, ns in took.items()}
    return LensView(letters, values, took, meanings)


def _slower_letter(took: float | None, middle: float) -> Span:
    if took is None or not middle:
        return UNKNOWN
    ratio = took / middle
    limits = (0.9, 1.1, 1.2, 1.3, 1.5)
    return _SLOWER[sum(ratio >= limit for limit in limits)][0]


_OWN: Final = (
    (("-", "dim"), "less by 5 % of a step and more"),
    ((".", "heat0"), "within 5 % of a step of its peers"),
    (("1", "heat1"), "5 % of a step more"),
    (("2", "heat2"), "10 to 19 %"),
    (("3", "heat3"), "20 to 49 %"),
    (("4", "heat4"), "50 % and more"),
    (("~", "dim"), "no peers with the same steps"),
    (UNKNOWN, "not recorded"),
)


def own_time(frame: Frame) -> LensView:
    """The time in steps that communication did not take, compared with the rank's peers.

    As a share of a step: that is what it costs the ranks that wait.
    """
    statistics = frame.statistics
    if statistics is None:
        return LensView(why=no_statistics(frame))
    if not any(statistics.steps.values()):
        return LensView(why=no_steps_words(frame))
    found = own_times(frame)
    if not found:
        why = "who is slower by itself is not known: no waits in communication are recorded"
        return LensView(why=why)
    letters = {rank: _own_letter(found.get(rank)) for rank in frame.ranks}
    values = {rank: _own_words(one) for rank, one in found.items()}
    amounts = {rank: one.share for rank, one in found.items() if one.share is not None}
    return LensView(letters, values, amounts, _OWN)


def _own_letter(one: OwnTime | None) -> Span:
    if one is None:
        return UNKNOWN
    if one.share is None:
        return ("~", "dim")
    return _OWN[sum(one.share >= limit for limit in (-0.05, 0.05, 0.1, 0.2, 0.5))][0]


def _own_words(one: OwnTime) -> str:
    words = f"own time at most {timing(one.own_ns)}"
    if not one.more_ns or abs(one.share or 0.0) < _LEAST_SHARE:
        return words
    sign = "more" if one.more_ns > 0 else "less"
    return f"{words}, {timing(abs(one.more_ns))} {sign} than its peers"


_LEAST_SHARE: Final = 0.01
"""Share of a step: a smaller difference is not worth a word."""

_SKEW: Final = (
    ((".", "heat0"), "under 1 ms after the first"),
    (("1", "heat1"), "1 to 10 ms"),
    (("2", "heat2"), "10 to 100 ms"),
    (("3", "heat3"), "0.1 to 1 s"),
    (("4", "heat4"), "1 s and more"),
    (("~", "dim"), "within the clocks' error"),
    (("?", "unreachable"), "not sampled"),
)


def skew(frame: Frame) -> LensView:
    """How long after the first member each rank arrives, in its worst group."""
    statistics = frame.statistics
    if statistics is None:
        return LensView(why=no_statistics(frame))
    delays = rank_delays(statistics.groups)
    if not delays:
        return LensView(why="no op was sampled at all members of its group")
    letters = {rank: _skew_letter(rank, delays) for rank in frame.ranks}
    known = {rank: ns for rank, ns in delays.items() if ns is not None}
    values = {rank: f"{timing(ns)} after the first" for rank, ns in known.items()}
    return LensView(letters, values, known, _SKEW)


def _skew_letter(rank: int, delays: Mapping[int, int | None]) -> Span:
    if rank not in delays:
        return UNKNOWN
    if (ns := delays[rank]) is None:
        return ("~", "dim")
    return _SKEW[sum(ns >= limit for limit in (10**6, 10**7, 10**8, 10**9))][0]


_USE: Final = (
    *(((str(n), f"heat{min(4, 4 - n // 2)}"), f"{10 * n} %") for n in range(10)),
    (("*", "heat0"), "95 % and more"),
    (("!", "bad"), "lost"),
    (("?", "unreachable"), "not known"),
)


def device_use(frame: Frame) -> LensView:
    """The share of the last sample in which a kernel ran on the rank's devices."""
    letters: dict[int, Span] = {}
    values: dict[int, str] = {}
    for rank, view in frame.ranks.items():
        letters[rank], values[rank] = _use_of(view)
    if all(letter == UNKNOWN for letter in letters.values()):
        notes = {view.gauges.note for view in frame.ranks.values() if view.gauges is not None}
        return LensView(why=next(filter(None, sorted(notes)), "frtop sees no device of any rank"))
    return LensView(letters, values, {}, _USE)


def _use_of(rank: JudgedRank) -> tuple[Span, str]:
    gpus = rank.gauges.gpus if rank.gauges is not None else ()
    if any(gpu.error for gpu in gpus):
        return ("!", "bad"), next(gpu.error for gpu in gpus if gpu.error)
    used = [gpu.samples[-1].utilization for gpu in gpus if gpu.samples]
    known = [percent for percent in used if percent is not None]
    if not known:
        return UNKNOWN, "device use not known"
    percent = sum(known) / len(known)
    letter = _USE[10 if percent >= 95 else int(percent // 10)][0]
    return letter, f"device {percent:.0f} %"


LENSES: Final[Mapping[str, Lens | None]] = {
    "state": None,
    "lag": lag,
    "step time": step_time,
    "own time": own_time,
    "arrival skew": skew,
    "device use": device_use,
}
"""In the order of the key; the grid itself draws states."""
EMPTY: Final = LensView()
EVERY_FRAME: Final = ("lag", "device use")
"""Lenses to update with each frame; the others change with statistics only."""


def of_verdict(frame: Frame) -> tuple[str, LensView]:
    """The lens through which the culprits of a slow job stand out; "state" if there is none."""
    culprits = frame.verdicts[0].culprits if frame.verdicts and frame.health == "slow" else ()
    for name, look in (("own time", own_time), ("arrival skew", skew)) if culprits else ():
        view = look(frame)
        if any(view.letters.get(rank, UNKNOWN)[0] in "1234" for rank in culprits):
            return name, view
    return "state", EMPTY


def through(name: str, frame: Frame) -> tuple[str, LensView]:
    """A frame through one of `LENSES`; "": through that of its verdict."""
    if not name:
        return of_verdict(frame)
    look = LENSES[name]
    return name, look(frame) if look is not None else EMPTY


def next_lens(name: str) -> str:
    """The lens after this one."""
    names = list(LENSES)
    return names[(names.index(name) + 1) % len(names)]
