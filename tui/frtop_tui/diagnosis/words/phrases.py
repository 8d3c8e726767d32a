"""Phrases that verdicts share: ranks, ops, ages, tenses, and lines of evidence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Final

from frtop_probe import wire
from frtop_probe.consistency.signatures import SIZELESS
from frtop_tui.diagnosis.blocked.ops_by_stack import EITHER, is_either
from frtop_tui.diagnosis.evidence.death import Death
from frtop_tui.diagnosis.evidence.progress import ProgressSeen, ProgressSign
from frtop_tui.diagnosis.evidence.rank_activity import working_location
from frtop_tui.diagnosis.evidence.stack_location import OP_WAITS
from frtop_tui.diagnosis.graph.wait_node import RankSet, WaitNode, kind_of, number_of, rank_set
from frtop_tui.job.issuer_words import brief_issuer
from frtop_tui.job.model import BaseFrame, Rank
from frtop_tui.job.naming import folded, group_label, shortened
from frtop_tui.job.stack_frames import is_user_line, site_line
from frtop_tui.job.units import byte_size, counted, duration, percent, timing
from frtop_tui.job.unprepared import age_words

PAIR_MESSAGES: Final = (
    "pair each send with a receive: reverse the order on one of them, or use batch_isend_irecv"
)
WRONG_ORDER: Final = "each needs the other first: sends and receives meet in the wrong order"
OF_RPC: Final = (
    "RPC has its own store: on all ranks, print the init_method in the options of init_rpc (without"
    " one: MASTER_ADDR and MASTER_PORT) and the world_size: the same?"
)
_MOST_CHAINED: Final = 8
"""How many nodes of a chain are listed."""


class Tense(Enum):
    """The tense of a headline: past, if the job has ended since."""

    PRESENT = 0
    PAST = 1

    def of(self, present: str, past: str) -> str:
        return present if self is Tense.PRESENT else past

    def has(self, ranks: Sequence[int]) -> str:
        return self.of("has" if len(ranks) == 1 else "have", "had")

    def are(self, ranks: Sequence[object]) -> str:
        return self.of("is", "was") if len(ranks) == 1 else self.of("are", "were")

    def waits(self, ranks: Iterable[int]) -> str:
        """`ranks 0-1,3 wait`."""
        return self.set_waits(rank_set(ranks))

    def set_waits(self, waiting: RankSet) -> str:
        if not waiting.ranks:
            return self.of("nobody waits yet", "nobody waited yet")
        if len(waiting.ranks) == 1:
            return f"rank {waiting.folded} {self.of('waits', 'waited')}"
        return f"ranks {shortened(waiting.folded)} {self.of('wait', 'waited')}"


def label_of(group: wire.Group | None) -> str:
    """`default_pg`."""
    return group_label(group.name, group.description) if group is not None else "its group"


def named_op(op: wire.Op, group: wire.Group | None, peer: int | None = None) -> str:
    """`all_reduce #8812 of default_pg`, `recv from rank 2 of default_pg`.

    With the module that issued it, if recorded: `... (backward of layers.3.mlp)`.
    """
    kind, number = kind_of(op), number_of(op, group)
    if group is None or op.pseudo:
        return kind
    kind = EITHER if is_either(op, group) else kind
    if op.signature is None and number is not None:
        kind = "op"
    counted = f" #{number}" if number is not None else ""
    side = f" {'from' if 'recv' in kind else 'to'} rank {peer}" if peer is not None else ""
    return f"{kind}{counted}{side} of {label_of(group)}{in_module(op)}"


def in_module(op: wire.Op) -> str:
    """` (backward of layers.3.mlp)`: the module that issued an op, if recorded."""
    issuer = brief_issuer(op.issuer)
    return f" ({issuer})" if issuer else ""


def op_text(node: WaitNode) -> str:
    """The same for the op that ranks wait in; `rpc_sync to worker2`."""
    if node.rpc is not None:
        return node.rpc.text
    return named_op(node.op, node.group, node.peer if node.op.p2p else None)


def message_doubt(node: WaitNode) -> str:
    """What is known about a message's other half: `rank 1 has sent it`."""
    receives = "recv" in node.kind
    if node.peer is None:
        return f"its {'sender' if receives else 'receiver'} is not known"
    issued = f"rank {node.peer} has {'sent' if receives else 'received'} it"
    return issued if node.answered else f"it is not known whether {issued}"


def callers_unknown(node: WaitNode) -> str:
    """For a call if it is not known which ranks have to make it."""
    return f"it is not known which ranks have to call {node.kind}; usually all of them"


def who(views: Mapping[int, Rank], ranks: Sequence[int]) -> str:
    """`rank 2 (node4 pid 90077)`; several ranks without host and pid."""
    view = views.get(ranks[0]) if len(ranks) == 1 else None
    if view is not None and view.identity.pid:
        host = "" if view.host in ("", "local") else f"{view.host} "
        return f"rank {view.rank} ({host}pid {view.identity.pid})"
    return folded(ranks)


def by_text(texts: Iterable[tuple[int, str]]) -> list[str]:
    """`ranks 0-2: sleeps at train.py:9`: ranks with the same text together, in order."""
    found: dict[str, list[int]] = {}
    for rank, text in texts:
        found.setdefault(text, []).append(rank)
    return [f"{folded(ranks)}: {text}" for text, ranks in found.items()]


def gave_up_text(death: Death) -> str:
    """`gave up waiting after 30m00s`, with the time if known."""
    after = f" after {duration(death.waited_s)}" if death.waited_s else ""
    return f"gave up waiting{after}"


def at_line(op: wire.Op) -> str:
    return f" at {site_line(op.site)}" if op.site is not None else ""


def line_of_wait(view: Rank | None, op: wire.Op) -> str:
    """The line of the program at which a rank waits in an op: `train.py:40 (validate)`.

    The op's own line may be unknown, or that of a framework which issues all ops. "" if it says the
    same, or if no current stack shows it.
    """
    location = working_location(view) if view is not None else None
    if location is None or location.kind not in OP_WAITS:
        return ""
    return "" if location.line.startswith(f"{site_line(op.site)} (") else location.line


def wait_evidence(node: WaitNode, frame: BaseFrame) -> str:
    oldest, now_ns = node.oldest, frame.now_ns
    text = f"rank {oldest.rank} waits in {op_text(node)}"
    if oldest.undated:
        return f"{text}{at_line(oldest.op)}; its dump does not show for how long"
    text += f" for {age_words((now_ns - oldest.since_ns) / 1e9, least=not oldest.op.dated)}"
    if oldest.op.usual_count and oldest.op.site is not None:
        text += f" (usually {timing(oldest.op.usual_ns)} there)"
    text += at_line(oldest.op)
    if not is_user_line(oldest.op.site):
        line = line_of_wait(frame.ranks.get(oldest.rank), oldest.op)
        text += f"{', from' if oldest.op.site is not None else ' at'} {line}" if line else ""
    return text if oldest.sure else f"{text}; seen from outside only, not by its stack"


def chain_evidence(nodes: Sequence[WaitNode]) -> list[str]:
    """How a wait at the first of `nodes` keeps others waiting elsewhere."""
    lines = []
    for node in nodes[1 : 1 + _MOST_CHAINED]:
        awaited = {*node.free, *node.blocked_at}
        ranks = f" for {folded(awaited)}" if awaited and not node.op.p2p else ""
        lines.append(f"{Tense.PRESENT.waits(node.waiting)} in {op_text(node)}{ranks}")
    more = len(nodes) - 1 - len(lines)
    if more > 0:
        lines.append(f"and {counted(more, 'more op')} with ranks that wait behind these")
    return lines


def last_op_evidence(views: Mapping[int, Rank], culprits: Sequence[int]) -> list[str]:
    """The last known op of each culprit."""
    lines = []
    for view in filter(None, map(views.get, culprits[:3])):
        known = [last for last in view.last_ops if last.signature or last.number]
        if not known:
            continue
        last = max(known, key=lambda op: op.sequence)
        text = named_op(last, view.groups.get(last.group))
        lines.append(f"rank {view.rank} last issued {text}{at_line(last)}")
    return lines


def broken_evidence(views: Mapping[int, Rank], ranks: Iterable[int]) -> list[str]:
    """What the first of these ranks raised."""
    for rank in sorted(ranks):
        view = views.get(rank)
        if view is not None and view.exception is not None:
            text = view.exception.text.strip().splitlines()
            return [f"then rank {rank}: {view.exception.kind}: {text[0][:160] if text else ''}"]
    return []


def cut(text: str) -> str:
    return text if len(text) <= 120 else f"{text[:119]}…"


def signature_text(signature: wire.Signature | None) -> str:
    """`all_reduce sum float32[1024]`, as in an evidence line."""
    if signature is None:
        return "an op of unknown signature"
    parts = [signature.kind]
    if signature.reduce:
        parts.append(signature.reduce)
    if signature.root is not None:
        parts.append(f"root {signature.root}")
    specs = signature.inputs or signature.outputs or ()
    if specs and signature.kind not in SIZELESS:
        shown = [f"{s.dtype}[{','.join(map(str, s.shape))}]" for s in specs[:2]]
        parts.append(" ".join(shown) + (" …" if len(specs) > 2 else ""))
    if signature.in_splits or signature.out_splits:
        parts.append(f"splits {_short(signature.in_splits)} out {_short(signature.out_splits)}")
    return " ".join(parts)


def _short(splits: tuple[int, ...] | None) -> str:
    if splits is None:
        return "?"
    return ",".join(map(str, splits[:8])) + (",…" if len(splits) > 8 else "")


_TEXTS: Final[dict[ProgressSign, str]] = {
    "ended": "its process ended",
    "stopped": "its process is stopped",
    "recent_op": "it still issues ops",
    "never_reported": "no agent has reported {ranks}",
    "one_snapshot": "fewer than two snapshots so far",
    "unreadable": "neither /proc nor stacks could be read",
    "advanced": "its ops or steps advance",
    "stack_changed": "its stack changed",
    "cpu": "it uses {share} of a core",
    "spins": "it uses {share} of a core, but so does a wait for a device: that is not progress",
    "ready_cpu": "it was ready to run in both snapshots, and got {share} of a core",
    "io": "it reads or writes: {size} in {seconds}",
    "memory": "its memory grows: {size} in {seconds}",
    "no_processor": "it was ready to run, but got no processor in {seconds} between two snapshots",
    "unchanged": "no op, step, CPU time or I/O in {seconds} between two snapshots",
    "one_dump": "one dump does not show whether it moves",
    "dump_advanced": "it has issued or completed ops between two dumps",
    "dumps_too_close": "its two dumps may be too close in time to compare",
    "dump_unchanged": "no op issued or completed in {seconds} between two dumps",
    "stacks_once": "its stacks were taken once: they do not show whether it moves",
    "stack_lines_unknown": "some lines of its stack are unknown {apart}",
    "stack_moved": "its stack differs {apart}",
    "stacks_too_close": "its stack is the same {apart}: too close in time to compare",
    "stack_runs": "it runs at the same lines {apart}: it computes or busy-waits",
    "stack_same": "its stack is the same {apart}",
    "stack_same_child": "its stack is the same {apart}; processes that it waits for may work",
    "nothing_to_do": "it has no work, so it shows no progress",
    "input_open": "nothing shows whether anybody will type or send anything",
}


def progress_text(seen: ProgressSeen, ranks: Sequence[int] = ()) -> str:
    """What shows the progress of one of `ranks`, or what is missing."""
    return _TEXTS[seen.sign].format(
        ranks=folded(ranks) if ranks else "it",
        seconds=duration(seen.seconds),
        apart=f"in two dumps, {duration(seen.seconds)} apart",
        share=percent(seen.amount),
        size=byte_size(seen.amount),
    )
