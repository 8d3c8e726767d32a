"""Ranks of a made-up job whose ops are known, told as agents tell them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from types import SimpleNamespace

from frtop_probe import wire
from frtop_probe.statistics.call_columns import added_up
from frtop_probe.statistics.calls import SiteTable
from frtop_probe.statistics.op_records import fields_of
from frtop_probe.statistics.rank_summary import RankSummary, Window
from frtop_probe.statistics.steps import StepEnd
from frtop_tui.statistics.answers import RankAnswer

MS = 1_000_000
S = 1_000_000_000
LINE = wire.Site("/srv/train.py", 40, "train")
MEBI = wire.TensorSpec("float32", (262_144,))
ALL_REDUCE = wire.Signature("all_reduce", "sum", inputs=(MEBI,))


def group(number: int = 1, ranks: str = "0-3", name: str = "default_pg") -> wire.Group:
    return wire.Group(number, name, name, "gloo", ranks)


def op(
    number: int,
    issued_ns: int,
    took_ns: int = 0,
    *,
    of: int = 1,
    signature: wire.Signature = ALL_REDUCE,
    waited_ns: int = 0,
    late: bool = False,
    sync: bool = False,
    p2p: bool = False,
    tracked: bool = True,
    site: wire.Site = LINE,
) -> wire.Op:
    """One op; `took_ns` 0: it is pending."""
    done = issued_ns + took_ns if took_ns else 0
    wait = done - waited_ns if waited_ns else 0
    return wire.Op(number, of, number, signature, site, issued_ns, done, late=late, sync=sync,
                   p2p=p2p, tracked=tracked, wait_ns=wait)  # fmt: skip


def calls_of(told: wire.RankStatistics) -> Iterator[SimpleNamespace]:
    """The rows of calls one by one; `durations` are counts by bucket."""
    if (calls := told.rows) is None:
        return
    *names, _, _, _ = calls.__struct_fields__
    first, counts = added_up([calls])
    for n, values in enumerate(zip(*(getattr(calls, name) for name in names), strict=True)):
        durations = {
            bucket: count
            for bucket, count in enumerate(counts[n :: len(calls.kind)], first)
            if count
        }
        yield SimpleNamespace(**dict(zip(names, values, strict=True)), durations=durations)


def answer(
    rank: int,
    ops: Iterable[wire.Op],
    window: Window,
    *,
    groups: Sequence[wire.Group] = (group(),),
    host: str = "node0",
    clock_ns: int = 0,
    steps: Sequence[StepEnd] = (),
) -> RankAnswer:
    """What an agent tells of a rank with these ops."""
    sites = SiteTable()
    summary = RankSummary(window, window.until_ns)
    summary.add(fields_of(ops, summary.table, sites, lambda _: 4))
    for step in steps:
        summary.splitter.add_end(step)
    found = summary.build(rank, window.since_ns, 0, "")
    known = {one.id: one for one in groups}
    return RankAnswer(rank, host, clock_ns, known, found, tuple(sites.places))
