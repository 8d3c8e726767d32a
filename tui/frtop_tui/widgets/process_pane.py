"""The process of a rank as the kernel sees it, and its children, such as DataLoader workers."""

from __future__ import annotations

from collections.abc import Sequence

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.job.device_settings import settings_of_rank
from frtop_tui.job.model import HostView
from frtop_tui.job.transports import of_rank
from frtop_tui.job.units import byte_size, duration, percent
from frtop_tui.widgets.activity import cpu_share
from frtop_tui.widgets.gpu_lines import gpu_lines
from frtop_tui.widgets.host_summary import host_summary
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.spans import Line, clip, fit, join, plain, reflow, tail, wrap
from frtop_tui.widgets.states import PROCESS_STATES

TROUBLE = ("D", "T", "t", "Z", "X")
"""States in which a healthy training process does not stay for long."""


def system_call(process: wire.Process, room: int) -> Line:
    """`read /data/shard-0412`, or the kernel function in which the main thread sleeps."""
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
        return [plain("nothing known of the process yet", "dim")]
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
    beside = [*gpu_lines(rank, now_ns)]
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
