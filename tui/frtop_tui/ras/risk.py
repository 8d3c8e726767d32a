"""What a person is told before NCCL's RAS is asked, and what is in the way on other hosts."""

from __future__ import annotations

from typing import Final

from frtop_probe import wire
from frtop_probe.ras.communicator_setup import maker_in_ops, maker_in_stacks
from frtop_tui.job.model import BaseFrame, Rank
from frtop_tui.job.naming import job_place
from frtop_tui.ras.faults import fault_line, faults_of

UNPROVEN: Final = (
    "frtop's client was made from the description of RAS and tried on a stand-in only: it has not"
    " met a real NCCL"
)
_GONE: Final = ("dead", "done", "unheard")


def risk_lines(rank: Rank, look: wire.RasResponse, *, twice: bool = False) -> list[str]:
    """The risk of asking, what of NCCL's faults applies, and what was checked."""
    version = f"NCCL {look.version}" if look.version else "NCCL of an unknown version"
    source = look.version_source or "its library was not found"
    faults = faults_of(look.version)
    whom = f"rank {rank.rank} (process {rank.identity.pid} on {rank.host})"
    place = look.address or "its RAS port"
    lines = [
        "RISK: asking NCCL's RAS has ended jobs that ran or hung",
        f"  job        {job_place(rank.identity.job)}",
        f"  who        {whom}, at {place}; RAS then asks all processes of the job",
        f"  how often  {'twice, some seconds apart' if twice else 'once'}, from this host only",
        f"  version    {version} ({source})",
    ]
    if look.version:
        lines.append(f"  its faults {'' if faults else 'none that was reported; others may exist'}")
    else:
        lines.append("  its faults any of these, as the version is not known")
    lines[-1] = lines[-1].rstrip()
    lines += [f"    {fault_line(fault)}" for fault in faults]
    lines += [f"  checked    {text}" for text in look.checked]
    lines += [f"  unchecked  {text}" for text in look.unchecked]
    lines.append(f"  unproven   {UNPROVEN}")
    return lines


def making_elsewhere(frame: BaseFrame) -> str:
    """Why RAS must not be asked, by what is known of the ranks of all hosts; "" for nothing.

    The agent that is asked sees its own host only.
    """
    for rank in frame.ranks.values():
        if rank.state in _GONE:
            continue
        maker = maker_in_ops(rank.pending)
        if not maker and rank.snapshot is not None:
            threads = [thread for dump in rank.snapshot.dumps for thread in dump.threads]
            maker = maker_in_stacks(threads)
        if maker:
            return (
                f"rank {rank.rank} on {rank.host} may be making a communicator: it is in {maker};"
                " ask again when it is over"
            )
        if rank.state == "starting" and rank.identity.books:
            return (
                f"rank {rank.rank} on {rank.host} has no process group yet, or makes its first;"
                " ask again when it is over"
            )
    return ""
