"""`frtop tensors --members`: asks all members of an op for its tensors, and compares them."""

from __future__ import annotations

import time
from typing import Final

import msgspec

from frtop_probe.features.tensors.messages import SummarizeTensors
from frtop_tui.cli.live import show_progress
from frtop_tui.connect.base import Source
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.errors import FrtopError
from frtop_tui.features.tensors.comparison import MembersComparison, compare_members, members_to_ask
from frtop_tui.features.tensors.comparison_words import member_words
from frtop_tui.job.naming import printable
from frtop_tui.job.units import counted

ANSWERS_S: Final = 15.0
"""How long to wait for all members, in seconds: an agent asks four of its ranks at a time."""


def compared(source: Source, view: JudgedRank, sequence: int, *, as_json: bool) -> str:
    """What members say of this op of a rank, which has answered already.

    Raises:
        FrtopError: the op has no number by which it is found on other ranks.
    """
    frame = source.frame()
    others = members_to_ask(frame, frame.ranks.get(view.rank, view), sequence)[1:]
    before = {rank: frame.ranks[rank].tensors for rank in others}
    source.do(SummarizeTensors(devices=True), others)
    begin = time.monotonic()
    while True:
        frame = source.frame()
        due = [rank for rank in others if _tensors(frame, rank) is before[rank]]
        if not due or time.monotonic() - begin > ANSWERS_S:
            break
        show_progress(
            f"{len(others) - len(due) + 1:,} of {counted(len(others) + 1, 'member')} answered"
        )
        time.sleep(0.05)
    show_progress("")
    found = compare_members(frame, frame.ranks.get(view.rank, view), sequence)
    if found is None:
        raise FrtopError(
            f"op {sequence} of rank {view.rank} cannot be found on other ranks by its number",
            "a send or receive has two sides: ask each rank by itself; an op that is over "
            "meanwhile has no tensors",
        )
    if as_json:
        return msgspec.json.format(msgspec.json.encode(found), indent=1).decode()
    return "\n".join(lines(found))


def _tensors(frame: Frame, rank: int) -> object:
    view = frame.ranks.get(rank)
    return view.tensors if view is not None else None


def lines(found: MembersComparison) -> list[str]:
    """The comparison as text."""
    rows = [f"{found.kind} #{found.number} of {found.group}"]
    rows += [f"  {one.subject:<12}  {one.text}" for one in member_words(found)]
    return [printable(row) for row in rows]
