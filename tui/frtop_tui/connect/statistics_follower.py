"""Asks agents what the ranks of the shown job did, slice by slice, while somebody wants to know.

We request each slice of time once, so a request costs an agent only the new ops. A slice ends a
second ago: its ops are usually over by now. A host gets one such request at a time; a slow host
gets its slices later, and eventually misses the oldest ones.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Final

from msgspec import structs

from frtop_probe import wire
from frtop_tui.connect.request_tracker import RequestTracker
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.job.naming import same_job
from frtop_tui.job.statistics import JobStatistics
from frtop_tui.statistics.answers import answers_of, errors_of
from frtop_tui.statistics.merger import StatisticsMerger
from frtop_tui.statistics.wanted import (
    ENOUGH_OPS,
    FEW_OPS,
    LONG_WINDOW_S,
    MOST_STEPS,
    MOST_TIMES,
    StatisticsWanted,
    joint_wanted,
    most_ops,
    samples_for,
)

INTERVAL_NS: Final = 5_000_000_000
MANY: Final = 1024
"""From twice this many ranks on, rows of calls come less often, by a factor of up to `LONGEST`."""
LONGEST: Final = 4
LAG_NS: Final = 1_000_000_000
"""How long ago a slice ends."""
PIECES: Final = 4
"""We fetch the window before the first request in this many slices, to be able to drop it piece by
piece."""
LATE_NS: Final = 2_000_000_000
"""Figures wait no longer than this for a host, which joins when it answers."""
MOST_WAITING: Final = 8
"""Number of slices by which a host may be late."""
TOO_OLD: Final = "agents older than this frtop send no statistics: {}"

OnStatistics = Callable[[wire.Job, JobStatistics | None, JobStatistics | None], None]
"""Takes a job, its statistics, and those of a screen's window, if it differs."""
VERDICTS: Final = "verdicts"
"""The name for verdicts, whose statistics do not depend on a screen's window."""


def interval_ns(wanted: StatisticsWanted, ranks: int) -> int:
    """The length of a slice. Rows of calls cost the same for a long one: some 10 µs each here."""
    return INTERVAL_NS * (max(1, min(LONGEST, ranks // MANY)) if wanted.calls else 1)


@dataclass(frozen=True, slots=True)
class _Question:
    """A slice of time to request from one host, on the operator's clock."""

    number: int
    since_ns: int
    until_ns: int
    samples: int
    views: dict[int, JudgedRank]
    agent: int  # generation of the agent that gave the keys


@dataclass(slots=True)
class _Host:
    """What one host still has to answer."""

    waiting: deque[_Question] = field(default_factory=lambda: deque(maxlen=MOST_WAITING))
    asked_ns: int = 0
    covered: bool = False  # was asked before
    too_old: bool = False


class StatisticsFollower:
    """Belongs to the source's thread. `want` switches it on."""

    def __init__(self, tracker: RequestTracker, on_statistics: OnStatistics) -> None:
        self._tracker = tracker
        self._on_statistics = on_statistics
        self._by_whom: dict[str, StatisticsWanted] = {}
        self._wanted: StatisticsWanted | None = None
        self._job: wire.Job | None = None
        self._merger = StatisticsMerger()
        self._hosts: defaultdict[str, _Host] = defaultdict(_Host)
        self._under_way: dict[str, int] = {}
        self._number = 0
        self._asked_ns = self._until_ns = 0
        self._fresh = False
        self._built: tuple[int, ...] = ()
        self._is_long = False
        """Whether verdicts use the long window."""

    def want(self, wanted: StatisticsWanted | None, whom: str = "") -> None:
        """From now on, requests what `whom` and others want; None: `whom` no longer wants any."""
        if wanted is None:
            self._by_whom.pop(whom, None)
        else:
            self._by_whom[whom] = wanted
        if not self._want_jointly() and self._windows() != self._built:
            self._fresh = bool(self._until_ns)

    def _want_jointly(self) -> bool:
        """Starts over if their joint wish changed; returns whether it did."""
        joint = joint_wanted(list(self._each().values()))
        if joint == self._wanted:
            return False
        self._wanted = joint
        self._begin_anew()
        return True

    def _each(self) -> dict[str, StatisticsWanted]:
        """What everybody wants; for long steps, verdicts want a long window."""
        wanted = self._by_whom.get(VERDICTS)
        if wanted is None or not self._is_long:
            return self._by_whom
        return {**self._by_whom, VERDICTS: structs.replace(wanted, window_s=LONG_WINDOW_S)}

    def update(self, frame: Frame | None, now: int) -> None:
        """Requests the next slice when it is due, and publishes what has arrived."""
        if frame is None or frame.job is None or self._wanted is None:
            return
        if not same_job(self._job, frame.job):
            self._is_long = False
            if not self._want_jointly():
                self._begin_anew()
        self._job = frame.job
        if frame.ranks and now - self._asked_ns >= interval_ns(self._wanted, len(frame.ranks)):
            self._begin_slice(frame, self._wanted, now)
        for name, host in self._hosts.items():
            self._ask(name, host, now)
        if self._fresh and not any(self._holds_up(*one, now) for one in self._hosts.items()):
            self._build(frame, self._wanted)

    def _holds_up(self, name: str, host: _Host, now: int) -> bool:
        """Whether figures should wait for this host."""
        if name in self._under_way:
            return now - host.asked_ns < LATE_NS
        return bool(host.waiting)

    def _begin_anew(self) -> None:
        """Forgets everything: for another job, or other figures."""
        self._tracker.drop(*self._under_way.values())
        self._hosts.clear()
        if self._job is not None and self._wanted is None:
            self._on_statistics(self._job, None, None)
        wanted = self._wanted or StatisticsWanted()
        self._merger = StatisticsMerger(wanted.ranks, wanted.groups)
        self._asked_ns = self._until_ns = 0
        self._fresh = False

    def _begin_slice(self, frame: Frame, wanted: StatisticsWanted, now: int) -> None:
        self._asked_ns = now
        since, until = self._until_ns, now - LAG_NS
        window = _nanoseconds(wanted)
        views: defaultdict[str, dict[int, JudgedRank]] = defaultdict(dict)
        for view in frame.ranks.values():
            if view.state != "unreachable":
                views[view.host][view.key] = view
        memberships = [len(view.groups) for view in frame.ranks.values()]
        samples = samples_for(memberships, -(-window // INTERVAL_NS))
        first = not self._until_ns
        borders = [since, until]
        if first:
            ago = (
                one * n // PIECES for one in (window, *self._windows()) for n in range(PIECES + 1)
            )
            borders = sorted({until - one for one in ago})
        for begin, end in pairwise(borders):
            self._number += 1
            self._merger.begin(self._number, begin, end)
            scale = max(1, round((end - begin) / INTERVAL_NS))
            for name, of_host in views.items():
                host = self._hosts[name]
                if host.too_old:
                    continue
                # A new host also gets a request for the time before.
                earlier = begin if host.covered or first else until - window
                agent = self._tracker.agent(name)
                host.waiting.append(
                    _Question(self._number, earlier, end, samples * scale, of_host, agent)
                )
        for name in views:
            self._hosts[name].covered = True
        self._until_ns = until

    def _ask(self, name: str, host: _Host, now: int) -> None:
        """Requests the oldest waiting slice from a host."""
        if name in self._under_way or not host.waiting or self._wanted is None:
            return
        one = host.waiting[0]
        clock = next((view.clock_ns for view in one.views.values()), 0)
        request = wire.StatisticsRequest(
            0,
            tuple(one.views),
            max(0, one.since_ns - clock),
            max(1, one.until_ns - clock),
            self._wanted.calls,
            one.samples,
            MOST_STEPS * max(1, round((one.until_ns - one.since_ns) / INTERVAL_NS)),
        )
        received = partial(self._received, host, one)
        host.waiting.popleft()
        host.asked_ns = now
        self._tracker.request(
            name, request, received, now, agent=one.agent, under_way=self._under_way, about=name
        )

    def _received(self, host: _Host, one: _Question, response: wire.Response, _now: int) -> None:
        if isinstance(response, wire.Error) and response.reason == "words":
            host.too_old, self._fresh = True, True
            host.waiting.clear()
        if not isinstance(response, wire.StatisticsResponse):
            return
        self._fresh = True
        answered = set()
        for view, answer in answers_of(one.views, response):
            self._merger.add(one.number, answer)
            answered.add(view.key)
        rest = {key: view for key, view in one.views.items() if key not in answered}
        if answered and rest and len(response.ranks) < len(one.views):
            host.waiting.appendleft(replace(one, views=rest))

    def _build(self, frame: Frame, wanted: StatisticsWanted) -> None:
        self._fresh = False
        self._merger.forget(self._until_ns - _nanoseconds(wanted))
        self._built = self._windows()
        errors = errors_of(frame.hosts)
        found, *others = [
            structs.replace(one, with_calls=wanted.calls) if one is not None else None
            for window in self._built
            for one in (self._merger.build(errors, frame.ranks, self._until_ns - window),)
        ]
        too_old = sorted(name for name, host in self._hosts.items() if host.too_old)
        if found is not None and too_old:
            note = TOO_OLD.format(", ".join(too_old[:8]))
            found = structs.replace(found, notes=(*found.notes, note))
        if self._job is not None:
            self._on_statistics(self._job, found, others[0] if others else None)
        if VERDICTS in self._by_whom and found is not None:
            self._choose_window(frame, found)

    def _choose_window(self, frame: Frame, found: JobStatistics) -> None:
        """Chooses the long window for verdicts while the last minute has few ops.

        With too many ranks to sample even one op per slice, a minute must do.
        """
        most = most_ops(found, self._until_ns - _nanoseconds(StatisticsWanted()))
        slices = round(LONG_WINDOW_S * 1e9) // INTERVAL_NS
        each_op = slices * sum(len(view.groups) for view in frame.ranks.values())
        is_few = most <= FEW_OPS or (self._is_long and most < ENOUGH_OPS)
        is_long = is_few and each_op <= MOST_TIMES
        if is_long != self._is_long:
            self._is_long = is_long
            self._want_jointly()

    def _windows(self) -> tuple[int, ...]:
        """Windows in ns: that of verdicts or of anyone else; then a screen's, if it differs."""
        several = sorted(self._each().items(), key=lambda one: (one[0] != VERDICTS, one[1].calls))
        return tuple(dict.fromkeys(_nanoseconds(wanted) for _, wanted in several))[:2]


def _nanoseconds(wanted: StatisticsWanted) -> int:
    return max(INTERVAL_NS, round(wanted.window_s * 1e9))
