"""The process of a rank as the kernel sees it, and its children, such as DataLoader workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import structs

from frtop_probe import wire
from frtop_tui.diagnosis.evidence.gpu_activity import is_fresh, spinning
from frtop_tui.diagnosis.evidence.host_facts import HostFact, facts_for
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.diagnosis.words.fact_words import fact_text
from frtop_tui.job.device_settings import settings_of_rank
from frtop_tui.job.host_gauges import HostGauges
from frtop_tui.job.model import HostView
from frtop_tui.job.naming import printable
from frtop_tui.job.transports import of_rank
from frtop_tui.job.units import byte_size, cores, duration, percent
from frtop_tui.text.activity import cpu_share
from frtop_tui.text.reported_words import rank_reported
from frtop_tui.widgets.gauge_cells import disk_cell, memory_cell, net_cell
from frtop_tui.widgets.gauge_lines import gpu_parts
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.spans import Line, clip, fit, join, plain, reflow, tail, wrap

_NOT_MOVING: Final = frozenset({"blocked", "late", "silent", "stopped"})
"""States in which a rank's GPU should be idle. A moving rank may run small kernels."""


def gpu_lines(rank: JudgedRank, now_ns: int) -> list[Line]:
    """One line per GPU, then what is unknown about them; nothing for a rank without devices."""
    if rank.gauges is None or rank.exit_info is not None:
        return []
    host_now_ns = now_ns - rank.clock_ns
    spins = "a kernel spins" if rank.state in _NOT_MOVING else "at little power"
    lines = [_line(gpu, host_now_ns, spins) for gpu in rank.gauges.gpus]
    if rank.gauges.note:
        lines.append(plain(f"GPU: {printable(rank.gauges.note)}", "dim"))
    return lines


def _line(gpu: wire.Gpu, host_now_ns: int, low_power: str) -> Line:
    """One GPU; `low_power` are the words for one that is busy at little more than idle power."""
    title = plain(f"GPU {gpu.index}", "strong")
    name = plain(printable(gpu.name).removeprefix("NVIDIA "), "dim")
    if gpu.error:
        return join((title, name, plain(printable(gpu.error), "warn")))
    if not gpu.samples:
        return join((title, name, plain("no figures yet", "dim")))
    last = gpu.samples[-1]
    fresh = is_fresh(gpu, host_now_ns)
    age = duration(max(0, host_now_ns - last.at_ns) / 1e9)
    low = fresh and spinning(gpu) is not None
    figures = {
        "use": None if last.utilization is None else 10 * last.utilization,
        "throttle": last.throttle,
        "sm_mhz": last.sm_mhz,
        "power_mw": last.power_mw,
        "power_limit_mw": gpu.power_limit_mw,
        "mem_used": last.memory_used,
        "mem_total": gpu.memory_total or None,
    }
    return join(
        (
            title,
            plain("" if fresh else f"{age} ago:", "warn"),
            plain(low_power if low else "", "warn"),
            plain(f"shared by {gpu.processes} processes" if gpu.processes > 1 else ""),
            *gpu_parts({name: one for name, one in figures.items() if one is not None}),
            plain("MIG: figures of all parts" if gpu.mig else "", "dim"),
            name,
        )
    )


def host_summary(host: HostView, key: int) -> list[Line]:
    """One line about a rank's host; none if its agent sends no gauges, or is unreachable."""
    gauges = host.gauges
    if gauges is None or host.state != "reporting":
        return []
    values = gauges.host
    troubles = [fact_text(fact, lambda _: "") for fact in _undated(host, key)]
    return [
        join(
            (
                plain("host", "dim"),
                plain("; ".join(troubles), "warn"),
                plain(f"cpu {percent(values['cpu'] / 1000)}" if "cpu" in values else ""),
                _labelled("memory", memory_cell(gauges)[0]),
                _labelled("net", net_cell(gauges, 0)[0]),
                _labelled("disk", disk_cell(gauges)[0]),
                plain(_of_rank(gauges, key), "strong"),
            )
        )
    ]


def _undated(host: HostView, key: int) -> list[HostFact]:
    """The facts that concern a rank, without times: the hosts' screen has those."""
    return [structs.replace(fact, since_ns=0) for fact in facts_for(host, (key,))]


def _labelled(label: str, text: str) -> Line:
    return plain(f"{label} {text}" if text else "")


def _of_rank(gauges: HostGauges, key: int) -> str:
    own = next((one for one in gauges.of_kind("rank") if key in one.keys), None)
    if own is None or "cpu" not in own.values:
        return ""
    return f"this rank and its children {cores(own.values['cpu'])} cores"


PROCESS_STATES: Final = {
    "R": "running",
    "S": "sleeping",
    "D": "uninterruptible sleep",
    "T": "stopped",
    "t": "stopped by a tracer",
    "Z": "zombie",
    "X": "gone",
    "I": "idle",
}
"""Meaning of the state letters in `/proc/PID/stat`."""
TROUBLE = ("D", "T", "t", "Z", "X")
"""States that a healthy training process leaves soon."""


def system_call(process: wire.Process, room: int) -> Line:
    """`read /data/shard-0412`, or the kernel function that the main thread sleeps in."""
    if not process.syscall:
        return plain(process.wchan, "dim")
    if not process.file:
        return plain(process.syscall)
    where = tail(process.file, max(12, room - len(process.syscall) - 1))
    return plain(f"{process.syscall} {where}", "strong")


def process_lines(
    rank: JudgedRank, width: int, now_ns: int, host: HostView | None = None
) -> list[Line]:
    """The rank's own process, its GPUs, its host, then its children, the awaited worker first."""
    processes = rank.snapshot.processes if rank.snapshot is not None else ()
    own = next((p for p in processes if p.pid == rank.identity.pid), rank.process)
    if rank.exit_info is not None:
        # Its last known state would read as if it still ran.
        return [plain("its process is gone", "dim")]
    if own is None:
        return [plain("nothing known about the process yet", "dim")]
    share = cpu_share(rank.snapshot, rank.prior_snapshot, own.pid)
    state = f"{own.state} {PROCESS_STATES.get(own.state, '')}".rstrip()
    rows = [
        join(
            (
                plain(state, "warn" if own.state in TROUBLE else "strong"),
                plain("" if share is None else f"cpu {percent(share)}"),
                plain(f"rss {byte_size(own.rss)}" if own.rss else ""),
                plain(f"threads {own.threads}" if own.threads else "", "dim"),
                system_call(own, width // 2),
                plain(own.wchan if own.syscall else "", "dim"),
            )
        )
    ]
    if rank.transports:
        rows.append(plain(f"  {of_rank(rank)}", "dim"))
    reported = rank_reported(rank)
    beside = [*([plain(reported)] if reported else ()), *gpu_lines(rank, now_ns)]
    if host is not None:
        beside += host_summary(host, rank.key)
    for line in beside:
        rows += reflow(line, width, "  ")
    for one in settings_of_rank(rank):
        rows += wrap(one.sentence, width, "warn" if one.blinds else "dim", ("  ", ""))
    children = [p for p in processes if p.pid != rank.identity.pid]
    fetch = None if rank.status is None else rank.status.fetch
    awaited = fetch.worker_pid if fetch is not None and fetch.end_ns < fetch.begin_ns else 0
    children.sort(key=lambda p: (p.pid != awaited, p.state not in TROUBLE, p.pid))
    names = max([14, *(min(16, len(child.name)) for child in children)])
    for child in children:
        name = child.name or "child"
        if awaited and child.pid == awaited and fetch is not None:
            name = f"worker {fetch.worker} of {fetch.workers}"
        tone = "warn" if child.state in TROUBLE else "dim"
        share = cpu_share(rank.snapshot, rank.prior_snapshot, child.pid)
        rows.append(
            (
                ("> " if child.pid == awaited else "  ", "strong"),
                (f"{fit(name, names)} {child.pid:>7} ", "strong" if child.pid == awaited else ""),
                (f"{child.state} ", tone),
                ("     " if share is None else f"{share:>4.0%} ", "dim"),
                *system_call(child, width - names - 18),
            )
        )
    if not children and own.children:
        rows.append(plain(f"  {own.children} children, details not requested yet", "dim"))
    return rows


class ProcessPane(LineView):
    """State, memory, system call and children of the rank's process."""

    def __init__(self) -> None:
        super().__init__(id="process", classes="pane")
        self.entitle("process and children")
        self.rank: JudgedRank | None = None
        self.now_ns = 0
        self.host: HostView | None = None

    def show(self, frame: Frame, rank: JudgedRank) -> None:
        self.rank, self.now_ns = rank, frame.now_ns
        self.host = next((host for host in frame.hosts if host.name == rank.host), None)
        title = "process and children"
        fetch = None if rank.status is None else rank.status.fetch
        if fetch is not None and fetch.end_ns < fetch.begin_ns:
            since = duration(rank.age_s(fetch.begin_ns, frame.now_ns))
            title += f": waiting for data for {since}"
        self.entitle(title)
        self.redraw()

    def content(self, width: int) -> Sequence[Line]:
        rows = [] if self.rank is None else process_lines(self.rank, width, self.now_ns, self.host)
        return [clip(row, width) for row in rows]
