"""Words for stragglers and slow links: how late, what it costs all ranks, and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, cast

from msgspec.structs import replace

from frtop_tui.diagnosis.cases.slow.detect import LateDetail, LinkDetail
from frtop_tui.diagnosis.cases.slow.gpu_use import IdleReason, LowGpuUse
from frtop_tui.diagnosis.cases.slow.looks import WAITS
from frtop_tui.diagnosis.cases.slow.why_slow import SlowCause
from frtop_tui.diagnosis.causes import CAUSES, LOCATIONS, SlowWord
from frtop_tui.diagnosis.evidence.host_facts import FactKind, HostFact
from frtop_tui.diagnosis.finding import Finding
from frtop_tui.diagnosis.model import Sentences, Slowness, Why
from frtop_tui.diagnosis.words.absence import stacks_step
from frtop_tui.diagnosis.words.fact_words import fact_text
from frtop_tui.diagnosis.words.phrases import Tense, who
from frtop_tui.job.gpus import throttle_text
from frtop_tui.job.model import BaseFrame, Rank
from frtop_tui.job.naming import group_label, printable
from frtop_tui.job.stack_frames import site_line
from frtop_tui.job.units import byte_size, counted, duration, percent, timing


def lost_words(slow: Slowness) -> str:
    """`13 % of the time`; with the time per step, if that is more than the lateness at one op.

    A rank that is 6 ms late at each of 25 ops costs 150 ms per step.
    """
    words = f"{_share(slow)} of the time"
    lost_ns = _lost_of_step_ns(slow)
    return f"{words}, {timing(lost_ns)} of each step" if lost_ns > 1.5 * slow.late_ns else words


def cost_words(slow: Slowness) -> str:
    """`13 % of the time: 150 ms of each step of 1.20 s; 127 ranks have lost 9.8 GPU hours`."""
    step = ""
    if slow.step_ns:
        lost = timing(_lost_of_step_ns(slow))
        step = f": {lost} of each step of {timing(slow.step_ns)}"
    hours = slow.lost_ns / 3.6e12
    kind = "GPU" if slow.on_gpus else "rank"
    figure = f"{hours:.1f} {kind} hours" if hours >= 1 else f"{60 * hours:.1f} {kind} minutes"
    least = "at least " if slow.at_least or slow.most_share else ""
    have = "ranks have" if slow.waiting != 1 else "rank has"
    return f"{_share(slow)} of the time{step}; {slow.waiting} {have} lost {least}{figure}"


def _share(slow: Slowness) -> str:
    """`13 %`; `6 to 48 %` if only some ops were sampled and the others are unknown."""
    least, most = percent(slow.share), percent(slow.most_share)
    is_open = slow.most_share and least != most
    return f"{least.removesuffix(' %')} to {most}" if is_open else least


def _lost_of_step_ns(slow: Slowness) -> float:
    """How long the others wait per step; 0 if steps are not recorded."""
    return slow.share * (slow.step_ns or 0)


MOST_CONTEXT: Final = 4
_STEPS: Final[dict[FactKind, str]] = {
    "held back": "raise the limit of its cgroup (cpu.max, --cpus), or start fewer threads in it",
    "cpu pressure": "top on its host: does something else compute there? are ranks pinned?",
    "cpu stolen": "ask who runs the hypervisor: it gives this machine's processors to others",
    "memory pressure": "free -m and vmstat 1 on its host: what else uses its memory?",
}


def late(finding: Finding, detail: LateDetail, frame: BaseFrame, tense: Tense) -> Sentences:
    """Which ranks arrive late, op after op."""
    seen, slowness = detail.late, detail.slowness
    ranks = finding.culprits
    one = len(ranks) == 1
    is_one = "is a straggler: it arrives" if one else "are stragglers: they arrive"
    was_one = "was a straggler: it arrived" if one else "were stragglers: they arrived"
    arrives = tense.of(is_one, was_one)
    label = group_label(seen.group.name, _description(frame, finding))
    head = (
        f"{who(frame.ranks, ranks)} {arrives} {timing(seen.late_ns)} late at"
        f" {seen.kind} of {label}, in {_counted(detail)}"
    )
    line = f" at {site_line(seen.site)}" if seen.site is not None else ""
    clocks = f", clocks ±{timing(seen.error_ns)}" if seen.error_ns else ""
    lateness = (
        f"late in {_of_ops(slowness)} of {label}{line}:"
        f" {timing(seen.late_ns)} after the others (median{clocks})"
    )
    evidence = [
        lateness,
        *_processors(detail.why),
        *map(_gpu_use, detail.why.gpu_use),
        *_context(detail.why),
    ]
    views = [frame.ranks[rank] for rank in ranks if rank in frame.ranks]
    text, step = _REASONS[detail.why.cause](detail.why, views[0] if views else None)
    waiting = f"{tense.waits(finding.victims)}: {lost_words(slowness)}"
    why = Why.of(detail.why.cause, text)
    return Sentences(head, why, step, tuple(evidence), tuple(_missing(detail.why)), waiting)


def _of_ops(slowness: Slowness) -> str:
    if slowness.sampled == 1:
        return "the only sampled op"
    return f"{slowness.late} of the last {counted(slowness.sampled, 'sampled op')}"


def _counted(detail: LateDetail) -> str:
    """In how many ops; if only its steps show it, in how many steps."""
    seen = detail.late
    if seen.steps:
        return f"{seen.late_steps} of the last {counted(seen.steps, 'step')}"
    return _of_ops(detail.slowness)


def slow_link(finding: Finding, detail: LinkDetail, frame: BaseFrame, tense: Tense) -> Sentences:
    """Ops that take long although all ranks arrive together."""
    link, slowness = detail.link, detail.slowness
    if link.common:
        where = who(frame.ranks, link.ranks)
        if link.host and len(link.ranks) > 1:
            where = f"host {link.host} ({where})"
        where = f"of {where}"
    else:
        where = f"between {' and '.join(f'rank {rank}' for rank in link.ranks)}"
    longer = link.transfer_ns / max(1, link.usual_ns)
    head = (
        f"the link {where} {tense.of('is', 'was')} slow: {link.kind} there"
        f" {tense.of('takes', 'took')} {timing(link.transfer_ns)}, {longer:.1f} times as long"
        " as in similar groups"
    )
    slow = len(link.groups)
    transfers = (
        f"{slow} of {link.alike} similar groups: {timing(link.transfer_ns)} from the last"
        f" arrival to the end, {timing(link.usual_ns)} in the others"
        f" (medians of {link.kind}, {byte_size(link.bytes)})"
    )
    evidence = [
        transfers,
        f"its members arrive within {timing(link.skew_ns)}: none of them is late",
        *_context(detail.why),
    ]
    cause = detail.why.cause
    if cause == "starved":
        text, step = _starved(detail.why, None)
    elif cause == "network":
        fact = f": {_undated(detail.why.fact)}" if detail.why.fact is not None else ""
        text = f"the others move the same data faster, and no late rank explains it{fact}"
        step = f"{CAUSES['network'].step}, traffic"
    else:
        text = "all its ranks are on one host, so it is not the network; cause not found"
        step = "compare what these ranks share on the host: memory, PCIe, processors"
    why = Why.of(cause, text)
    missing = () if link.common else ("at which end: the two share no other group",)
    waiting = f"{tense.waits(finding.victims)}: {lost_words(slowness)}"
    return Sentences(head, why, step, tuple(evidence), missing, waiting)


def _processors(why: SlowCause) -> list[str]:
    """What two looks show, whatever the cause."""
    lines = []
    if why.cpu is not None and why.cpu_others is not None:
        lines.append(
            f"it uses {why.cpu:.2f} cores, the others {why.cpu_others:.2f}"
            f" (over {duration(why.seconds)})"
        )
    if why.ready is not None and why.cause != "starved" and why.ready >= 0.01:
        lines.append(f"its main thread waited for a processor {percent(why.ready)} of the time")
    return lines


def _gpu_use(seen: LowGpuUse) -> str:
    """`GPU 3 is 12 % busy, those of the others 81 %: its host waits for data 70 % of the time`."""
    if seen.gpu is None:
        text = f"the GPUs of the others are {seen.use} % busy"
        return f"{text}: their hosts wait for other ranks {percent(seen.share)} of the time"
    text = f"GPU {seen.gpu} is {seen.use} % busy"
    if seen.others is not None:
        text += f", those of the others {seen.others} %"
    computes = f"computes all the time ({seen.cores:.2f} cores)"
    reasons: dict[IdleReason, str] = {
        "data": f"its host waits for data {percent(seen.share)} of the time",
        "starved": f"its main thread has no processor {percent(seen.share)} of the time",
        "ranks": f"its host waits for other ranks {percent(seen.share)} of the time",
        "launches": f"its host does not start kernels fast enough: it {computes}, and was in"
        f" torch's code in {seen.in_torch} of {counted(seen.looks, 'look')}",
        "host": f"its host is behind: it {computes}",
    }
    return f"{text}: {reasons[seen.reason]}" if seen.reason else text


def _context(why: SlowCause) -> list[str]:
    """Facts that hold, or may hold, for ranks on time as well."""
    return [
        f"on its host: {_undated(fact)}; other ranks may be affected as well"
        for fact in why.context[:MOST_CONTEXT]
    ]


def _undated(fact: HostFact) -> str:
    return fact_text(replace(fact, since_ns=0), lambda _: "")


def _missing(why: SlowCause) -> list[str]:
    """What would have shown the cause."""
    missing = []
    if why.cause == "unknown":
        if why.step_ns is None:
            missing.append(
                "steps, and how much of them is data loading: no optimizer, no frtop_probe.step()"
            )
        elif why.data_ns is None:
            missing.append("whether data is late: no DataLoader fetches are recorded")
        if why.cpu is None or why.cpu_others is None:
            missing.append("processor time: it and others have not been looked at twice yet")
    return missing


def _data(why: SlowCause, _: Rank | None) -> tuple[str, str]:
    if why.fact is not None and not why.data_ns:
        text = f"it may wait for data: {_undated(why.fact)}, unlike the ranks that are on time"
        return text, "what reads and writes there: iotop, nfsstat; where its data is stored"
    where = {True: ", in the rank itself", False: ", by its DataLoader workers", None: ""}
    text = (
        f"its batches take {timing(why.data_ns or 0)} longer in each step than those of the"
        f" others{where[why.loads_itself]}"
        f"{f'; {_undated(why.fact)}' if why.fact is not None else ''}"
    )
    ahead = "load in workers (num_workers), and ahead (prefetch_factor)"
    return text, ahead if why.loads_itself else CAUSES["data"].step


def _compute(why: SlowCause, view: Rank | None) -> tuple[str, str]:
    if why.device_ns:
        longer = timing(why.device_ns)
        text = f"its forward, backward and optimizer take {longer} longer in each step"
    else:
        text = "it computes longer than the others between ops"
    return text, f"what it does there: {_stacks(view)}; does it get more work than the others?"


def _starved(why: SlowCause, _: Rank | None) -> tuple[str, str]:
    fact = why.fact
    turns = (
        f"its main thread was ready, but had no processor, {percent(why.ready)} of the time"
        if why.ready is not None
        else "it lacks processors, unlike the ranks that are on time"
    )
    if fact is None:
        text = f"{turns}: a container's limit, or a full host"
        step = "cat /sys/fs/cgroup/cpu.stat in its container (nr_throttled), and top on its host"
        return text, step
    if fact.kind == "memory pressure":
        turns = "its host lacks memory, unlike the hosts of ranks that are on time"
    return f"{turns}: {_undated(fact)}", _STEPS.get(fact.kind, "top on its host")


def _throttled(why: SlowCause, view: Rank | None) -> tuple[str, str]:
    gpu, reason = _gpu(why), throttle_text(why.throttle)
    if why.fact is not None:
        text = f"throttled: {_undated(why.fact)}; those of the others are not slowed down"
    else:
        text = (
            f"throttled: GPU {gpu} runs at {why.mhz:,} MHz, those of the others at"
            f" {why.mhz_others:,} MHz{f': {reason}' if reason else ''}"
        )
    return text, f"nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER -i {gpu} on {_host(view)}"


def _neighbour(why: SlowCause, view: Rank | None) -> tuple[str, str]:
    gpu, compute = _gpu(why), "computes" if why.strangers == 1 else "compute"
    text = f"{counted(why.strangers, 'other process')} {compute} on GPU {gpu}"
    if why.fact is not None:
        text = _undated(why.fact)
    return text, f"nvidia-smi -i {gpu} on {_host(view)} lists them"


def _gpu(why: SlowCause) -> str:
    if why.fact is not None:
        return printable(why.fact.subject)
    return str(why.gpu.index if why.gpu is not None else 0)


def _waits(why: SlowCause, view: Rank | None) -> tuple[str, str]:
    wait = why.wait
    if wait is None:
        return _unknown(why, view)
    text = (
        f"it {LOCATIONS[wait.kind].text.rstrip(':,')} at {wait.line}, in {wait.there} of"
        f" {counted(wait.looks, 'look')}; the others in {wait.others_there} of {wait.others_looks}"
    )
    return text, f"look at {wait.line}"


def _network(why: SlowCause, view: Rank | None) -> tuple[str, str]:
    if why.fact is None:
        return _unknown(why, view)
    text = f"perhaps its host's network: {_undated(why.fact)}; not on the hosts of the others"
    return text, f"{CAUSES['network'].step}; what it waits for: {_stacks(view)}"


def _unknown(why: SlowCause, view: Rank | None) -> tuple[str, str]:
    line = why.location.line if why.location is not None else ""
    place = f"; its stack was last at {line}" if line else ""
    return f"cause not found{place}", _samples(view)


def _samples(view: Rank | None) -> str:
    """For a rank that moves: a single stack shows little."""
    step = _stacks(view)
    if view is None or not view.identity.pid or not step.startswith("py-spy dump"):
        return step
    return (
        f"r on rank {view.rank}: ten seconds of its stacks as a tree; without a screen"
        f"{f', on {printable(view.host)}' if view.host else ''}:"
        f" py-spy record -d 10 -f raw -o stacks.txt --pid {view.identity.pid}"
    )


def _stacks(view: Rank | None) -> str:
    return stacks_step(view) if view is not None else "py-spy dump --pid PID on its host"


def _host(view: Rank | None) -> str:
    return printable(view.host) if view is not None and view.host else "its host"


def _description(frame: BaseFrame, finding: Finding) -> str:
    found = (group.description for group in frame.groups if group.key == finding.group)
    return next(found, "")


_REASONS: Final[Mapping[SlowWord, Callable[[SlowCause, Rank | None], tuple[str, str]]]] = {
    "data": _data,
    "compute": _compute,
    "starved": _starved,
    "throttled": _throttled,
    "neighbour": _neighbour,
    "network": _network,
    **{cast("SlowWord", LOCATIONS[kind].cause): _waits for kind in WAITS},
    "unknown": _unknown,
}
