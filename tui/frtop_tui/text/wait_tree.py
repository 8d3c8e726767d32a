"""The wait-for graph as a tree of lines: root causes first, below each who waits for it. Pure.

Each box stands once, where it is first reached; a second wait for it, or the end of a deadlock, is
a line that refers to it. Folded parts get no lines.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from frtop_tui.job.groups import members_of
from frtop_tui.text.wait_boxes import Box, WaitBoxes

MOST_CHILDREN: Final = 8
"""If more wait for one box, the rest are folded into one line."""

MOST_REDUCED: Final = 512
"""Larger graphs may draw a wait twice, directly and through others: checking is quadratic."""

_Place = tuple[int, ...]
"""The boxes from the root to a line."""
Key = tuple[str, str, str]
"""A line's kind, op and first rank: the same in later frames, unlike its place."""
RowKind = Literal["box", "alike", "again", "closes", "more", "left out"]


@dataclass(frozen=True, slots=True)
class TreeRow:
    """One line. `lead` is the drawing before it; `folded` is None if there is nothing to unfold.

    `count` is its ranks; for "more" and "left out", its boxes or ops.
    """

    key: Key
    kind: RowKind
    lead: str
    count: int
    box: Box | None = None
    folded: bool | None = None


def tree_rows(graph: WaitBoxes, toggled: Collection[Key] = ()) -> list[TreeRow]:
    """All lines that are unfolded; `toggled` are those that the user folded or unfolded.

    By default up to `MOST_CHILDREN` waiters of a box are unfolded, and boxes alike are not.
    """
    return list(_Tree(graph, toggled).rows())


class _Tree:
    def __init__(self, graph: WaitBoxes, toggled: Collection[Key]) -> None:
        self._boxes = graph.boxes
        self._left_out = graph.left_out
        self._toggled = toggled
        self._counts = [len(members_of(box.ranks)) for box in graph.boxes]
        waiters: dict[int, list[int]] = defaultdict(list)
        self._waits_for: dict[int, list[int]] = defaultdict(list)
        for arrow in graph.arrows:
            self._waits_for[arrow.source].append(arrow.target)
        for source, targets in self._waits_for.items():
            for target in self._nearest(source, targets):
                waiters[target].append(source)
        self._waiters = {
            target: sorted(sources, key=lambda n: (n not in waiters, -self._counts[n], n))
            for target, sources in waiters.items()
        }
        self._shown: set[int] = set()

    def rows(self) -> Iterator[TreeRow]:
        for root in self._roots():
            yield from self._under((root,), "", "")
        if self._left_out:
            yield TreeRow(("left out", "", ""), "left out", "", self._left_out)

    def _nearest(self, source: int, targets: Sequence[int]) -> list[int]:
        """The `targets` that `source` does not also wait for through another one."""
        unique = list(dict.fromkeys(targets))
        if len(unique) < 2 or len(self._boxes) > MOST_REDUCED:
            return unique
        through = {
            one for target in unique for one in self._beyond(target, source) if one != target
        }
        return [one for one in unique if one not in through] or unique

    def _beyond(self, box: int, without: int) -> set[int]:
        """What a box waits for, directly or not, other than through the box `without`."""
        found = {without}
        todo = [box]
        while todo:
            for one in self._waits_for.get(todo.pop(), ()):
                if one not in found:
                    found.add(one)
                    todo.append(one)
        return found - {without}

    def _roots(self) -> Iterator[int]:
        """Boxes that wait for none, those with the most ranks below first; then deadlocks."""
        ends = [n for n in range(len(self._boxes)) if not self._waits_for.get(n)]
        below: set[int] = set()
        reach: dict[int, int] = {}
        for end in ends:
            own: set[int] = set()
            self._collect(end, own)
            reach[end] = sum(self._counts[one] for one in own)
            below |= own
        yield from sorted(ends, key=lambda n: (not self._boxes[n].overdue, -reach[n], n))
        for box in range(len(self._boxes)):  # only deadlocks and their waiters are left
            if box not in below and self._in_circle(box):
                self._collect(box, below)
                yield box

    def _collect(self, box: int, into: set[int]) -> None:
        todo = [box]
        while todo:
            if (one := todo.pop()) not in into:
                into.add(one)
                todo += self._waiters.get(one, ())

    def _in_circle(self, box: int) -> bool:
        """Whether a box waits for itself through others."""
        found: set[int] = set()
        for one in self._waiters.get(box, ()):
            self._collect(one, found)
        return box in found

    def _under(self, place: _Place, lead: str, below: str) -> Iterator[TreeRow]:
        """A box, the boxes alike in it, and its waiters; `place` ends with the box.

        `lead` is drawn before it, `below` before the lines below it.
        """
        stack: list[tuple[_Place, str, str]] = [(place, lead, below)]
        while stack:  # no recursion: a pipeline is as deep as it has ranks
            place, lead, below = stack.pop()
            number = place[-1]
            if number < 0:
                hidden = self._waiters[place[-2]][MOST_CHILDREN:]
                key = _key("more", self._boxes[place[-2]])
                yield TreeRow(key, "more", lead, len(hidden), folded=True)
                continue
            box, count = self._boxes[number], self._counts[number]
            if number in place[:-1]:
                yield TreeRow(_key("closes", box), "closes", lead, count, box)
                continue
            if number in self._shown:
                yield TreeRow(_key("again", box), "again", lead, count, box)
                continue
            self._shown.add(number)
            waiters = self._waiters.get(number, ())
            key = _key("box", box)
            folded = key in self._toggled if waiters else None
            if box.alike and not waiters:
                folded = key not in self._toggled
            yield TreeRow(key, "box", lead, count, box, folded)
            if folded is not False:
                continue
            if not waiters:
                yield from self._alike(box.alike, below)
                continue
            stack += reversed(list(self._children(place, waiters, below)))

    def _children(
        self, place: _Place, waiters: Sequence[int], below: str
    ) -> Iterator[tuple[_Place, str, str]]:
        more = _key("more", self._boxes[place[-1]])
        cut = len(waiters) > MOST_CHILDREN and more not in self._toggled
        shown = [*waiters[:MOST_CHILDREN], -1] if cut else list(waiters)
        for index, one in enumerate(shown):
            last = index == len(shown) - 1
            yield (*place, one), below + ("└ " if last else "├ "), below + ("  " if last else "│ ")

    @staticmethod
    def _alike(alike: Sequence[Box], below: str) -> Iterator[TreeRow]:
        for index, box in enumerate(alike):
            mark = "└ " if index == len(alike) - 1 else "├ "
            yield TreeRow(
                _key("alike", box), "alike", below + mark, len(members_of(box.ranks)), box
            )


def _key(kind: str, box: Box) -> Key:
    return (kind, box.title if box.kind == "waits" else box.kind, box.ranks.partition(",")[0])
