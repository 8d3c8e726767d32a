"""The stacks of many ranks merged into one prefix tree. Pure.

Ranks with equal stacks are grouped first. The tree is built from the distinct stacks, outermost
frame first, as STAT does, so thousands of ranks merge quickly. Small classes are listed first: the
rank that differs is the one to look at, though it need not be the culprit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from frtop_probe import wire
from frtop_tui.diagnosis.evidence.stack_location import line_and_function
from frtop_tui.diagnosis.evidence.working_thread import working_stack
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.job.stack_frames import frame_line, is_user_code, shown_frames, user_frame
from frtop_tui.text.rank_words import format_exit, op_name

FrameKey = tuple[str, str, int]
"""Function, file and line: frames with equal keys share a node."""


@dataclass(slots=True, eq=False)
class StackNode:
    """A frame and the ranks whose stacks contain it at this depth."""

    frame: wire.TraceFrame
    ranks: list[int]
    children: list[StackNode] = field(default_factory=list)
    path: tuple[FrameKey, ...] = ()

    @property
    def ends_here(self) -> int:
        """Number of ranks whose innermost frame this is."""
        return len(self.ranks) - sum(len(child.ranks) for child in self.children)


@dataclass(frozen=True, slots=True)
class MergedStacks:
    """The tree, and (reason, ranks) of the ranks without a stack."""

    roots: tuple[StackNode, ...]
    ranks: int
    missing: tuple[tuple[str, tuple[int, ...]], ...]
    oldest_ns: int = 0
    """When the oldest of the stacks was taken, by the operator's clock."""

    def age_s(self, now_ns: int) -> float:
        return max(0, now_ns - self.oldest_ns) / 1e9


@dataclass(frozen=True, slots=True)
class TreeLine:
    """One line of the drawn tree: a frame, or `hidden` folded frames starting at `node`.

    `head` is the first frame of the line's chain, which unfolds and folds as one.
    """

    node: StackNode
    head: StackNode
    depth: int
    hidden: int = 0


def merge_stacks(
    stacks: Iterable[tuple[int, Sequence[wire.TraceFrame]]],
) -> tuple[StackNode, ...]:
    """The roots of the tree of (rank, frames innermost first)."""
    alike: dict[tuple[FrameKey, ...], tuple[list[int], Sequence[wire.TraceFrame]]] = {}
    for rank, frames in stacks:
        found = alike.setdefault(_key(frames), ([], frames))
        found[0].append(rank)
    distinct: dict[tuple[FrameKey, ...], tuple[list[int], Sequence[wire.TraceFrame]]] = {}
    for ranks, frames in alike.values():
        shown = shown_frames(frames)
        distinct.setdefault(_key(shown)[::-1], ([], shown))[0].extend(ranks)
    nodes: dict[tuple[FrameKey, ...], StackNode] = {}
    roots: list[StackNode] = []
    for key, (ranks, frames) in distinct.items():
        siblings = roots
        for depth, frame in enumerate(reversed(frames), 1):
            path = key[:depth]
            node = nodes.get(path)
            if node is None:
                node = nodes[path] = StackNode(frame, [], path=path)
                siblings.append(node)
            node.ranks.extend(ranks)
            siblings = node.children
    for node in nodes.values():
        node.ranks.sort()
        node.children.sort(key=_smallest_first)
    return tuple(sorted(roots, key=_smallest_first))


def _key(frames: Sequence[wire.TraceFrame]) -> tuple[FrameKey, ...]:
    return tuple([(frame.function, frame.file, frame.line) for frame in frames])


def _smallest_first(node: StackNode) -> tuple[int, int]:
    return (len(node.ranks), node.ranks[0])


def shared_op(frame: Frame, node: StackNode) -> str:
    """The op that all ranks ending at this node wait in; "" if they differ."""
    if not node.ends_here or node.children:
        return ""
    found = {
        "" if rank.blocked_on is None else op_name(rank, rank.blocked_on)
        for rank in map(frame.ranks.get, node.ranks)
        if rank is not None
    }
    return found.pop() if len(found) == 1 else ""


def why_no_thread(dump: wire.StackDump) -> str:
    """Why a dump has no threads."""
    return dump.help or dump.error or "no thread with Python frames"


def why_no_stack(rank: JudgedRank) -> str:
    """Why frtop has no stack of this rank."""
    if rank.exit_info is not None:
        ended, error = format_exit(rank.exit_info), rank.exception
        if error is None or not error.frames:
            return ended
        return f"{ended} after {error.kind} at {line_and_function(user_frame(error.frames))}"
    if rank.snapshot is not None and rank.snapshot.dumps:
        return why_no_thread(rank.snapshot.dumps[0])
    if not rank.evidence.has_stacks:
        return "its stack is not in these files"
    if rank.state == "unreachable":
        return "its agent cannot be reached"
    return "no stack has arrived yet"


def merge_frame(frame: Frame, ranks: Iterable[int]) -> MergedStacks:
    """Merges the working threads of these ranks, and groups those without a stack by reason."""
    stacks: list[tuple[int, Sequence[wire.TraceFrame]]] = []
    missing: dict[str, list[int]] = {}
    oldest = frame.now_ns
    for number in ranks:
        rank = frame.ranks.get(number)
        if rank is None:
            missing.setdefault("never reported", []).append(number)
            continue
        stack = working_stack(rank) if rank.exit_info is None else None
        if stack is None or not stack.frames or rank.snapshot is None:
            missing.setdefault(why_no_stack(rank), []).append(number)
            continue
        stacks.append((number, stack.frames))
        oldest = min(oldest, (rank.stacks_taken_ns or rank.snapshot.at_ns) + rank.clock_ns)
    listed = sorted(missing.items(), key=lambda item: (len(item[1]), item[1]))
    reasons = tuple((why, tuple(numbers)) for why, numbers in listed)
    return MergedStacks(merge_stacks(stacks), len(stacks), reasons, oldest)


@dataclass(frozen=True, slots=True)
class Branch:
    """A chain of frames without a branch."""

    nodes: tuple[StackNode, ...]
    depth: int

    @property
    def ranks(self) -> Sequence[int]:
        return self.nodes[0].ranks

    @property
    def frames(self) -> list[tuple[str, bool]]:
        """Each frame as text, and whether it is the user's own code."""
        return [
            (f"{node.frame.function}  {frame_line(node.frame)}", is_user_code(node.frame))
            for node in self.nodes
        ]


def branches(roots: Sequence[StackNode]) -> Iterable[Branch]:
    """The tree of stacks, each branch after its parent."""
    waiting = [(root, 0) for root in reversed(roots)]
    while waiting:
        head, depth = waiting.pop()
        chain = [head]
        while len(chain[-1].children) == 1 and not chain[-1].ends_here:
            chain.append(chain[-1].children[0])
        yield Branch(tuple(chain), depth)
        waiting += [(child, depth + 1) for child in reversed(chain[-1].children)]


def tree_lines(
    roots: Sequence[StackNode], unfolded: Collection[tuple[FrameKey, ...]]
) -> list[TreeLine]:
    """The lines of the tree. Chains are folded, except those whose first path is in `unfolded`.

    A folded chain shows the user's own frames, and its last one.
    """
    return [
        line
        for one in branches(roots)
        for line in _chain_lines(one.nodes, one.depth, in_full=one.nodes[0].path in unfolded)
    ]


def _chain_lines(chain: Sequence[StackNode], depth: int, *, in_full: bool) -> Iterable[TreeLine]:
    hidden: list[StackNode] = []
    for link in chain:
        if not in_full and link is not chain[-1] and not is_user_code(link.frame):
            hidden.append(link)
            continue
        if hidden:
            yield TreeLine(hidden[0], chain[0], depth, len(hidden))
            hidden = []
        yield TreeLine(link, chain[0], depth)
