"""The accuracy of the shares of a step, compared with torch.profiler: DDP and FSDP2.

The profiler's phases are the program's labels around its forward and backward, and torch's labels
of fetches and optimizers. Its exposed communication is the time in which gloo works on an op while
the training thread runs no operator (`least`), or until that thread begins the next thing (`most`:
it has to get a core again). frtop reports two bounds of its own.
"""

from __future__ import annotations

import base64
import json
import sys
import time
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median
from typing import Any, Final

from bench import gloo_job
from frtop_probe import wire
from frtop_probe.statistics.steps import overlaps

RANKS: Final = 2
STEPS: Final = 60
WARM: Final = 10
WIDTH: Final = 512
LAYERS: Final = 6
ITEM_S: Final = 0.002
BUDGET_POINTS: Final = 2.0
PHASES: Final = ("data", "forward", "backward", "optimizer", "rest")
ENDS: Final = ("least", "most")
Interval = tuple[int, int]
Shares = dict[str, float]
"""The shares of one step by phase; `least` and `most` bound exposed communication, within those."""


# -- a rank


def measure(kind: str) -> dict[str, Any]:
    """Runs one rank; returns what the profiler saw of each step, and what the ring has."""
    import torch  # noqa: PLC0415 - only the ranks need torch
    import torch.distributed as dist  # noqa: PLC0415
    from torch.profiler import ProfilerActivity, profile, record_function  # noqa: PLC0415
    from torch.utils.data import DataLoader, Dataset  # noqa: PLC0415

    from frtop_probe.recorder.process.lifecycle import lifecycle  # noqa: PLC0415

    class Items(Dataset[torch.Tensor]):
        def __len__(self) -> int:
            return 4 * (WARM + STEPS)

        def __getitem__(self, index: int) -> torch.Tensor:
            time.sleep(ITEM_S)
            return torch.full((WIDTH,), float(index % 5))

    lifecycle.start()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = _model(torch, kind)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    batches = iter(DataLoader(Items(), batch_size=4))

    def step() -> None:
        batch = next(batches).repeat(64, 1)
        with record_function("the forward"):
            loss = model(batch).square().mean()
        with record_function("the backward"):
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(WARM):
        step()
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        for _ in range(STEPS):
            step()
    told = _told(lifecycle)
    dist.barrier()
    dist.destroy_process_group()
    return {"truth": _truth(profiled.events()), "told": told}


def _model(torch: Any, kind: str) -> Any:
    torch.manual_seed(0)
    layers = [
        layer for _ in range(LAYERS) for layer in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU())
    ]
    model = torch.nn.Sequential(*layers)
    if kind == "ddp":
        return torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=1)
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415
    from torch.distributed.fsdp import fully_shard  # noqa: PLC0415

    mesh = init_device_mesh("cpu", (RANKS,))
    for layer in layers[::2]:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def _told(lifecycle: Any) -> str:
    """What the agent would report of this rank's steps."""
    from frtop_probe.agent.ring_rank import RingRank  # noqa: PLC0415
    from frtop_probe.agent.statistics_requests import ring_statistics  # noqa: PLC0415
    from frtop_probe.ring.reader import Ring  # noqa: PLC0415
    from frtop_probe.statistics.calls import SiteTable  # noqa: PLC0415
    from frtop_probe.statistics.rank_summary import Window  # noqa: PLC0415

    sites, now = SiteTable(), time.monotonic_ns()
    ring = Ring(lifecycle.recorder.ring.path)
    work = ring_statistics(
        RingRank(0, ring, lives=True, pidfd=None), Window(0, now, steps=4096), sites, now
    )
    while True:
        try:
            next(work)
        except StopIteration as end:
            response = wire.StatisticsResponse(1, "", 0, now, (end.value,), tuple(sites.places))
            return base64.b64encode(wire.encode(response)).decode()


def _truth(events: Iterable[Any]) -> list[Shares]:
    """The shares of each step, by the profiler's events."""
    named: dict[str, list[Interval]] = {name: [] for name in (*PHASES, "gloo", "operators")}
    known = list(events)
    (thread,) = {event.thread for event in known if event.name == "the backward"}
    for event in known:
        phase = _phase(event.name)
        if event.thread != thread and phase != "gloo":
            continue  # gloo's threads run operators, too
        begin, end = round(event.time_range.start * 1000), round(event.time_range.end * 1000)
        named[phase].append((begin, end))
    begins = sorted(begin for name in named if name != "gloo" for begin, _ in named[name])
    awake = [(begin, _next(begins, end)) for begin, end in named["gloo"]]
    ends = sorted(end for _, end in named["optimizer"])
    bounds = list(pairwise(ends))
    covered = {name: overlaps(bounds, spans) for name, spans in named.items()}
    least = _apart(bounds, named["gloo"], named["operators"])
    most = _apart(bounds, awake, named["operators"])
    found = []
    for place, (begin, end) in enumerate(bounds):
        shares = {name: covered[name][place] / (end - begin) for name in PHASES}
        shares["rest"] = 1 - sum(shares[name] for name in PHASES[:-1])
        shares["least"] = least[place] / (end - begin)
        shares["most"] = most[place] / (end - begin)
        found.append(shares)
    return found


def _next(begins: Sequence[int], end: int) -> int:
    place = bisect_left(begins, end)
    return begins[place] if place < len(begins) else end


def _apart(
    bounds: Sequence[Interval], spans: Sequence[Interval], others: Sequence[Interval]
) -> list[int]:
    """How much of each of `bounds` the spans cover and the others do not, in ns."""
    both, alone = overlaps(bounds, [*spans, *others]), overlaps(bounds, others)
    return [one - other for one, other in zip(both, alone, strict=True)]


def _phase(name: str) -> str:
    if name.startswith("gloo:"):
        return "gloo"
    if name.startswith("aten::"):
        return "operators"
    for part, phase in (("DataLoader", "data"), ("Optimizer.step", "optimizer"),
                        ("the forward", "forward"), ("the backward", "backward")):  # fmt: skip
        if part in name:
            return phase
    return "rest"


# -- the comparison


def main() -> None:
    """Prints by how many percentage points frtop's shares differ from the profiler's."""
    print(f"shares of a step, frtop beside torch.profiler: {STEPS} steps of {RANKS} ranks on gloo, "
          f"percentage points (budget {BUDGET_POINTS})")  # fmt: skip
    print(f"{'step':<7}{'share':<16}{'profiler':>9}{'frtop':>9}{'off: median':>13}{'worst':>8}")
    for kind in ("ddp", "fsdp2"):
        printed = gloo_job.run(
            "bench.step_shares", kind, ranks=RANKS, variables={"FRTOP_PHASES": "1"}
        )
        pairs = [pair for out in printed for pair in _pairs(json.loads(out.splitlines()[-1]))]
        for name in PHASES:
            _row(kind, name, pairs, [abs(ours[name] - truth[name]) for truth, ours in pairs])
        _communication(kind, pairs)


def _communication(kind: str, pairs: Sequence[tuple[Shares, Shares]]) -> None:
    sides = [
        " to ".join(f"{100 * median(pair[side][end] for pair in pairs):.1f}" for end in ENDS)
        for side in (0, 1)
    ]
    off = [max(0.0, ours["least"] - truth["most"], truth["least"] - ours["most"])
           for truth, ours in pairs]  # fmt: skip
    print(f"{kind:<7}{'communication':<14}{sides[0]:>12} %{sides[1]:>14} %, "
          f"apart by {100 * median(off):.2f}, worst {100 * max(off):.2f}")  # fmt: skip


def _row(kind: str, name: str, pairs: Sequence[tuple[Shares, Shares]], off: list[float]) -> None:
    theirs, ours = (100 * median(pair[side][name] for pair in pairs) for side in (0, 1))
    print(f"{kind:<7}{name:<16}{theirs:>7.1f} %{ours:>7.1f} %{100 * median(off):>13.2f}"
          f"{100 * max(off):>8.2f}")  # fmt: skip


def _pairs(rank: dict[str, Any]) -> list[tuple[Shares, Shares]]:
    """The shares of each step, by the profiler and by frtop."""
    from frtop_tui.statistics.answers import RankAnswer  # noqa: PLC0415

    told = wire.decode_response(base64.b64decode(rank["told"]))
    assert isinstance(told, wire.StatisticsResponse)
    steps = RankAnswer(0, "", 0, {}, told.ranks[0], told.sites).steps()
    truth: list[Shares] = rank["truth"]
    pairs = []
    for theirs, step in zip(truth, steps[-len(truth) :], strict=True):
        known = {name: (getattr(step, f"{name}_ns") or 0) / step.took_ns for name in PHASES[:-1]}
        known["rest"] = 1 - sum(known.values())
        known["least"] = step.blocked_ns / step.took_ns
        known["most"] = step.pending_ns / step.took_ns
        pairs.append((theirs, known))
    return pairs


if __name__ == "__main__":
    if len(sys.argv) > 1:
        gloo_job.report(measure(sys.argv[1]))
    else:
        main()
