"""Words for ops that all have entered, and for members that nobody observes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from frtop_probe import wire
from frtop_tui.diagnosis.detectors.certainty import LOOPBACK
from frtop_tui.diagnosis.detectors.stuck.dead_links import DeadLinks
from frtop_tui.diagnosis.detectors.stuck.doubt import Doubt
from frtop_tui.diagnosis.detectors.stuck.rendezvous import Rendezvous
from frtop_tui.diagnosis.detectors.stuck.stuck import InDoubt, LaggingDevices, Stuck
from frtop_tui.diagnosis.detectors.unobserved import Unobserved
from frtop_tui.diagnosis.finding import Finding
from frtop_tui.diagnosis.graph.wait_node import WaitNode
from frtop_tui.diagnosis.model import Sentences, Why
from frtop_tui.diagnosis.wording.absence import Absence, absence_of, missing_stacks, stacks_step
from frtop_tui.diagnosis.wording.phrases import op_text, wait_evidence, who
from frtop_tui.diagnosis.wording.tense import Tense
from frtop_tui.job.model import BaseFrame, Rank
from frtop_tui.job.naming import folded, group_label, listed, typed

_MOST_LINKS: Final = 4


def stuck(finding: Finding, detail: Stuck, frame: BaseFrame, tense: Tense) -> Sentences:
    """All have entered it, and it does not finish: because of a stopped rank, links, or peers."""
    node = detail.node
    entered = f"all {tense.of('have', 'had')} entered"
    evidence = tuple(wait_evidence(node, frame.now_ns))
    waiting = tense.waits(finding.victims)
    if detail.links is not None:
        said = _links(detail.links, node, entered)
        return Sentences(said.head, said.why, said.next, (*evidence, *said.evidence), (), waiting)
    not_finished = f"it {tense.of('does', 'did')} not finish"
    if detail.stopped is not None:
        culprit = frame.ranks[detail.stopped]
        named = who(frame.ranks, (culprit.rank,))
        absence = absence_of(culprit, frame.now_ns)
        head = f"{named} entered {op_text(node)} and was then stopped"
    elif detail.rendezvous is not None:
        head, absence = _rendezvous(detail.rendezvous, frame.ranks, entered, not_finished)
    else:
        head = f"{entered} {op_text(node)}, and {not_finished}"
        absence = Absence(
            Why(
                "transport",
                "network",
                "all have entered with what looks like the same op;"
                " the device or the transport does not finish it",
            ),
            "look at links and devices of these hosts: `ss -ti`, `ip -s link`, dmesg",
        )
    return Sentences(
        head,
        absence.why,
        absence.next,
        (*evidence, *absence.evidence),
        absence.missing,
        waiting,
    )


def in_doubt(finding: Finding, detail: InDoubt, frame: BaseFrame, tense: Tense) -> Sentences:
    """All have entered it, and why it may not be stuck."""
    reason, step = _doubt(detail.doubt, detail.node, frame, tense)
    return _undecided(finding, detail, frame, tense, (reason, step))


def unobserved(finding: Finding, detail: Unobserved, frame: BaseFrame, tense: Tense) -> Sentences:
    """Who waits, and which members nobody observes."""
    named = folded(detail.node.unobserved)
    reason = f"{named} cannot be seen, so it may be any of them, or none"
    step = reach(frame.ranks)
    return _undecided(finding, detail, frame, tense, (reason, step))


def _undecided(
    finding: Finding,
    detail: InDoubt | Unobserved,
    frame: BaseFrame,
    tense: Tense,
    reason_and_step: tuple[str, str],
) -> Sentences:
    node, links = detail.node, detail.links
    reason, step = reason_and_step
    evidence = (*wait_evidence(node, frame.now_ns), *(_link_texts(links) if links else ()))
    missing = (f"{folded(node.unobserved)} cannot be seen",) if node.unobserved else ()
    return Sentences(
        f"{tense.waits(node.waiting)} in {op_text(node)}; {reason}",
        Why(finding.cause, "unknown", reason),
        step,
        evidence,
        missing,
    )


def lagging_devices(
    _finding: Finding, detail: LaggingDevices, frame: BaseFrame, _tense: Tense
) -> Sentences:
    """Whose devices lag, and at which op they are."""
    node, lag = detail.node, detail.lag
    label = group_label(node.group.name, node.group.description) if node.group else "its group"
    named = folded(lag.ranks)
    if lag.begun:
        head = f"the device of {named} is behind: others have completed #{lag.number} of {label}"
        text = f"all have issued {op_text(node)}; this device is not through with #{lag.number}"
    else:
        head = f"the device of {named} has not begun #{lag.number} of {label}: others are at it"
        text = f"all have issued {op_text(node)}; what came before it keeps this device"
    return Sentences(
        head + (", or its dump is the oldest" if node.undated else ""),
        Why("device", "device", text),
        f"look at the device of {named}: nvidia-smi, dmesg; what ran there before it?",
        tuple(wait_evidence(node, frame.now_ns)),
    )


def reach(views: Mapping[int, Rank]) -> str:
    """What to do about ranks that cannot be seen."""
    if any(not view.evidence.has_process for view in views.values()):
        return "fetch the dumps of these ranks, too; where there are none, their output"
    silent = list(dict.fromkeys(v.host for v in views.values() if v.state == "unheard"))
    hosts = listed(silent) if silent else "the hosts that are missing"
    return f"reach {hosts}: up, and is the agent there running?"


def _doubt(doubt: Doubt, node: WaitNode, frame: BaseFrame, tense: Tense) -> tuple[str, str]:
    """The reason, and what to do about it."""
    waiter = frame.ranks[node.waits[0].rank]
    if doubt.reason == "message":
        text = "its peer has issued the other half, or which peer is not known"
        return text, stacks_step(waiter)
    if doubt.reason == "single dump":
        does = tense.of("does not finish", "did not finish")
        text = f"all have issued it; that it {does}, a single dump does not tell"
        return text, "dump again some seconds later: what is unfinished in both does not move"
    if doubt.reason == "unobserved":
        text = f"{folded(doubt.ranks)} had entered it, too, and cannot be seen any more"
        return text, reach(frame.ranks)
    text = "all have issued it; whether devices still work on it, or on what came"
    return f"{text} after it, cannot be seen", stacks_step(waiter, native=True)


def _links(links: DeadLinks, node: WaitNode, entered: str) -> Sentences:
    if links.end:
        return _cut_off(links, node, entered)
    between = listed([" and ".join(pair) for pair in links.pairs])
    return Sentences(
        f"{entered} {op_text(node)}, and the network does not deliver it",
        _unreachable(between),
        "the cables and switches between them: `ip -br link`, `ip -s link`; ping one another",
        _link_texts(links),
    )


def _cut_off(links: DeadLinks, node: WaitNode, entered: str) -> Sentences:
    """The host at one end of all dead links; nobody may have seen it from inside."""
    others = sorted({end for pair in links.pairs for end in pair} - {links.end})
    named = folded(links.ranks) if links.ranks else links.end
    name = named if links.end.startswith(named) else f"{named} on {links.end}"
    return Sentences(
        f"{name} cannot be reached by the others, in {op_text(node)} that {entered}",
        _unreachable(f"{links.end} and {listed(others)}"),
        f"on the host of {name}: ip -br link; ip -s link; then its cable and switch, its firewall",
        _link_texts(links),
    )


def _unreachable(between: str) -> Why:
    text = f"nothing gets through between {between}: what is sent is never acknowledged"
    return Why("unreachable", "network", text)


def _link_texts(links: DeadLinks) -> tuple[str, ...]:
    return tuple(
        f"rank {rank}: {link.remote} has not acknowledged {link.queued} bytes,"
        f" sent {link.retransmits + 1} times"
        for rank, link in links.seen[:_MOST_LINKS]
    )


def _rendezvous(
    found: Rendezvous, ranks: Mapping[int, Rank], entered: str, not_finished: str
) -> tuple[str, Absence]:
    """The head, and why it does not finish."""
    head = f"{entered} init_process_group"
    if found.at == "store":
        problem, absence = _at_store(found)
        return f"{head}, and {problem}", absence
    head = f"{head}, and {not_finished}"
    if found.at == "peers":
        return head, _between_peers(found)
    text = (
        f"all have called it; whether {_store(found.job)} does not answer, or they cannot"
        " connect to each other, only their stacks tell"
    )
    first = ranks[found.ranks[0]]
    return head, Absence(
        Why("rendezvous", "unknown", text), stacks_step(first), missing=missing_stacks(first)
    )


def _at_store(found: Rendezvous) -> tuple[str, Absence]:
    job = found.job
    evidence = (f"{folded(found.ranks)}: inside the connecting to the store, by their stacks",)
    address = _address(job)
    if not address:
        why = "they still connect to the store; at which address is not known"
        step = "print MASTER_ADDR and MASTER_PORT, or the init_method, of all ranks: the same?"
        absence = Absence(Why("rendezvous", "network", why), step, evidence)
        return "the job's store does not answer", absence
    problem = f"nobody answers at {address}"
    if job.master_port == 0:
        why = "the port of the job's store, MASTER_PORT, is 0: nobody can be reached there"
        step = (
            "give all ranks one and the same free port: MASTER_PORT, torchrun --master-port,"
            " or the init_method"
        )
        return problem, Absence(Why("rendezvous", "software", why), step, evidence)
    if found.several_hosts and job.master_addr in LOOPBACK:
        why = f"MASTER_ADDR is {job.master_addr}: on each host that is the host itself"
        step = "give all ranks one and the same MASTER_ADDR, a name of rank 0's host that all know"
        return problem, Absence(Why("rendezvous", "software", why), step, evidence)
    why = (
        f"they still connect to the job's store at {address}: nobody listens there, or not"
        " all of them can reach it"
    )
    host, port = typed(job.master_addr), job.master_port
    step = f"on {host}: ss -ltnp 'sport = :{port}': is it rank 0, or torchrun, that listens?"
    if job.master_addr not in LOOPBACK:
        step += f" from the other hosts: nc -vz {host} {port}: a firewall, or a wrong address?"
    return problem, Absence(Why("rendezvous", "network", why), step, evidence)


def _between_peers(found: Rendezvous) -> Absence:
    why = "all have come; they have found the store, and do not get to each other from there"
    step = (
        "what each offers as its own address: GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME, hostname -I;"
        " do firewalls let these hosts connect to each other on all ports?"
    )
    evidence = (f"{folded(found.ranks)}: past the connecting to the store, by their stacks",)
    return Absence(Why("transport", "network", why), step, evidence)


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
