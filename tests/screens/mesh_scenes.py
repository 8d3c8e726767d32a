"""A job on a mesh pp 4 x dp 4 x tp 8, out of the demo's script: it hangs, or is slow."""

from __future__ import annotations

from functools import cache

from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.demo.scripted.counts import Counts
from frtop_tui.demo.scripted.ranks import HostRanks
from frtop_tui.demo.scripted.script import MS, SECOND, Script, ScriptedMesh
from frtop_tui.demo.scripted.service import rank_answer
from frtop_tui.diagnosis.engine import Engine
from frtop_tui.diagnosis.model import Frame, observed
from frtop_tui.job.model import HostView
from frtop_tui.job.state import JobState
from frtop_tui.statistics.answers import answers_of
from frtop_tui.statistics.merger import StatisticsMerger

RANKS = 128
BEGIN = 10_000 * SECOND
WALL = 1_790_000_000 * SECOND


@cache
def mesh_hung() -> Frame:
    """A DataLoader worker of one rank is stuck; all others wait for it through three groups."""
    return _watched("stall", 40.0)


@cache
def mesh_slow_told() -> Frame:
    """One rank comes late to each step: what agents tell of the last minute, and the verdict."""
    script = Script(ScriptedMesh.of(RANKS), "slow", BEGIN - 90 * SECOND)
    frame = _watched("none", 3.5)
    now, merger = BEGIN + 3 * SECOND, StatisticsMerger()
    hosts = [HostRanks(script, index) for index in range(script.shape.hosts)]
    for number in range(6):
        end = now - (5 - number) * 10 * SECOND
        merger.begin(number, end - 10 * SECOND, end)
        for host in hosts:
            since, until = end - 10 * SECOND + host.skew_ns, end + host.skew_ns
            keys = tuple(rank + 1 for rank in host.ranks)
            request = wire.StatisticsRequest(1, keys, since, until, True, 32, 16)
            views = {rank + 1: frame.ranks[rank] for rank in host.ranks}
            for _, answer in answers_of(views, Counts(host).answer(request, now)):
                merger.add(number, answer)
    found = merger.build({view.name: 0 for view in frame.hosts}, frame.ranks)
    assert found is not None
    frame = replace(frame, statistics=replace(found, until_ns=frame.now_ns))
    return Engine().judge(observed(frame)).frame


def _watched(fault: str, seconds: float) -> Frame:
    """The last frame of some seconds, received tick by tick, with its wait-for graph."""
    script = Script(ScriptedMesh.of(RANKS), fault, BEGIN)
    hosts = {f"node{n}": HostRanks(script, n) for n in range(script.shape.hosts)}
    state, engine = JobState(), Engine(explain=True)
    frame = None
    for tick in range(1, int(seconds) + 1):
        now = BEGIN + tick * SECOND + 500 * MS
        for name, host in hosts.items():
            ranks = host.changes(now) if tick > 1 else host.state(now)
            at = now + host.skew_ns
            update = wire.Update(name, name, tick, at, WALL, ranks, full=tick == 1)
            assert state.apply(name, update, now)
        judgement = engine.judge(state.frame(now, WALL))
        for look in judgement.look_requests:
            request = wire.SnapshotRequest(1, (look.key,), look.stacks, 32)
            answer = rank_answer(hosts[look.host], request, now)
            assert isinstance(answer, wire.SnapshotResponse)
            state.apply_snapshots(look.host, answer)
        frame = judgement.frame
    assert frame is not None
    views = tuple(HostView(name, "reporting", reported_ns=frame.now_ns) for name in hosts)
    return replace(frame, hosts=views)


SCENES = {"mesh_hung": mesh_hung, "mesh_slow_told": mesh_slow_told}
