"""The members' answers about an op's tensors, in words, for screens and the command line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from frtop_tui.features.tensors.comparison import MembersComparison, TensorSides
from frtop_tui.job.naming import folded, listed
from frtop_tui.text.lines import WordLine
from frtop_tui.text.rank_words import sides_text

MOST_SIDES: Final = 4
NOBODY: Final = "no fault: "
_BY_NATURE: Final = {
    "all_reduce": "what is reduced differs between members",
    "reduce": "what is reduced differs between members",
    "reduce_scatter": "each member gives its own, and gets a part of its own",
    "reduce_scatter_tensor": "each member gives its own, and gets a part of its own",
    "all_gather": "each member gives its own part",
    "all_gather_into_tensor": "each member gives its own part",
    "broadcast": "before the end only the root has the values",
    "all_to_all": "each member sends and gets its own",
    "all_to_all_single": "each member sends and gets its own",
    "scatter": "each member gets its own part",
    "gather": "each member gives its own part",
}


def member_words(found: MembersComparison) -> Iterator[WordLine]:
    """One line about which members answered, then lines about each tensor."""
    yield WordLine("members", _asked(found), "dim")
    if len(found.answered) < 2:
        yield WordLine("", "nothing to compare: fewer than two members have this op pending", "dim")
        return
    for tensor in found.tensors:
        yield _layouts(tensor)
        if tensor.not_finite:
            yield WordLine("", _not_finite(tensor, len(found.answered)), "bad")
        if len(tensor.contents) and sum(len(side.ranks) for side in tensor.contents) > 1:
            yield WordLine("", _contents(found.kind, tensor), "dim")
        if tensor.norms is not None and tensor.norms[0] != tensor.norms[1]:
            least, most = tensor.norms
            yield WordLine("", f"norm from {least:.6g} to {most:.6g}", "dim")
        if tensor.partly:
            words = "read another part of it in their time: their bytes are not compared"
            yield WordLine("", f"{folded(tensor.partly)} {words}", "dim")
        for side in tensor.unread[:MOST_SIDES]:
            yield WordLine("", f"{folded(side.ranks)}: {side.value}", "warn")


def _asked(found: MembersComparison) -> str:
    words = [f"{len(found.answered):,} of {found.members:,} answered"]
    if found.not_pending:
        words.append(f"not pending on {folded(found.not_pending)}")
    if found.no_answer:
        words.append(f"no answer from {folded(found.no_answer)}")
    if found.not_asked:
        words.append(f"not asked: {folded(found.not_asked)}")
    return "; ".join(words)


def _layouts(tensor: TensorSides) -> WordLine:
    if len(tensor.layouts) == 1:
        return WordLine(tensor.label, f"{tensor.layouts[0].value} on all", "good")
    split = sides_text(tensor.layouts, MOST_SIDES)
    if not tensor.differ_in:
        return WordLine(tensor.label, f"{split}: they may differ in this op")
    if tensor.odd_layouts:
        who = f"{folded(tensor.odd_layouts)} differ{'s' * (len(tensor.odd_layouts) == 1)}"
        return WordLine(tensor.label, f"{who} in {tensor.differ_in}: {split}", "bad")
    text = f"members differ in {tensor.differ_in}, no side is the majority: {split}"
    return WordLine(tensor.label, text, "bad")


def _contents(kind: str, tensor: TensorSides) -> str:
    if len(tensor.contents) == 1:
        return f"bytes equal on {folded(tensor.contents[0].ranks)}"
    odd = tensor.odd_contents
    if odd:
        side = tensor.contents[0]
        text = f"bytes equal on {folded(side.ranks)}, others on {folded(odd)}"
    elif len(tensor.contents) > MOST_SIDES:
        total = sum(len(side.ranks) for side in tensor.contents)
        text = f"{len(tensor.contents):,} different contents on {total:,} members"
    else:
        text = f"bytes: {sides_text(tensor.contents, MOST_SIDES)}, no side is the majority"
    nature = _BY_NATURE.get(kind, "the op is not over")
    return f"{text} ({NOBODY}{nature}; what a pending op writes may be written in part)"


def _not_finite(tensor: TensorSides, answered: int) -> str:
    found = [
        f"rank {rank} has " + " and ".join(filter(None, (
            f"{nans:,} NaN" if nans else "", f"{infinities:,} Inf" if infinities else "")))
        for rank, nans, infinities in tensor.not_finite
    ]  # fmt: skip
    rest = answered - len(found)
    return listed(found, 6) + (f"; the other {rest:,} none" if rest else "")
