"""Many stacks as one tree, and who stands where in it. Pure, and quick for thousands.

Ranks with the same frames are put together first; the prefix tree is then built from the
few distinct stacks, outermost frame first, as STAT does. Small classes come first: the
odd one out is what one is looking for (which is not yet to say that it is guilty).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from frtop_probe import wire
from frtop_tui.diagnosis.judged import Frame, JudgedRank
from frtop_tui.job.stack_frames import is_user_code
from frtop_tui.widgets.wording import ending, group_of, kind, number

Step = tuple[str, str, int]
"""What makes two frames one node: function, file, line."""


@dataclass(slots=True, eq=False)
class Node:
    """A frame with everybody who has come through it."""

    frame: wire.TraceFrame
    ranks: list[int]
    children: list[Node] = field(default_factory=list)
    path: tuple[Step, ...] = ()

    @property
    def ends_here(self) -> int:
        """How many ranks have this as their innermost frame."""
        return len(self.ranks) - sum(len(child.ranks) for child in self.children)


@dataclass(frozen=True, slots=True)
class Merged:
    """The tree's top nodes, and the reasons of those who are not in it."""

    roots: tuple[Node, ...]
    ranks: int
    missing: tuple[tuple[str, tuple[int, ...]], ...]
    oldest_ns: int = 0
    """When the oldest of the stacks was taken, by the operator's clock."""

    def age_s(self, now_ns: int) -> float:
        return max(0, now_ns - self.oldest_ns) / 1e9


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the drawn tree: a frame, or `hidden` frames that stand folded in it.

    `head` is the first frame of the chain the line belongs to: what opens and closes.
    """

    node: Node
    head: Node
    depth: int
    hidden: int = 0


def merge(stacks: Iterable[tuple[int, Sequence[wire.TraceFrame]]]) -> tuple[Node, ...]:
    """Top nodes of the tree of (rank, frames innermost first)."""
    alike: dict[tuple[Step, ...], tuple[list[int], Sequence[wire.TraceFrame]]] = {}
    for rank, frames in stacks:
        key = tuple([(frame.function, frame.file, frame.line) for frame in reversed(frames)])
        found = alike.get(key)
        if found is None:
            alike[key] = ([rank], frames)
        else:
            found[0].append(rank)
    nodes: dict[tuple[Step, ...], Node] = {}
    roots: list[Node] = []
    for key, (ranks, frames) in alike.items():
        siblings = roots
        for depth, frame in enumerate(reversed(frames), 1):
            path = key[:depth]
            node = nodes.get(path)
            if node is None:
                node = nodes[path] = Node(frame, [], path=path)
                siblings.append(node)
            node.ranks.extend(ranks)
            siblings = node.children
    for node in nodes.values():
        node.ranks.sort()
        node.children.sort(key=_odd_first)
    return tuple(sorted(roots, key=_odd_first))


def _odd_first(node: Node) -> tuple[int, int]:
    return (len(node.ranks), node.ranks[0])


def waits_in(frame: Frame, node: Node) -> str:
    """The op all ranks whose stack ends here wait in; nothing when they differ."""
    if not node.ends_here or node.children:
        return ""
    found = {
        "" if op is None else f"{kind(op)} {number(op)} {group_of(rank, op)}".strip()
        for rank in map(frame.ranks.get, node.ranks)
        if rank is not None
        for op in (rank.blocked_on,)
    }
    return found.pop() if len(found) == 1 else ""


def why_none(rank: JudgedRank) -> str:
    """Why there is no stack of a rank, in words that stand before a list of ranks."""
    if rank.exit_info is not None:
        return ending(rank.exit_info)
    if rank.snapshot is not None and rank.snapshot.dumps:
        dump = rank.snapshot.dumps[0]
        if dump.error:
            return dump.help or dump.error
        return "no thread with Python frames"
    if rank.state == "unheard":
        return "its agent cannot be reached"
    return "asked for, no answer yet"


def merge_frame(frame: Frame, ranks: Iterable[int]) -> Merged:
    """Main threads of these ranks as a tree; who has no stack is listed with the reason."""
    stacks: list[tuple[int, Sequence[wire.TraceFrame]]] = []
    missing: dict[str, list[int]] = {}
    oldest = frame.now_ns
    for wanted in ranks:
        rank = frame.ranks.get(wanted)
        if rank is None:
            missing.setdefault("never heard", []).append(wanted)
            continue
        stack = rank.main_stack if rank.exit_info is None else None
        if stack is None or not stack.frames or rank.snapshot is None:
            missing.setdefault(why_none(rank), []).append(wanted)
            continue
        stacks.append((wanted, stack.frames))
        oldest = min(oldest, (rank.stacks_taken_ns or rank.snapshot.at_ns) + rank.clock_ns)
    listed = sorted(missing.items(), key=lambda item: (len(item[1]), item[1]))
    reasons = tuple((why, tuple(numbers)) for why, numbers in listed)
    return Merged(merge(stacks), len(stacks), reasons, oldest)


def entries(roots: Sequence[Node], turned: Collection[tuple[Step, ...]]) -> list[Entry]:
    """Lines of the tree; chains without branches are shortened.

    Of a chain the user's own frames are shown, and its end, where it branches or stops.
    A chain whose first path is in `turned` is shown in full.
    """
    found: list[Entry] = []
    waiting = [(root, 0) for root in reversed(roots)]
    while waiting:
        head, depth = waiting.pop()
        chain = [head]
        while len(chain[-1].children) == 1 and not chain[-1].ends_here:
            chain.append(chain[-1].children[0])
        found += _chain(chain, depth, in_full=head.path in turned)
        waiting += [(child, depth + 1) for child in reversed(chain[-1].children)]
    return found


def _chain(chain: Sequence[Node], depth: int, *, in_full: bool) -> Iterable[Entry]:
    hidden: list[Node] = []
    for link in chain:
        if not in_full and link is not chain[-1] and not is_user_code(link.frame):
            hidden.append(link)
            continue
        if hidden:
            yield Entry(hidden[0], chain[0], depth, len(hidden))
            hidden = []
        yield Entry(link, chain[0], depth)
