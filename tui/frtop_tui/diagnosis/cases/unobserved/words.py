"""Words for unobserved transports, and for ranks that may wait in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from frtop_tui.diagnosis.cases.unobserved.detect import StandingWaits
from frtop_tui.diagnosis.evidence.unobserved_wait import UnobservedWait, unobserved_wait
from frtop_tui.diagnosis.finding import Finding
from frtop_tui.diagnosis.graph.wait_node import WaitNode
from frtop_tui.diagnosis.model import Sentences, Why
from frtop_tui.diagnosis.words.absence import stacks_step
from frtop_tui.diagnosis.words.phrases import Tense, by_text
from frtop_tui.job.model import BaseFrame, Rank
from frtop_tui.job.naming import folded
from frtop_tui.job.transports import transport_names
from frtop_tui.job.units import counted

_MOST_SHOWN = 4


class Unknown(NamedTuple):
    """Members for which it is not known whether they have entered an op.

    `standing` are in unobserved waits; `unseen` are not seen at all.
    """

    standing: tuple[int, ...]
    unseen: tuple[int, ...]


def split(views: Mapping[int, Rank], unobserved: Iterable[int]) -> Unknown:
    """The two kinds of unobserved members."""
    standing: list[int] = []
    unseen: list[int] = []
    for rank in unobserved:
        view = views.get(rank)
        seen = (
            view is not None and view.state != "unreachable" and unobserved_wait(view) is not None
        )
        (standing if seen else unseen).append(rank)
    return Unknown(tuple(standing), tuple(unseen))


def beside(views: Mapping[int, Rank], ranks: Iterable[int]) -> str:
    """`beside DeepEP, NVSHMEM`."""
    return f"beside {', '.join(transport_names(views[rank] for rank in ranks))}"


def _have_transports(views: Mapping[int, Rank], ranks: Iterable[int]) -> bool:
    """Whether they have such transports; else they may be behind full device queues."""
    return any(views[rank].transports for rank in ranks)


def standing_text(views: Mapping[int, Rank], ranks: Sequence[int], tense: Tense) -> str:
    """`rank 3 is in a wait that frtop does not observe, beside DeepEP`."""
    waits = "a wait" if len(ranks) == 1 else "waits"
    does = tense.of("does", "did")
    if not _have_transports(views, ranks):
        runs = tense.of("runs" if len(ranks) == 1 else "run", "ran")
        return f"{folded(ranks)} {runs} C code, perhaps behind a full device queue"
    return (
        f"{folded(ranks)} {tense.are(ranks)} in {waits} that frtop {does} not observe,"
        f" {beside(views, ranks)}"
    )


def peers_text(views: Mapping[int, Rank], ranks: Sequence[int]) -> str:
    """Why none of them is named."""
    if not _have_transports(views, ranks):
        return (
            "behind a full queue a host stops at whatever it launches next, whichever rank is late"
        )
    if len(ranks) == 1:
        return "what it issues there is not seen: its peers may wait for it, or for another rank"
    return (
        "what they issue there is not seen: they may wait for each other, or for a rank elsewhere"
    )


def place_lines(views: Mapping[int, Rank], ranks: Sequence[int]) -> tuple[str, ...]:
    """Where each of them is, equal places once, and the signs of its transports."""
    waits = ((rank, unobserved_wait(views[rank])) for rank in ranks)
    shown = by_text((rank, _place(wait)) for rank, wait in waits if wait is not None)[:_MOST_SHOWN]
    signs = {f"{one.name}: {one.sign}": None for rank in ranks for one in views[rank].transports}
    return (*shown, *list(signs)[:_MOST_SHOWN])


def _place(wait: UnobservedWait) -> str:
    where, thread = wait.location.line, f", {wait.thread}" if wait.thread else ""
    return f"{_KINDS.get(wait.location.kind, _IN_C)}, {where}{thread}" if where else _UNSEEN


_UNSEEN = "neither a stack nor the kernel shows where"
_IN_C = "in an unknown C call"
_KINDS = {"device": "waits for its device", "backward": "in the backward pass, in C++"}


def missing_members(views: Mapping[int, Rank], node: WaitNode) -> tuple[str, ...]:
    """What is not seen of members that may not have entered."""
    standing, unseen = split(views, node.unobserved)
    texts = []
    if unseen:
        texts.append(f"{folded(unseen)} cannot be seen, and may be absent too")
    if standing:
        issued = f"what {_issued_by(standing)} {beside(views, standing)}"
        device = f"what the devices of {folded(standing)} work on"
        texts.append(issued if _have_transports(views, standing) else device)
    return tuple(texts)


def _issued_by(ranks: Sequence[int]) -> str:
    return f"{folded(ranks)} {'issues' if len(ranks) == 1 else 'issue'}"


def standing_evidence(views: Mapping[int, Rank], node: WaitNode) -> tuple[str, ...]:
    """Members that are not blamed because they may wait in such a transport."""
    standing = split(views, node.unobserved).standing
    return (standing_text(views, standing, Tense.PRESENT),) if standing else ()


def next_step(view: Rank) -> str:
    """What shows more: the native stack, the device, the program's own log."""
    log = "; the engine's own log: does it still answer requests?" if view.transports else ""
    native = stacks_step(view, native=True)
    return f"{native} (it stops the process for up to 2 s); nvidia-smi{log}"


def standing_waits(
    finding: Finding, detail: StandingWaits, frame: BaseFrame, tense: Tense
) -> Sentences:
    """Which ranks stay in such waits, and why that may or may not be a hang."""
    ranks, views = detail.ranks, frame.ranks
    text = (
        "what they issue there is not seen: they may wait for each other forever, or replay a"
        " graph, which moves no counter of c10d"
    )
    others = (f"{counted(detail.others, 'more rank')} looked at: elsewhere",)
    return Sentences(
        f"{standing_text(views, ranks, tense)}; every look found them at the same lines",
        Why.of(finding.cause, text),
        next_step(views[ranks[0]]),
        (*place_lines(views, ranks), *(others if detail.others else ())),
        (f"what {_issued_by(ranks)} beside c10d, and whether it completes",),
    )


def idle_note(idle: Sequence[int]) -> str:
    """For ranks that stay in such waits while another one waits for work."""
    waits = "waits" if len(idle) == 1 else "wait"
    return (
        f"{folded(idle)} {waits} for work from outside the job, and others wait for it in"
        " transports that frtop does not observe"
    )
