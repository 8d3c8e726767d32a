"""Words for ops that do not finish, although all have, or may have, entered them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from frtop_probe import wire
from frtop_tui.diagnosis.cases.stacks_alone.words import stack_texts
from frtop_tui.diagnosis.cases.stuck.detect import (
    DeadLinks,
    DeviceCalls,
    Doubt,
    InDoubt,
    LaggingDevices,
    Rendezvous,
    Stuck,
    Unobserved,
)
from frtop_tui.diagnosis.cases.unobserved.words import (
    missing_members,
    next_step,
    peers_text,
    place_lines,
    split,
    standing_text,
)
from frtop_tui.diagnosis.causes import CAUSES, Layer
from frtop_tui.diagnosis.evidence.rpc_call import by_handler, handler_of
from frtop_tui.diagnosis.finding import Finding
from frtop_tui.diagnosis.graph.wait_node import WaitNode
from frtop_tui.diagnosis.model import Sentences, Why
from frtop_tui.diagnosis.words.absence import (
    Absence,
    absence_of,
    missing_stacks,
    place_text,
    stacks_step,
)
from frtop_tui.diagnosis.words.phrases import (
    OF_RPC,
    Tense,
    by_text,
    chain_evidence,
    label_of,
    message_doubt,
    op_text,
    wait_evidence,
    who,
)
from frtop_tui.job.jobs import LOOPBACK
from frtop_tui.job.model import BaseFrame, Rank
from frtop_tui.job.naming import folded, listed, typed

_MOST_LINKS: Final = 4
_MOST_HANDLERS: Final = 8
AGAIN: Final = "dump again some seconds later: what is unfinished in both does not move"


def stuck(finding: Finding, detail: Stuck, frame: BaseFrame, tense: Tense) -> Sentences:
    """All have entered it, but it does not finish: a stopped rank, dead links, or peers."""
    node = detail.node
    entered = f"all {tense.of('have', 'had')} entered"
    not_finished = f"it {tense.of('does', 'did')} not finish"
    if detail.links is not None:
        head, absence = _links(detail.links, node, entered)
    elif detail.stopped is not None:
        absence = absence_of(frame.ranks[detail.stopped], frame.now_ns)
        named = who(frame.ranks, (detail.stopped,))
        head = f"{named} entered {op_text(node)} and was then stopped"
    elif detail.rendezvous is not None:
        head, absence = _rendezvous(detail.rendezvous, frame.ranks, entered, not_finished)
    elif detail.calls is not None and detail.calls.inside:
        head, absence = _inside_call(detail.calls, node, entered)
    elif detail.calls is not None:
        head, absence = _on_devices(node, frame)
    else:
        head = f"{entered} {op_text(node)}, but {not_finished}"
        text = (
            "all have entered what looks like the same op, but the device or the transport does not"
            " finish it"
        )
        step = CAUSES["transport"].step
        if node.kind == "init_rpc":
            text, step = "they cannot reach RPC's store, or each other", OF_RPC
        absence = Absence(Why.of("transport", text), step)
    return Sentences(
        head,
        absence.why,
        absence.next,
        (wait_evidence(node, frame), *absence.evidence),
        absence.missing,
        tense.waits(finding.victims),
    )


def _inside_call(calls: DeviceCalls, node: WaitNode, entered: str) -> tuple[str, Absence]:
    """Hosts are inside a call that should only hand the op to the device."""
    making = "creating the communicator of its group" if calls.first else "connecting or launching"
    inside = folded(calls.inside)
    if calls.returned:
        head = f"{inside} is inside the call of {op_text(node)}, which has returned on the others"
        if len(calls.inside) > 1:
            head = head.replace(" is inside", " are inside")
    else:
        head = f"{entered} {op_text(node)}, but none of the calls returns: the hosts are {making}"
    text = (
        f"the call of an op hands it to the device and returns; on {inside} it does not return, so"
        f" the host is {making}"
    )
    step = (
        "frtop's native stacks of one of them show where in NCCL; NCCL_DEBUG=INFO and"
        " NCCL_SOCKET_IFNAME before the next start; `ss -ti` on these hosts"
    )
    return head, Absence(Why.of("device", text, "device" if calls.returned else "network"), step)


def _on_devices(node: WaitNode, frame: BaseFrame) -> tuple[str, Absence]:
    """All hosts have handed the op over, but no device completes it."""
    label = label_of(node.group)
    head = (
        f"{op_text(node)} is stuck on the devices: all hosts have handed it over, but no device"
        " has completed it"
    )
    text = (
        f"the devices of {label} have not completed it; the counts do not show which of them has"
        " not begun it, or is still working on earlier ops"
    )
    step = (
        "compare the GPUs: one that draws more power than the waiting ones is still working"
        " (nvidia-smi); links and devices: dmesg (Xid), `ip -s link`, ibstat"
    )
    return head, Absence(Why.of("device", text), step, _errors(node, frame))


def _errors(node: WaitNode, frame: BaseFrame) -> tuple[str, ...]:
    """Errors that the members' backends report."""
    if node.group is None:
        return ()
    mine = (node.group.name, node.group.ranks)
    return tuple(
        by_text(
            (rank, f"the backend reports {group.error}")
            for rank in node.members
            if rank in frame.ranks
            for group in frame.ranks[rank].groups.values()
            if group.error and (group.name, group.ranks) == mine
        )
    )


def in_doubt(
    finding: Finding, detail: InDoubt | Unobserved, frame: BaseFrame, tense: Tense
) -> Sentences:
    """Which ranks wait, and why it may not be stuck; or which members are unobserved."""
    node, links = detail.node, detail.links
    standing, unseen = split(frame.ranks, node.unobserved)
    if isinstance(detail, InDoubt):
        reason, step = _doubt(detail.doubt, node, frame, tense)
    else:
        reason = f"{folded(unseen)} cannot be seen: it may be any of them, or none"
        step = _reach(frame.ranks)
        if unseen and all(_reports(frame.ranks, rank) for rank in unseen):
            reason = (
                f"what {folded(unseen)} did since could not be read: it may be any of them, or none"
            )
            step = "look again in some seconds; if that does not help: frtop doctor on their hosts"
    if node.rpc is not None:
        reason = "it is not known which rank works on the answer"
        step = stacks_step(frame.ranks[node.waits[0].rank])
        standing, unseen = (), ()
    heads, why = [reason], reason
    if standing:
        heads = [standing_text(frame.ranks, standing, tense), *([reason] if unseen else [])]
        why = peers_text(frame.ranks, standing)
        step = next_step(frame.ranks[standing[0]])
    places = [*chain_evidence(finding.nodes), *place_lines(frame.ranks, standing)]
    if node.rpc is not None:
        places += _handler_lines(frame)
    if not any(view.evidence.has_ages for view in frame.ranks.values()):
        places += stack_texts(frame.ranks.values())
    elif isinstance(detail, InDoubt) and detail.doubt.reason == "device":
        places += stack_texts(frame.ranks[rank] for rank in node.waiting)
    return Sentences(
        "; ".join([f"{tense.waits(node.waiting)} in {op_text(node)}", *heads]),
        Why.of(finding.cause, why),
        step,
        (wait_evidence(node, frame), *places, *(_link_texts(links) if links else ())),
        () if node.rpc is not None else missing_members(frame.ranks, node),
    )


def _handler_lines(frame: BaseFrame) -> list[str]:
    """Which ranks run handlers of remote calls, and where these are."""
    some = [view for view in frame.ranks.values() if handler_of(view) is not None]
    lines = [
        f"rank {view.rank}: {place_text(by_handler(view), frame.now_ns)}"
        for view in some[:_MOST_HANDLERS]
    ]
    return lines or ["no handler of a remote call was seen"]


def lagging_devices(
    _finding: Finding, detail: LaggingDevices, frame: BaseFrame, _tense: Tense
) -> Sentences:
    """Which devices lag, and at which op they are."""
    node, lag = detail.node, detail.lag
    label, named = label_of(node.group), folded(lag.ranks)
    if lag.begun:
        head = f"the device of {named} is behind: others have completed #{lag.number} of {label}"
        text = f"all have issued {op_text(node)}; this device has not finished #{lag.number}"
    else:
        head = f"the device of {named} has not begun #{lag.number} of {label}: others have"
        text = f"all have issued {op_text(node)}; earlier work keeps this device busy"
    return Sentences(
        head + (", or its dump is the oldest" if node.undated else ""),
        Why.of("device", text),
        f"look at the device of {named}: nvidia-smi, dmesg; what ran there before it?",
        (wait_evidence(node, frame),),
    )


def _reports(views: Mapping[int, Rank], rank: int) -> bool:
    """Whether its host reports it: then only its state is not known."""
    view = views.get(rank)
    return view is not None and view.evidence.has_ages and view.state != "unreachable"


def _reach(views: Mapping[int, Rank]) -> str:
    """What to do about ranks that cannot be seen."""
    if any(not view.evidence.has_process for view in views.values()):
        return "get the dumps of these ranks too, or read their output"
    silent = list(dict.fromkeys(v.host for v in views.values() if v.state == "unreachable"))
    hosts = listed(silent) if silent else "the hosts that are missing"
    return f"reach {hosts}: is it up, and does the agent run there?"


def _doubt(doubt: Doubt, node: WaitNode, frame: BaseFrame, tense: Tense) -> tuple[str, str]:
    """The reason, and what to do about it."""
    waiter = frame.ranks[node.waits[0].rank]
    if doubt.reason == "message":
        return message_doubt(node), stacks_step(waiter)
    if doubt.reason == "single dump":
        does = tense.of("finishes", "finished")
        return f"all have issued it; a single dump does not show whether it {does}", AGAIN
    if doubt.reason == "unseen":
        text = (
            "all have entered it; without a recorder, roots, reduce ops and some sizes are not seen"
        )
        return text, "compare the calls of all ranks at their lines: `frtop`, then b"
    if doubt.reason == "unobserved":
        reports = "reports" if len(doubt.ranks) == 1 else "report"
        text = f"{folded(doubt.ranks)} had entered it too, and no longer {reports}"
        return text, _reach(frame.ranks)
    text = "all have issued it; it cannot be seen whether devices still work on it or on later ops"
    return text, stacks_step(waiter, native=True)


def _links(links: DeadLinks, node: WaitNode, entered: str) -> tuple[str, Absence]:
    """The head, and what is cut off: a host, or some links."""
    if links.end:
        others = sorted({end for pair in links.pairs for end in pair} - {links.end})
        between = f"{links.end} and {listed(others)}"
        named = folded(links.ranks) if links.ranks else links.end
        name = named if links.end.startswith(named) else f"{named} on {links.end}"
        head = f"{name} cannot be reached by the others, in {op_text(node)} that {entered}"
        step = (
            f"on the host of {name}: ip -br link; ip -s link; then its cable, switch and firewall"
        )
    else:
        between = listed([" and ".join(pair) for pair in links.pairs])
        head = f"{entered} {op_text(node)}, but the network does not deliver it"
        step = "check the cables and switches between them: `ip -br link`, `ip -s link`, ping"
    text = f"nothing gets through between {between}: what is sent is never acknowledged"
    return head, Absence(Why.of("cut_off", text), step, _link_texts(links))


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
    head, named = f"{entered} init_process_group, but ", folded(found.ranks)
    if found.at == "store":
        problem, layer, text, step = _at_store(found)
        evidence = (f"{named}: connecting to the store, by their stacks",)
        return head + problem, Absence(Why("rendezvous", layer, text), step, evidence)
    head += not_finished
    if found.at == "peers":
        text = "all have arrived and found the store, but cannot connect to each other"
        step = (
            "check the address that each one offers: GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME,"
            " hostname -I; do firewalls let these hosts connect to each other on all ports?"
        )
        evidence = (f"{named}: connected to the store, by their stacks",)
        return head, Absence(Why.of("transport", text), step, evidence)
    first, address = ranks[found.ranks[0]], _address(found.job)
    store = f"the job's store at {address}" if address else "the job's store"
    if address and found.job.master_port == 0:
        store += " (a port on which nothing can listen)"
    text = (
        f"all have called it; only their stacks show whether {store} does not answer, or they"
        " cannot connect to each other"
    )
    why = Why("rendezvous", "unknown", text)
    return head, Absence(why, stacks_step(first), missing=missing_stacks(first))


def _at_store(found: Rendezvous) -> tuple[str, Layer, str, str]:
    """What does not answer, the layer, the cause, and what to do."""
    job, address = found.job, _address(found.job)
    if not address:
        text = "they are still connecting to the store; its address is not known"
        step = "print MASTER_ADDR and MASTER_PORT, or the init_method, of all ranks: the same?"
        return "the job's store does not answer", "network", text, step
    problem = f"nobody answers at {address}"
    if job.master_port == 0:
        text = "MASTER_PORT, the port of the job's store, is 0: nothing can listen there"
        step = (
            "give all ranks the same free port: MASTER_PORT, torchrun --master-port,"
            " or the init_method"
        )
        return problem, "software", text, step
    if found.several_hosts and job.master_addr in LOOPBACK:
        text = f"MASTER_ADDR is {job.master_addr}: on each host that is the host itself"
        step = "give all ranks the same MASTER_ADDR: a name of rank 0's host that all can resolve"
        return problem, "software", text, step
    text = (
        f"they are still connecting to the job's store at {address}: nothing listens there, or not"
        " all of them can reach it"
    )
    host, port = typed(job.master_addr), job.master_port
    step = f"on {host}: ss -ltnp 'sport = :{port}': does rank 0, or torchrun, listen there?"
    if job.master_addr not in LOOPBACK:
        step += f" from the other hosts: nc -vz {host} {port}: a firewall, or a wrong address?"
    return problem, "network", text, step


def _address(job: wire.Job) -> str:
    """`node0:29500`; "" if the store is a file, or not known."""
    if not job.master_addr or "://" in job.master_addr:
        return ""
    bare_ipv6 = ":" in job.master_addr and not job.master_addr.startswith("[")
    host = f"[{job.master_addr}]" if bare_ipv6 else job.master_addr
    return f"{host}:{job.master_port}"
