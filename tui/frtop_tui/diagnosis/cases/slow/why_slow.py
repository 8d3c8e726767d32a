"""Why a rank is slow: what takes its time, by steps, looks and gauges; else unknown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import attrgetter, or_
from statistics import median
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.diagnosis.cases.slow.gpu_use import LowGpuUse, low_gpu_use
from frtop_tui.diagnosis.cases.slow.host_evidence import HostEvidence, host_evidence
from frtop_tui.diagnosis.cases.slow.late_ranks import LateRanks
from frtop_tui.diagnosis.cases.slow.looks import Looks, WaitSeen
from frtop_tui.diagnosis.cases.slow.parts import device_ns, excess_ns, step_ns
from frtop_tui.diagnosis.causes import SlowWord
from frtop_tui.diagnosis.evidence.absence_cause import LOADS_ITSELF
from frtop_tui.diagnosis.evidence.host_facts import HostFact
from frtop_tui.diagnosis.evidence.rank_activity import working_location
from frtop_tui.diagnosis.evidence.stack_location import StackLocation
from frtop_tui.diagnosis.thresholds import EXPLAINED_SHARE, GAUGED_NS, THROTTLED_CLOCK
from frtop_tui.job.model import BaseFrame, Rank
from frtop_tui.job.statistics import JobStatistics


def looked(views: Sequence[Rank], others: Sequence[Rank]) -> dict[str, float | None]:
    """What two looks at each rank show about processors."""
    apart = [seconds for view in views if (seconds := _apart_ns(view) / 1e9)]
    return {
        "cpu": _median_of(_cores, views),
        "cpu_others": _median_of(_cores, others),
        "ready": _median_of(ready_share, views),
        "ready_others": _median_of(ready_share, others),
        "seconds": min(apart, default=0.0),
    }


def _median_of(figure: Callable[[Rank], float | None], views: Sequence[Rank]) -> float | None:
    known = [value for value in map(figure, views) if value is not None]
    return median(known) if known else None


def _apart_ns(view: Rank) -> int:
    new, old = view.snapshot, view.prior_snapshot
    return new.at_ns - old.at_ns if new is not None and old is not None else 0


def _cores(view: Rank) -> float | None:
    """Cores that a rank's own process used between two looks."""
    new, old = _in_both(view, lambda look: look.processes)
    apart_ns = _apart_ns(view)
    if new is None or old is None or apart_ns <= 0:
        return None
    return max(0, new.cpu_ns - old.cpu_ns) / apart_ns


def ready_share(view: Rank) -> float | None:
    """Share of the time between two looks in which the main thread could run, and did not."""
    new, old = _in_both(view, lambda look: look.threads)
    apart_ns = _apart_ns(view)
    if new is None or old is None or apart_ns <= 0 or min(new.ready_ns, old.ready_ns) < 0:
        return None
    # Up to its last turn: a present wait for a processor is not counted yet.
    ready_ns = new.ready_ns - old.ready_ns
    return min(1.0, max(0, ready_ns - (new.cpu_ns - old.cpu_ns)) / apart_ns)


def _in_both(
    view: Rank, of: Callable[[wire.Snapshot], Iterable[wire.Process]]
) -> Iterator[wire.Process | None]:
    """The rank's process, or its main thread, in the last look and the one before."""
    for look in (view.snapshot, view.prior_snapshot):
        listed = of(look) if look is not None else ()
        yield next((one for one in listed if one.pid == view.identity.pid), None)


_OF_TURNS: Final = frozenset({"cpu pressure", "held back"})
"""Facts that make threads wait for their turn, which the kernel counts per thread."""
MOST_COMPARED: Final = 64
"""How many others to compare looks and gauges with: more show the same."""


class SlowCause(Struct, frozen=True):
    """Why ranks are slow, and the figures; `*_others` are those of their peers."""

    cause: SlowWord = "unknown"
    data_ns: int | None = None  # how much longer its fetches take per step
    loads_itself: bool | None = None  # whether the rank loads its batches itself, if known
    # how much longer forward, backward and optimizer take per step; None if processor time shows
    # the cause instead
    device_ns: int | None = None
    cpu: float | None = None  # cores in use
    cpu_others: float | None = None
    # share of the time in which its main thread was ready, but had no processor
    ready: float | None = None
    ready_others: float | None = None
    gpu: wire.Gpu | None = None  # the one that is slow, or shared
    mhz: int = 0  # its clock
    mhz_others: int = 0
    throttle: int = 0  # NVML's reasons, as bits
    strangers: int = 0  # processes on the GPU that are not the job's
    wait: WaitSeen | None = None  # where several looks found it
    location: StackLocation | None = None  # where its working thread was in the last look
    seconds: float = 0.0  # between the two looks
    step_ns: int | None = None  # how long a step takes; None if steps are not recorded
    fact: HostFact | None = None  # about its host, that shows the cause or details
    context: tuple[HostFact, ...] = ()  # facts that hold for others as well
    gpu_use: tuple[LowGpuUse, ...] = ()  # low use of GPUs, whatever the cause

    @property
    def awaits_remote_call(self) -> bool:
        """Whether all that is known is that it waits for its callee, which may be the slow one."""
        at = self.location
        return self.cause == "unknown" and at is not None and at.kind == "rpc"


def cause_of(
    statistics: JobStatistics, found: LateRanks, frame: BaseFrame, looks: Looks
) -> SlowCause:
    """What takes the time of late ranks: the deepest cause that explains most of it."""
    ranks, now_ns = frame.ranks, frame.now_ns
    views = [ranks[rank] for rank in found.ranks if rank in ranks]
    others = [ranks[one] for one in found.members if one not in found.ranks and one in ranks]
    others = others[:MOST_COMPARED]
    took = step_ns(statistics, found.members, found.since_ns)
    gauges = host_evidence(views, others, frame.hosts, found.since_ns, found.until_ns)
    location = next(filter(None, map(working_location, views)), None)
    seen = SlowCause(location=location, step_ns=took, context=gauges.context)
    seen = replace(seen, **looked(views, others))
    gpu_use = low_gpu_use(views, others, ranks, statistics, looks=looks, now_ns=now_ns,
                          ready=seen.ready, cores=seen.cpu)  # fmt: skip
    seen = replace(seen, gpu_use=gpu_use)
    wanted = EXPLAINED_SHARE * max(found.share, found.most_share)
    on_time = (rank for rank in found.members if rank not in found.ranks)
    seen = replace(seen, wait=looks.wait_of(found.ranks, on_time, wanted))
    if took:
        of_steps = {
            name: excess_ns(statistics, found.ranks, found.members, found.since_ns, of)
            for name, of in (("data_ns", attrgetter("data_ns")), ("device_ns", device_ns))
        }
        seen = replace(seen, loads_itself=_loads_itself(views), **of_steps)
    late = _Lateness(seen, gauges, wanted, _gpus(views, others, ranks, now_ns))
    return next(filter(None, (rule(late) for rule in _RULES)), seen)


class _Lateness(NamedTuple):
    """What is known about late ranks; a cause has to account for `wanted` of the time."""

    seen: SlowCause
    gauges: HostEvidence
    wanted: float
    gpus: dict[str, object] | None

    def explains(self, excess_ns: int | None) -> bool:
        """Whether this excess per step is most of the lateness."""
        took = self.seen.step_ns
        return bool(took) and (excess_ns or 0) >= self.wanted * (took or 0)


def _starved(late: _Lateness) -> SlowCause | None:
    """It lacks processors, by looks at its main thread or by gauges of its host.

    A main thread that had its processor is not starved by its container's limit, but its loader's
    workers may be.
    """
    seen, fact = late.seen, late.gauges.of_cause("starved", late.wanted)
    if seen.ready is not None and seen.ready - (seen.ready_others or 0.0) >= late.wanted:
        return replace(seen, cause="starved", fact=fact)
    had_its_turn = seen.ready is not None and fact is not None and fact.kind in _OF_TURNS
    if fact is None or (had_its_turn and not late.explains(seen.data_ns)):
        return None
    return replace(seen, cause="starved", fact=fact, ready=None)


def _by_gpu(late: _Lateness) -> SlowCause | None:
    """Its GPU is slowed down or shared, as NVML or a comparison with others' clocks shows."""
    if late.gpus is not None:
        return replace(late.seen, **late.gpus)
    words: tuple[SlowWord, ...] = ("throttled", "neighbour")
    facts = ((word, late.gauges.of_cause(word)) for word in words)
    return next((replace(late.seen, cause=w, fact=fact) for w, fact in facts if fact), None)


def _by_steps(late: _Lateness) -> SlowCause | None:
    """What takes longer in each of its steps."""
    if late.explains(late.seen.data_ns):
        return replace(late.seen, cause="data", fact=late.gauges.of_cause("data"))
    if late.explains(late.seen.device_ns):
        return replace(late.seen, cause="compute")
    return None


def _by_disk(late: _Lateness) -> SlowCause | None:
    fact = late.gauges.of_cause("data", late.wanted)
    return replace(late.seen, cause="data", fact=fact) if fact is not None else None


def _by_processor_time(late: _Lateness) -> SlowCause | None:
    """It uses more than the others between two looks."""
    cpu, others = late.seen.cpu, late.seen.cpu_others
    if cpu is None or others is None or cpu - others < late.wanted:
        return None
    return replace(late.seen, cause="compute", device_ns=None)


def _by_looks(late: _Lateness) -> SlowCause | None:
    """It waits for something other than ranks."""
    wait = late.seen.wait
    return replace(late.seen, cause=wait.cause) if wait is not None else None


def _by_network(late: _Lateness) -> SlowCause | None:
    """Its host's links are in trouble, and nothing else shows."""
    fact = late.gauges.of_cause("network")
    return replace(late.seen, cause="network", fact=fact) if fact is not None else None


_RULES: Final = (
    _starved, _by_gpu, _by_steps, _by_disk, _by_processor_time, _by_looks, _by_network,
)  # fmt: skip
"""The deepest cause first, the least certain last."""


def _loads_itself(views: Sequence[Rank]) -> bool | None:
    fetches = [view.status.fetch for view in views if view.status and view.status.fetch]
    return fetches[0].worker == LOADS_ITSELF if fetches else None


def _gpus(
    views: Sequence[Rank], others: Sequence[Rank], ranks: Mapping[int, Rank], now_ns: int
) -> dict[str, object] | None:
    """A GPU of theirs that is slowed down or used by others, unlike those of the other ranks."""
    theirs, compared = _busy(views, now_ns), _busy(others, now_ns)
    if not theirs:
        return None
    own = Counter(_gpu_key(view, gpu) for view in ranks.values() for gpu in _gpus_of(view))
    usual = [mhz for _, _, mhz in compared if mhz]
    shared = any(gpu.processes > own[_gpu_key(view, gpu)] for view, gpu, _ in compared)
    for view, gpu, mhz in theirs:
        strangers = gpu.processes - own[_gpu_key(view, gpu)]
        if strangers > 0 and not shared:
            return {"cause": "neighbour", "gpu": gpu, "strangers": strangers}
        if mhz and usual and mhz < THROTTLED_CLOCK * median(usual):
            bits = reduce(or_, (sample.throttle or 0 for sample in gpu.samples))
            clocks = {"mhz": round(mhz), "mhz_others": round(median(usual))}
            return {"cause": "throttled", "gpu": gpu, "throttle": bits, **clocks}
    return None


def _busy(views: Sequence[Rank], now_ns: int) -> list[tuple[Rank, wire.Gpu, float | None]]:
    """GPUs with recent samples, and their median clock while kernels ran."""
    found = []
    for view in views:
        for gpu in _gpus_of(view):
            fresh = [one for one in gpu.samples if now_ns - view.clock_ns - one.at_ns < GAUGED_NS]
            if fresh and not gpu.mig and not gpu.error:
                clocks = [one.sm_mhz for one in fresh if one.sm_mhz and one.utilization]
                found.append((view, gpu, median(clocks) if clocks else None))
    return found


def _gpus_of(view: Rank) -> tuple[wire.Gpu, ...]:
    return view.gauges.gpus if view.gauges is not None else ()


def _gpu_key(view: Rank, gpu: wire.Gpu) -> tuple[str, str, int]:
    return view.host, gpu.uuid, gpu.index
