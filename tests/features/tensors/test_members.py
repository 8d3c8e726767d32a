"""Tensors of one op on all members: who differs, and when nobody is to blame."""

from __future__ import annotations

from msgspec.structs import replace

from connect.fakes import frame_of, rank_view
from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.features.tensors.comparison import compare_members, members_to_ask
from frtop_tui.features.tensors.comparison_words import member_words
from frtop_tui.job.groups import group_views
from frtop_tui.job.rank_sides import RankSide, odd_ranks, sides_of

GROUP = wire.Group(1, "0", "default_pg", "gloo", "0-3", True)


def summary(
    checksum: str, *, shape: tuple[int, ...] = (8,), nans: int = 0, seen: int | None = None
) -> wire.TensorSummary:
    size = shape[0]
    return wire.TensorSummary(
        "input", "float32", shape, "cpu", 4 * size, size, size if seen is None else seen,
        0.0, 1.0, 0.5, 1.5, nans, 0, (), checksum,
    )  # fmt: skip


def member(rank: int, one: wire.TensorSummary | None, kind: str = "all_reduce") -> JudgedRank:
    shape = one.shape if one is not None else (8,)
    spec = (wire.TensorSpec("float32", shape),)
    reduce = "sum" if "reduce" in kind else None
    signature = wire.Signature(kind, reduce, inputs=spec)
    sequence = 100 + rank  # ranks count by themselves
    op = wire.Op(sequence, 1, 41, signature, None, 5)
    answer = None
    if one is not None:
        answer = wire.TensorsResponse(1, "a", rank, 1, (wire.OpTensors(sequence, (one,)),))
    view = rank_view(rank, "a")
    return replace(view, groups={1: GROUP}, pending=(op,), tensors=answer)


def said(frame: Frame, rank: int = 0) -> str:
    found = compare_members(frame, frame.ranks[rank], 100 + rank)
    assert found is not None
    return "\n".join(" ".join(one[:2]) for one in member_words(found))


def with_group(*views: JudgedRank) -> Frame:
    frame = frame_of(*views)
    return replace(frame, groups=group_views(frame.ranks.values()))


def test_who_differs_in_shape_is_named_by_the_majority() -> None:
    views = [member(n, summary(f"{n}", shape=(9,) if n == 2 else (8,))) for n in range(4)]
    text = said(with_group(*views))
    assert "rank 2 differs in size: float32[8] on ranks 0-1,3; float32[9] on rank 2" in text


def test_of_two_parties_none_is_named() -> None:
    views = [member(n, summary("a", shape=(9,) if n % 2 else (8,))) for n in range(4)]
    text = said(with_group(*views))
    assert "members differ in size, no side is the majority" in text


def test_bytes_of_a_pending_op_accuse_nobody() -> None:
    for kind in ("all_reduce", "broadcast", "all_gather", "reduce_scatter_tensor", "other"):
        views = [member(n, summary("b" if n == 3 else "a"), kind) for n in range(4)]
        found = compare_members(with_group(*views), views[0], 100)
        assert found is not None
        assert found.tensors[0].odd_contents == (3,)
        text = said(with_group(*views))
        assert "bytes equal on ranks 0-2, others on rank 3 (no fault: " in text
        assert "may be written in part" in text


def test_a_nan_is_named_with_its_rank() -> None:
    views = [member(n, summary(str(n), nans=3 if n == 1 else 0)) for n in range(4)]
    assert "rank 1 has 3 NaN; the other 3 none" in said(with_group(*views))


def test_parts_of_different_lengths_are_not_compared() -> None:
    views = [member(n, summary(str(n == 3), seen=4 if n == 3 else 8)) for n in range(4)]
    text = said(with_group(*views))
    assert "bytes equal on ranks 0-2" in text
    assert "rank 3 read another part of it" in text


def test_members_that_are_not_there_are_listed() -> None:
    elsewhere = replace(member(3, None), pending=(), tensors=wire.TensorsResponse(1, "a", 3, 1))
    views = [member(0, summary("a")), member(1, summary("a")), member(2, None), elsewhere]
    frame = with_group(*views)
    assert "2 of 4 answered; not pending on rank 3; not asked: rank 2" in said(frame)
    assert members_to_ask(frame, views[1], 101) == (1, 0, 2, 3)


def test_an_op_of_another_number_is_not_compared() -> None:
    views = [member(n, summary("a")) for n in range(3)]
    earlier = replace(views[1].pending[0], number=40)
    frame = with_group(views[0], replace(views[1], pending=(earlier,)), views[2])
    assert "2 of 4 answered; not pending on rank 1; not asked: rank 3" in said(frame)


def test_a_send_has_no_members() -> None:
    view = member(0, summary("a"))
    view = replace(view, pending=(replace(view.pending[0], p2p=True),))
    frame = with_group(view, member(1, summary("a")))
    assert compare_members(frame, view, 100) is None
    assert members_to_ask(frame, view, 100) == ()


def test_sides() -> None:
    assert odd_ranks(sides_of([(0, "a"), (1, "b")])) == ()
    assert odd_ranks(sides_of([(0, "a"), (1, "b"), (2, "c")])) == ()
    assert odd_ranks(sides_of([(0, "a"), (1, "b"), (2, "a")])) == (1,)
    assert sides_of([(2, "a"), (0, "a")]) == (RankSide("a", (0, 2)),)
