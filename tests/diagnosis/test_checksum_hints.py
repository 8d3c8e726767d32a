"""Checksums that differ: what is asked, what is found, what is settled, what stays unproven."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnosis.scenes import FLOATS, SECOND, Scene, op_signature
from frtop_probe import wire
from frtop_probe.consistency import signatures as agreement
from frtop_probe.consistency.checksums import packed
from frtop_tui.diagnosis.cases.mismatch.checksums import OpsRequest
from frtop_tui.diagnosis.engine import Judgement
from frtop_tui.diagnosis.model import Frame, OpName
from frtop_tui.job.checksums import JobChecksums
from frtop_tui.text.exit_status import exit_status

Ops = tuple[wire.Op, ...]


def hear(
    scene: Scene, sums: Mapping[int, int], *, first: int = 9, pairs: Mapping[int, int] | None = None
) -> Judgement:
    """One block of each rank, with the sums of its splits in `pairs`; then a judgement."""
    scene.hear()
    scene.number += 1
    splits = {rank: packed([value]) for rank, value in (pairs or {}).items()}
    ranks = tuple(
        wire.RankUpdate(
            rank + 1,
            blocks=(wire.BlockSums(1, first, 8, packed([value]), splits.get(rank, b"")),),
        )
        for rank, value in sums.items()
    )
    update = wire.Update(
        "node0", "agent-node0", scene.number, int((scene.now + 3) * SECOND), 0, ranks
    )
    assert scene.state.apply("node0", update, scene.now_ns)
    return scene.engine.judge(scene.frame())


def ops(numbers: range, **odd: wire.Signature) -> Ops:
    """What a rank issued; `odd` by number, as `n12`."""
    return tuple(
        wire.Op(n, 1, n, odd.get(f"n{n}", op_signature("all_reduce")), wire.Site("t.py", n, "f"), n)
        for n in numbers
    )


def answer(scene: Scene, wanted: tuple[OpsRequest, ...], told: Mapping[int, Ops]) -> Frame:
    """What ranks answer, and the judgement a moment later."""
    for one in wanted:
        scene.state.apply_ops(one.host, one.key, one.hint, told[one.rank])
    scene.pass_time(0.5)
    scene.hear()
    judgement = scene.engine.judge(scene.frame())
    assert judgement.ops_requests == ()
    return judgement.frame


def asked(told: Mapping[int, Ops], *, first: int = 9) -> tuple[Scene, Frame]:
    """The sums of rank 2 differ from those of the others; one of each side answers."""
    scene = Scene(4)
    judgement = hear(scene, {0: 5, 1: 5, 2: 7, 3: 5}, first=first)
    return scene, answer(scene, judgement.ops_requests, told)


BLOCK = range(9, 17)
MAX = op_signature("all_reduce", reduce="max")


def test_one_of_each_side_is_asked_once() -> None:
    scene = Scene(4)
    judgement = hear(scene, {0: 5, 1: 5, 2: 7, 3: 5})
    assert [(w.rank, w.key, w.group, w.first, w.last) for w in judgement.ops_requests] == [
        (0, 1, 1, 9, 16), (2, 3, 1, 9, 16),
    ]  # fmt: skip
    assert judgement.frame.verdicts == ()
    assert scene.engine.judge(scene.frame()).ops_requests == ()


def test_who_differs_and_in_which_op_is_named_though_nothing_hangs() -> None:
    _, frame = asked({0: ops(BLOCK), 2: ops(BLOCK, n12=MAX)})
    (verdict,) = frame.verdicts
    assert (verdict.kind, verdict.confidence, verdict.culprits) == ("mismatch", "confirmed", (2,))
    assert verdict.parties == ((2,), (0, 1, 3))
    assert verdict.op is not None
    assert (verdict.op.kind, verdict.op.number) == ("all_reduce", 12)
    assert "called all_reduce max float32[1024] at t.py:12 as #12" in verdict.headline
    assert (frame.health, exit_status(frame), verdict.progress) == ("mismatch", 3, "active")


def test_the_first_op_that_differs_counts() -> None:
    barrier = wire.Signature("barrier")
    _, frame = asked({0: ops(BLOCK), 2: ops(BLOCK, n11=barrier, n12=MAX)})
    assert frame.verdicts[0].op == OpName("all_reduce", 11)


def test_nobody_is_blamed_before_all_have_told_or_had_the_time() -> None:
    scene = Scene(4)
    judgement = hear(scene, {0: 5, 2: 7})
    told = {0: ops(BLOCK, n12=MAX), 2: ops(BLOCK)}
    assert answer(scene, judgement.ops_requests, told).verdicts == ()
    frame = hear(scene, {1: 7, 3: 7}).frame
    assert frame.verdicts[0].culprits == (0,)


def test_members_whose_sums_are_lost_are_asked_themselves() -> None:
    """An agent on a full host may be too late for a ring that wraps several times a second."""
    scene = Scene(4)
    judgement = hear(scene, {0: 5, 2: 7})
    told = {0: ops(BLOCK, n12=MAX), 2: ops(BLOCK), 1: ops(BLOCK), 3: ops(BLOCK)}
    assert answer(scene, judgement.ops_requests, told).verdicts == ()
    scene.pass_time(2)
    scene.hear()
    judgement = scene.engine.judge(scene.frame())
    assert [one.rank for one in judgement.ops_requests] == [1, 3]
    frame = answer(scene, judgement.ops_requests, told)
    assert (frame.verdicts[0].culprits, frame.verdicts[0].parties) == ((0,), ((0,), (1, 2, 3)))


def test_a_member_that_tells_nothing_is_not_waited_for_long() -> None:
    scene = Scene(4)
    judgement = hear(scene, {0: 5, 1: 5, 2: 7})
    answer(scene, judgement.ops_requests, {0: ops(BLOCK), 2: ops(BLOCK, n12=MAX)})
    assert scene.settle(2).verdicts[0].culprits == (2,)


def test_ops_that_differ_legally_are_settled() -> None:
    scene = Scene(4)
    scene.does(range(4), "all_reduce")
    judgement = hear(scene, {0: 5, 1: 5, 2: 7, 3: 5})
    reshaped = op_signature("all_reduce", inputs=(wire.TensorSpec("float32", (32, 32)),))
    frame = answer(scene, judgement.ops_requests, {0: ops(BLOCK), 2: ops(BLOCK, n12=reshaped)})
    assert (frame.verdicts, frame.health) == ((), "healthy")
    assert scene.settle(40).verdicts == ()


@pytest.mark.parametrize("left", [(), ops(range(14, 17))])
def test_what_is_overwritten_is_a_suspicion_between_two_ops(left: Ops) -> None:
    scene, frame = asked({0: ops(BLOCK), 2: left})
    (verdict,) = frame.verdicts
    assert (verdict.kind, verdict.confidence, verdict.culprits) == ("mismatch", "suspect", (2,))
    assert verdict.parties == ((2,), (0, 1, 3))
    assert "issued other ops between #9 and #16 of default_pg than ranks 0-1,3" in verdict.headline
    assert verdict.missing
    assert (frame.health, exit_status(frame)) == ("mismatch", 3)
    later = scene.settle(60)
    assert [v.headline for v in later.verdicts] == [verdict.headline]


def test_a_proof_takes_the_place_of_a_suspicion() -> None:
    scene, _ = asked({0: (), 2: ()})
    judgement = hear(scene, {0: 5, 1: 5, 2: 7, 3: 5}, first=17)
    later = range(17, 25)
    frame = answer(scene, judgement.ops_requests, {0: ops(later), 2: ops(later, n20=MAX)})
    (verdict,) = frame.verdicts
    assert (verdict.confidence, verdict.culprits) == ("confirmed", (2,))


def test_a_tie_has_parties_and_no_culprit() -> None:
    scene = Scene(2)
    judgement = hear(scene, {0: 5, 1: 7})
    (verdict,) = answer(scene, judgement.ops_requests, {0: (), 1: ()}).verdicts
    assert (verdict.culprits, verdict.parties) == ((), ((0,), (1,)))
    assert "1 and rank 0 issued different ops" in verdict.headline


def test_a_rank_that_is_reported_is_asked_before_one_that_is_not() -> None:
    scene = Scene(4, hosts=2)
    scene.hear()
    scene.deafen(0)
    scene.pass_time(20)
    scene.hear()
    from_both = {0: 5, 1: 7, 2: 5, 3: 5}
    groups = {1: next(iter(scene.actors[0].groups.values()))}
    key = ("node0", 29500, 4, "run", 0, "nonce")
    ledger = scene.state._checksums._jobs.setdefault(key, JobChecksums())
    for rank, value in from_both.items():
        ledger.add(rank, groups, [wire.BlockSums(1, 9, 8, packed([value]))], scene.now_ns)
    wanted = scene.engine.judge(scene.frame()).ops_requests
    assert {one.rank for one in wanted} == {2, 1}


SPLITS = [((1, 3), (1, 2)), ((2, 2), (4, 2))]


def test_splits_that_do_not_pair_are_asked_of_all() -> None:
    scene = Scene(2)
    wanted = hear(scene, {0: 5, 1: 5}, pairs={0: 3, 1: 4}).ops_requests
    assert [one.rank for one in wanted] == [0, 1]
    told = {
        n: ops(BLOCK, n10=op_signature("all_to_all_single", in_splits=sent, out_splits=taken))
        for n, (sent, taken) in enumerate(SPLITS)
    }
    (verdict,) = answer(scene, wanted, told).verdicts
    assert "splits differ;" in verdict.why.text
    assert verdict.parties == ((0,), (1,))


names = st.sampled_from([
    "all_reduce", "broadcast", "gather", "scatter", "reduce", "all_gather", "reduce_scatter",
    "all_to_all_single", "barrier", "all_reduce_coalesced",
])  # fmt: skip
specs = st.lists(
    st.builds(wire.TensorSpec, st.sampled_from(["float32", "int32"]),
              st.lists(st.integers(1, 3), max_size=2).map(tuple), st.integers(1, 2)),
    min_size=1, max_size=2,
).map(tuple)  # fmt: skip
signatures = st.builds(
    wire.Signature, names, reduce=st.sampled_from(["sum", "max"]), root=st.integers(0, 1),
    inputs=specs, outputs=specs,
)  # fmt: skip


@given(signatures, signatures, st.sampled_from(["gloo", "nccl"]))
def test_texts_are_equal_exactly_when_nothing_differs(
    one: wire.Signature, other: wire.Signature, backend: str
) -> None:
    alike = agreement.agreed(one, backend) == agreement.agreed(other, backend)
    assert alike == (agreement.difference(one, other, backend) is None)


@pytest.mark.parametrize(("signature", "known"), [
    (wire.Signature("all_reduce", inputs=FLOATS), False),
    (wire.Signature("all_reduce", "sum"), False),
    (wire.Signature("broadcast", inputs=FLOATS), False),
    (wire.Signature("broadcast", root=0, inputs=FLOATS), True),
    (wire.Signature("scatter", root=0, outputs=FLOATS), True),
    (wire.Signature("barrier"), True),
    (wire.Signature("all_reduce_coalesced", "sum"), True),
])  # fmt: skip
def test_a_text_is_there_once_all_is_known(signature: wire.Signature, known: bool) -> None:
    assert (agreement.agreed(signature) is not None) is known


def waits_for_answers(scene: Scene, seconds: float) -> Frame:
    """The judgement when nobody has answered for so long."""
    scene.pass_time(seconds)
    scene.hear()
    return scene.engine.judge(scene.frame()).frame


def test_what_nobody_could_compare_is_not_well() -> None:
    scene = Scene(4)
    scene.does(range(4), "all_reduce")
    judgement = hear(scene, {0: 5, 1: 5, 2: 7, 3: 5})
    assert judgement.frame.health == "healthy"
    assert waits_for_answers(scene, 10).health == "healthy"  # they may still come
    frame = waits_for_answers(scene, 11)
    assert (frame.verdicts, frame.health, exit_status(frame)) == ((), "undecided", 4)
    (note,) = frame.notes
    assert note == (
        "checksums of ops of rank 2 and ranks 0-1,3 differ between #9 and #16 of default_pg, but"
        " these ops did not arrive in time: whether they may differ is not known"
    )
    assert waits_for_answers(scene, 10).divergence_hints == ()
    scene.does(range(4), "all_reduce")
    assert waits_for_answers(scene, 1).health == "undecided"


def test_an_answer_that_comes_late_settles_it() -> None:
    scene = Scene(4)
    scene.does(range(4), "all_reduce")
    judgement = hear(scene, {0: 5, 1: 5, 2: 7, 3: 5})
    assert waits_for_answers(scene, 21).health == "undecided"
    reshaped = op_signature("all_reduce", inputs=(wire.TensorSpec("float32", (32, 32)),))
    told = {0: ops(BLOCK), 2: ops(BLOCK, n12=reshaped)}
    frame = answer(scene, judgement.ops_requests, told)
    assert (frame.health, frame.notes) == ("healthy", ())


def test_a_mismatch_that_is_found_says_more_than_ops_that_did_not_come() -> None:
    scene = Scene(4)
    scene.does(range(4), "all_reduce")
    hear(scene, {0: 5, 1: 5, 2: 7, 3: 5})
    waits_for_answers(scene, 21)
    judgement = hear(scene, {0: 5, 1: 5, 2: 7, 3: 5}, first=17)
    later = range(17, 25)
    told = {0: ops(later), 2: ops(later, n20=MAX)}
    frame = answer(scene, judgement.ops_requests, told)
    assert (frame.health, frame.notes) == ("mismatch", ())
