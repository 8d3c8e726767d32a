"""The filter syntax: which ranks a line like `host:node[0-3] !late` selects. Pure.

A rank must match all words; `!` negates a word.

    rank:0-7,64      these ranks; `0-7,64` alone means the same
    host:node[0-3]   hosts in ClusterShell's syntax; without brackets, a name or part of one
    group:tp         members of groups whose description or name begins with this
    late             ranks in this state; `late,dead`: in one of these states
    marked           ranks marked with space
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from difflib import get_close_matches

from frtop_probe.ring.rank_ranges import unfold
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.job.naming import unfolded_hosts
from frtop_tui.text.rank_states import MEANINGS

Test = Callable[[JudgedRank], bool]

FIELDS = ("rank", "host", "group")
WORDS = (*MEANINGS, "marked")


class FilterError(ValueError):
    """The filter is invalid; the message names the word and a valid one."""


def matching(text: str, frame: Frame, marked: Collection[int] = ()) -> list[JudgedRank]:
    """The ranks of the frame that match the filter, in order of rank.

    Raises:
        FilterError: the filter is invalid; its message is for the user.
    """
    tests = [_negatable(word, frame, marked) for word in text.split()]
    return [
        frame.ranks[number]
        for number in sorted(frame.ranks)
        if all(test(frame.ranks[number]) for test in tests)
    ]


def _negatable(word: str, frame: Frame, marked: Collection[int]) -> Test:
    if not word.startswith("!"):
        return _test(word, frame, marked)
    inner = _test(word[1:], frame, marked)
    return lambda rank: not inner(rank)


def _test(word: str, frame: Frame, marked: Collection[int]) -> Test:
    field, colon, value = word.partition(":")
    if not colon:
        return _bare(word, marked)
    if field not in FIELDS:
        raise FilterError(f"unknown field `{field}`; known are rank:, host: and group:")
    if field == "rank":
        return _in(_ranks(value))
    if field == "host":
        return _host(value, frame)
    return _in(
        member
        for group in frame.groups
        if _named(group.label, value) or _named(group.key.name, value)
        for member in group.members
    )


def _bare(word: str, marked: Collection[int]) -> Test:
    if re.fullmatch(r"[\d,-]+", word):
        return _in(_ranks(word))
    wanted = set(filter(None, word.split(",")))
    for name in wanted - set(WORDS):
        near = get_close_matches(name, WORDS, 1)
        hint = f"did you mean `{near[0]}`?" if near else f"known are {', '.join(WORDS)}"
        raise FilterError(f"unknown word `{name}`; {hint}")
    return lambda rank: rank.state in wanted or ("marked" in wanted and rank.rank in marked)


def _ranks(value: str) -> tuple[int, ...]:
    try:
        return unfold(value)
    except ValueError:
        raise FilterError(f"`{value}` is not a list of ranks such as 0-7,64") from None


def _in(ranks: Iterable[int]) -> Test:
    wanted = set(ranks)
    return lambda rank: rank.rank in wanted


def _host(value: str, frame: Frame) -> Test:
    if "[" not in value and "," not in value:
        if any(rank.host == value for rank in frame.ranks.values()):
            return lambda rank: rank.host == value  # node1 is not node10
        return lambda rank: value in rank.host
    try:
        names = set(unfolded_hosts(value))
    except ValueError:
        raise FilterError(f"`{value}` is not a list of hosts such as node[0-3]") from None
    return lambda rank: rank.host in names or rank.host.partition(".")[0] in names


def _named(name: str, value: str) -> bool:
    return name == value or (bool(value) and name.startswith(value))
