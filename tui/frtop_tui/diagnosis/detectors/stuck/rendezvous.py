"""Where a job's first meeting fails although everybody came: at its store, or after it.

`init_process_group` first finds the store at the job's address, and waits there for all
ranks; then they connect to each other. Only stacks tell which of the two it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from frtop_probe import wire
from frtop_tui.diagnosis.detectors.certainty import LOOPBACK
from frtop_tui.diagnosis.evidence.rank_activity import main_thread_location
from frtop_tui.diagnosis.graph.wait_node import WaitNode
from frtop_tui.diagnosis.model import Why
from frtop_tui.diagnosis.wording.absence import Absence, missing_stacks, stacks_step
from frtop_tui.job.model import Rank
from frtop_tui.job.naming import folded, typed

_RENDEZVOUS: Final = "torch/distributed/rendezvous.py"


def met_in_vain(views: Mapping[int, Rank], node: WaitNode) -> tuple[str, Absence] | None:
    """What to say first, and why it does not finish; None if `point` is no such meeting."""
    if not node.op.pseudo or node.kind != "init_process_group":
        return None
    waiting = [views[rank] for rank in sorted(node.waiting)]
    job = waiting[0].identity.job
    seen = [view for view in waiting if main_thread_location(view) is not None]
    connecting = [view.rank for view in seen if is_connecting(view)]
    if connecting:
        hosts = {view.host for view in views.values()}
        return _at_store(job, connecting, apart=len(hosts) > 1)
    head = "all have entered init_process_group, and it does not finish"
    if seen:
        return head, _after_store([view.rank for view in seen])
    text = (
        f"all have called it; whether {_store(job)} does not answer, or they cannot"
        " connect to each other, only their stacks tell"
    )
    first = waiting[0]
    return head, Absence(
        Why("rendezvous", "unknown", text), stacks_step(first), missing=missing_stacks(first)
    )


def _at_store(job: wire.Job, ranks: list[int], *, apart: bool) -> tuple[str, Absence]:
    """`apart`: there are ranks on several hosts."""
    evidence = (f"{folded(ranks)}: inside the connecting to the store, by their stacks",)
    address = _address(job)
    if not address:
        head = "all have entered init_process_group, and the job's store does not answer"
        why = "they still connect to the store; at which address is not known"
        step = "print MASTER_ADDR and MASTER_PORT, or the init_method, of all ranks: the same?"
        return head, Absence(Why("rendezvous", "network", why), step, evidence)
    head = f"all have entered init_process_group, and nobody answers at {address}"
    if job.master_port == 0:
        why = "the port of the job's store, MASTER_PORT, is 0: nobody can be reached there"
        step = (
            "give all ranks one and the same free port: MASTER_PORT, torchrun --master-port,"
            " or the init_method"
        )
        return head, Absence(Why("rendezvous", "software", why), step, evidence)
    if apart and job.master_addr in LOOPBACK:
        why = f"MASTER_ADDR is {job.master_addr}: on each host that is the host itself"
        step = "give all ranks one and the same MASTER_ADDR, a name of rank 0's host that all know"
        return head, Absence(Why("rendezvous", "software", why), step, evidence)
    why = (
        f"they still connect to the job's store at {address}: nobody listens there, or not"
        " all of them can reach it"
    )
    host, port = typed(job.master_addr), job.master_port
    step = f"on {host}: ss -ltnp 'sport = :{port}': is it rank 0, or torchrun, that listens?"
    if job.master_addr not in LOOPBACK:
        step += f" from the other hosts: nc -vz {host} {port}: a firewall, or a wrong address?"
    return head, Absence(Why("rendezvous", "network", why), step, evidence)


def _after_store(ranks: list[int]) -> Absence:
    why = "all have come; they have found the store, and do not get to each other from there"
    step = (
        "what each offers as its own address: GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME, hostname -I;"
        " do firewalls let these hosts connect to each other on all ports?"
    )
    evidence = (f"{folded(ranks)}: past the connecting to the store, by their stacks",)
    return Absence(Why("transport", "network", why), step, evidence)


def is_connecting(view: Rank) -> bool:
    """Whether the main thread makes its client of the store: that waits for all the others."""
    stack = view.main_stack
    return stack is not None and any(
        frame.file.endswith(_RENDEZVOUS) or frame.function == "_create_c10d_store"
        for frame in stack.frames
    )


def _store(job: wire.Job) -> str:
    address = _address(job)
    if address and job.master_port == 0:
        return f"the job's store at {address} (a port that nobody can listen at)"
    return f"the job's store at {address}" if address else "the job's store"


def _address(job: wire.Job) -> str:
    """`node0:29500`; "" where the store is a file, or nothing was said."""
    if not job.master_addr or "://" in job.master_addr:
        return ""
    bare_ipv6 = ":" in job.master_addr and not job.master_addr.startswith("[")
    host = f"[{job.master_addr}]" if bare_ipv6 else job.master_addr
    return f"{host}:{job.master_port}"
