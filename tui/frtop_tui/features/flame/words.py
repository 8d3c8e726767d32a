"""Sampled stacks of several ranks as one flame tree, as folded stacks, and for speedscope. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from frtop_tui.job.naming import folded
from frtop_tui.job.stack_frames import is_own, is_standard_library, wraps
from frtop_tui.job.units import percent


class RankSamples(Struct, frozen=True):
    """Sampled stacks of one rank, outermost frame first, or why there are none."""

    rank: int
    stacks: tuple[tuple[tuple[str, ...], int], ...] = ()
    seconds: float = 0.0
    rate: int = 0
    missed: int = 0
    text: str = ""


class SampledStacks(Struct, frozen=True):
    """Samples of all ranks that were asked; `waiting` have not answered yet."""

    ranks: tuple[RankSamples, ...] = ()
    waiting: tuple[int, ...] = ()
    since_ns: int = 0  # operator's clock: when they were asked


SURE: Final = 4.0
"""A rank is called different only if it is off by this many standard errors of the sampling. With
fewer, and many frames, ranks that do the same would be named by chance."""
MAIN: Final = "MainThread"
OURS: Final = "frtop"
"""The recorder's own thread: it comes last, and is folded."""
RECORDER: Final = "frtop's recorder"
"""Stands above frames of frtop in the program's own threads."""
ITSELF: Final = "(itself)"
LEAST: Final = 0.02
"""And by this share of all samples: a smaller difference helps nobody."""


FrameKind = Literal["program", "library", "wrapper", "own"]
"""Whose frame it is: `own` are frtop's except wrappers, `library` is Python's."""


@dataclass(slots=True)
class FlameNode:
    """A frame below its callers. `counts` are samples by rank, including those of its callees."""

    name: str
    path: tuple[str, ...]
    counts: dict[int, int] = field(default_factory=dict)
    children: dict[str, FlameNode] = field(default_factory=dict)

    def share(self, totals: dict[int, int]) -> float:
        """Its share of the sampled time of all ranks together."""
        return sum(self.counts.values()) / max(1, sum(totals.values()))

    def totals(self, totals: dict[int, int]) -> dict[int, int]:
        """Totals for shares below this root: several threads may have one name."""
        return {rank: max(total, self.counts.get(rank, 0)) for rank, total in totals.items()}


@dataclass(frozen=True, slots=True)
class FlameRow:
    """A line of the tree. `differs` names ranks with another share of this frame."""

    node: FlameNode
    depth: int
    share: float
    folded: bool | None  # None: nothing below it
    differs: str = ""


def flame_tree(ranks: Sequence[RankSamples]) -> tuple[list[FlameNode], dict[int, int]]:
    """The roots, which are threads, and how often each rank was sampled.

    Every thread is sampled each time, so the main thread's samples count; without a main thread,
    the most that a thread has. Frames are those of `shown_frames`.
    """
    roots: dict[str, FlameNode] = {}
    totals: dict[int, int] = {}
    kinds: dict[str, FrameKind] = {}
    for rank in ranks:
        for frames, count in rank.stacks:
            level = roots
            path: tuple[str, ...] = ()
            for name in shown_frames(frames, kinds):
                path = (*path, name)
                node = level.get(name)
                if node is None:
                    node = level[name] = FlameNode(name, path)
                node.counts[rank.rank] = node.counts.get(rank.rank, 0) + count
                level = node.children
    for node in roots.values():
        for rank_number, count in node.counts.items():
            totals[rank_number] = max(totals.get(rank_number, 0), count)
    if MAIN in roots:
        totals |= roots[MAIN].counts
    return _sorted(roots, totals), totals


def shown_frames(frames: tuple[str, ...], kinds: dict[str, FrameKind]) -> Sequence[str]:
    """A stack as it would be without frtop, and below `RECORDER` what frtop does in it.

    Wrappers are left out, even innermost: what they call mostly has no Python frame, and the time
    is the call's. `frames` begin with the thread's name; `kinds` caches kinds of frames.
    """
    for text in frames:
        if text not in kinds:
            kinds[text] = _kind(text)
    if frames[:1] == (OURS,) or not {"wrapper", "own"} & {kinds[text] for text in frames}:
        return frames
    remaining = [*frames[:1], *(text for text in frames[1:] if kinds[text] != "wrapper")]
    last = max(n for n, text in enumerate(remaining) if not n or kinds[text] == "program")
    program = [*remaining[:1], *(one for one in remaining[1 : last + 1] if kinds[one] != "own")]
    rest = remaining[last + 1 :]
    first = next((n for n, text in enumerate(rest) if kinds[text] == "own"), None)
    if first is None:
        return [*program, *rest]
    return [*program, *rest[:first], RECORDER, *rest[first:]]


def _kind(text: str) -> FrameKind:
    function, file, _ = frame_parts(text)
    if is_own(file):
        return "wrapper" if wraps(file, function) else "own"
    return "library" if is_standard_library(file) else "program"


def recorder_share(roots: Sequence[FlameNode], totals: dict[int, int]) -> float:
    """The share of time that the program's threads spent in the recorder, without wrappers."""
    waiting, samples = list(roots), 0
    while waiting:
        node = waiting.pop()
        if node.name == RECORDER:
            samples += sum(node.counts.values())
        else:
            waiting.extend(node.children.values())
    return samples / max(1, sum(totals.values()))


def _sorted(nodes: dict[str, FlameNode], totals: dict[int, int]) -> list[FlameNode]:
    return sorted(
        nodes.values(),
        key=lambda node: (
            node.name == OURS,
            -min(1.0, node.share(totals)),
            node.name != MAIN,
            node.name,
        ),
    )


def flame_rows(
    roots: Sequence[FlameNode], totals: dict[int, int], toggled: set[tuple[str, ...]]
) -> list[FlameRow]:
    """The lines to show: frames with 5 % of the time are open, unless the user `toggled` them."""
    rows: list[FlameRow] = []
    waiting = [(node, 0, node.totals(totals)) for node in reversed(roots)]
    while waiting:
        node, depth, of = waiting.pop()
        share = node.share(of)
        leads = share >= 0.05 and node.path != (OURS,)
        open_ = leads != (node.path in toggled)
        differs = different(node, of)
        rows.append(FlameRow(node, depth, share, None if not node.children else not open_, differs))
        if open_:
            below = _sorted({**node.children, **_itself(node, of)}, of)
            # A chain of calls stays in one column, to leave room for names.
            deeper = depth + (len(below) > 1 or not depth)
            waiting += [(child, deeper, of) for child in reversed(below)]
    return rows


def _itself(node: FlameNode, totals: dict[int, int]) -> dict[str, FlameNode]:
    """The samples in which a frame calls none of the others, as a row among them: C, or a sleep."""
    called = sum((Counter(child.counts) for child in node.children.values()), Counter[int]())
    own = {rank: count - called[rank] for rank, count in node.counts.items()}
    found = FlameNode(ITSELF, (*node.path, ITSELF), own)
    return {ITSELF: found} if node.children and found.share(totals) >= LEAST else {}


def different(node: FlameNode, totals: dict[int, int]) -> str:
    """Ranks whose share of this frame surely differs from the median of all ranks."""
    shares = {rank: node.counts.get(rank, 0) / total for rank, total in totals.items() if total}
    if len(shares) < 2:
        return ""
    usual = median(shares.values())
    found = []
    for rank, share in shares.items():
        spread = _variance(share) + _variance(usual)
        if abs(share - usual) > max(LEAST, SURE * math.sqrt(spread / totals[rank])):
            found.append(rank)
    if not found:
        return ""
    low, high = min(shares.values()), max(shares.values())
    if 2 * len(found) >= len(shares):
        return f"{percent(low)} to {percent(high)} among ranks"
    theirs = [shares[rank] for rank in found]
    lowest, highest = min(theirs), max(theirs)
    several = f" to {percent(highest)}" if round(lowest, 2) != round(highest, 2) else ""
    return f"{folded(found)}: {percent(lowest)}{several}, usually {percent(usual)}"


def _variance(share: float) -> float:
    return max(0.0, share * (1 - share))


def folded_stacks(ranks: Sequence[RankSamples]) -> Iterator[str]:
    """Lines for flamegraph.pl and similar tools: the rank is the outermost frame."""
    for rank in ranks:
        for frames, count in rank.stacks:
            names = (one.replace(";", ":") for one in frames)
            yield f"{';'.join((f'rank {rank.rank}', *names))} {count}"


def speedscope(ranks: Sequence[RankSamples], name: str) -> bytes:
    """A file for speedscope.app: a profile per rank and thread, weighted in seconds."""
    places: dict[str, int] = {}
    profiles: list[dict[str, Any]] = []
    for rank in ranks:
        threads: dict[str, list[tuple[list[int], float]]] = {}
        for frames, count in rank.stacks:
            indices = [places.setdefault(one, len(places)) for one in frames[1:]]
            threads.setdefault(frames[0], []).append((indices, count / max(1, rank.rate)))
        for thread, samples in threads.items():
            weights = [weight for _, weight in samples]
            profiles.append(
                {
                    "type": "sampled",
                    "name": f"rank {rank.rank}: {thread}",
                    "unit": "seconds",
                    "startValue": 0,
                    "endValue": sum(weights),
                    "samples": [indices for indices, _ in samples],
                    "weights": weights,
                }
            )
    document = {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": "frtop",
        "name": name,
        "activeProfileIndex": 0,
        "shared": {"frames": [_frame(place) for place in places]},
        "profiles": profiles,
    }
    return msgspec.json.encode(document)


def _frame(text: str) -> dict[str, Any]:
    function, file, line = frame_parts(text)
    return {
        "name": function,
        **({"file": file} if file else {}),
        **({"line": line} if line else {}),
    }


def frame_parts(text: str) -> tuple[str, str, int]:
    """Function, file and line of a frame in py-spy's format: `step (/srv/train.py:7)`."""
    function, found, place = text.rstrip(")").rpartition(" (")
    if not found:
        return text, "", 0
    file, _, line = place.rpartition(":")
    if not file or not line.isdecimal():
        return function, place, 0
    return function, file, int(line)
