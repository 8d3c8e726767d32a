"""Different ops at the same place, and differences that are none."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from diagnosis.scenes import FLOATS, SECOND, Scene, frame, only, three_wait, told
from frtop_probe import wire
from frtop_probe.consistency.signatures import difference
from frtop_probe.ring.rank_ranges import fold
from frtop_tui.diagnosis.model import Verdict
from frtop_tui.text.exit_status import exit_status
from frtop_tui.text.json_document import document

MORE = (wire.TensorSpec("float32", (1025,)),)
DOUBLES = (wire.TensorSpec("float64", (1024,)),)
RESHAPED = (wire.TensorSpec("float32", (32, 32)),)
TWO_HALVES = (wire.TensorSpec("float32", (512,), 2),)


def sign(kind: str = "all_reduce", **fields: Any) -> wire.Signature:
    return wire.Signature(kind, **{"inputs": FLOATS, **fields})


@pytest.mark.parametrize(("one", "other", "field"), [
    (sign(), sign("barrier"), "kind"),
    (sign(), sign("broadcast"), "kind"),
    (sign(reduce="sum"), sign(reduce="max"), "reduce op"),
    (sign("broadcast", root=0), sign("broadcast", root=1), "root"),
    (sign(), sign(inputs=MORE), "size"),
    (sign(), sign(inputs=DOUBLES), "dtype"),
    (sign("all_gather", outputs=FLOATS), sign("all_gather", outputs=MORE), "size"),
    (sign("gather", root=0), sign("gather", root=0, inputs=MORE), "size"),
    (sign("scatter", inputs=None, outputs=FLOATS), sign("scatter", outputs=MORE), "size"),
    (sign("all_to_all"), sign("all_to_all", inputs=DOUBLES), "dtype"),
    (sign("reduce", root=0, reduce="sum"), sign("reduce", root=3, reduce="sum"), "root"),
])  # fmt: skip
def test_an_illegal_difference_is_named(
    one: wire.Signature, other: wire.Signature, field: str
) -> None:
    assert difference(one, other, "gloo") == field
    assert difference(other, one, "gloo") == field


@pytest.mark.parametrize(("one", "other"), [
    (sign(), sign()),
    (sign(reduce="sum"), sign(reduce=None)),
    (sign("broadcast", root=None), sign("broadcast", root=3)),
    (sign(), sign(inputs=None)),
    (sign(), sign(inputs=())),
    (sign(), sign(inputs=RESHAPED)),
    (sign(), sign(inputs=TWO_HALVES)),
    (sign("gather", root=0, outputs=FLOATS), sign("gather", root=0, outputs=None)),
    (sign("gather", root=0, outputs=FLOATS), sign("gather", root=0, outputs=MORE)),
    (sign("scatter", root=0, outputs=FLOATS), sign("scatter", inputs=MORE, outputs=FLOATS)),
    (sign("all_to_all"), sign("all_to_all", inputs=MORE)),
    (sign("all_to_all_single", in_splits=(1, 2)), sign("all_to_all_single", inputs=MORE)),
    (sign("barrier", inputs=FLOATS), sign("barrier", inputs=MORE)),
    (sign("all_reduce_coalesced"), sign("all_reduce_coalesced", inputs=MORE)),
    (sign(inputs=(wire.TensorSpec("float32", (1024,), 1, "cuda:0"),)),
     sign(inputs=(wire.TensorSpec("float32", (1024,), 1, "cuda:1"),))),
])  # fmt: skip
def test_a_legal_or_unknown_difference_is_none(one: wire.Signature, other: wire.Signature) -> None:
    assert difference(one, other, "gloo") is None
    assert difference(other, one, "gloo") is None


@pytest.mark.parametrize(("backend", "field"), [("gloo", "size"), ("nccl", None)])
def test_uneven_lists_are_legal_on_nccl_only(backend: str, field: str | None) -> None:
    one, other = sign("all_gather", outputs=FLOATS), sign("all_gather", outputs=MORE)
    assert difference(one, other, backend) == field


def test_the_minority_is_named_against_the_majority() -> None:
    scene = three_wait(3)
    scene.waits([2], "barrier", for_s=3, site="train.py:99")
    found = scene.settle()
    verdict = only(found)
    assert (verdict.kind, verdict.culprits, fold(verdict.victims)) == ("mismatch", (2,), "0-1,3")
    assert verdict.parties == ((2,), (0, 1, 3))
    assert "rank 2 (node0 pid 1002) called barrier at train.py:99 as #8" in verdict.headline
    assert (verdict.confidence, verdict.progress) == ("confirmed", "none")
    assert found.health == "mismatch"
    assert exit_status(found) == 3
    assert verdict.left_s is not None
    assert 1700 < verdict.left_s < 1797, "of the group's 1,800 s"


@pytest.mark.parametrize("unknown", [False, True], ids=["a framework's line", "no line"])
def test_the_line_of_the_program_that_led_to_an_op_is_told(unknown: bool) -> None:
    fabric, c10d = (
        "/lib/python3/site-packages/fabric/comm.py:247",
        "torch/distributed/distributed_c10d.py:9",
    )
    site = None if unknown else fabric
    scene = three_wait(3, site=site)
    scene.waits([2], "barrier", for_s=3, site=site)
    scene.at(2, frame(c10d, "barrier"), frame(fabric), frame("train.py:40", "validate"))
    scene.at(0, frame(c10d, "all_reduce"), frame("train.py:90", "main"))
    evidence = only(scene.settle()).evidence
    assert any(line.endswith("; rank 2 waits at train.py:40 (validate)") for line in evidence)
    assert any(line.endswith("; rank 0 waits at train.py:90 (main)") for line in evidence)


def test_a_line_that_the_op_has_is_told_once() -> None:
    scene = three_wait(3)
    scene.waits([2], "barrier", for_s=3, site="train.py:99")
    c10d = frame("torch/distributed/distributed_c10d.py:9", "barrier")
    scene.at(2, c10d, frame("train.py:99", "validate"))
    scene.sleeps(0)
    assert not any("waits at" in line for line in only(scene.settle()).evidence)


@pytest.mark.parametrize(("in_it", "for_s", "says"), [
    ([0, 1, 3], 9, "; the job hangs: ranks 0-3 wait"),
    ([0, 1, 3], 0.6, "; ranks 0-3 wait"),  # it may end yet
    ([0, 1], 9, "; ranks 0-2 wait"),  # rank 3 goes on
])  # fmt: skip
def test_the_headline_says_that_the_job_hangs(in_it: list[int], for_s: float, says: str) -> None:
    scene = Scene(4)
    scene.waits(in_it, "all_reduce", for_s=for_s, usual_count=0)
    scene.waits([2], "barrier", for_s=for_s, usual_count=0)
    assert only(scene.judge().frame).headline.endswith(says)


@pytest.mark.parametrize(("site", "step"), [
    ("train.py:20", "see what sets the reduce op at train.py:20 on ranks 2 and 0"),
    ("train.py:99", "compare the calls of rank 2 up to #8 of default_pg with those of rank 0"),
])  # fmt: skip
def test_the_next_step_is_where_the_difference_came_from(site: str, step: str) -> None:
    scene = three_wait(3, reduce="sum")
    scene.waits([2], "all_reduce", for_s=3, reduce="max", site=site)
    assert only(scene.settle()).next.startswith(step)


def test_it_stays_found_when_an_agent_has_forgotten_who_it_was() -> None:
    scene = three_wait(3)
    scene.waits([2], "barrier", for_s=3)
    scene.settle()
    scene.gone(2)
    assert only(scene.settle()).culprits == (2,)


@pytest.mark.parametrize("parties", [((0,), (1,)), ((0, 1), (2, 3)), ((0, 1), (2,), (3,))])
def test_without_a_majority_nobody_is_to_blame(parties: tuple[tuple[int, ...], ...]) -> None:
    scene = Scene(sum(map(len, parties)))
    for ranks, kind in zip(parties, ("all_reduce", "barrier", "all_gather"), strict=False):
        scene.waits(ranks, kind, for_s=3)
    assert told(scene.settle(), "culprits", "parties") == ((), parties)


def test_wrong_data_without_a_hang_is_told_from_the_stream() -> None:
    scene = Scene(4)
    scene.does([0, 1, 3], "all_reduce", ago=0.2)
    scene.does([2], "all_reduce", ago=0.2, reduce="max")
    found = scene.settle(0)
    verdict = only(found)
    assert (verdict.kind, verdict.culprits) == ("mismatch", (2,))
    assert (verdict.progress, fold(verdict.victims)) == ("active", "")
    assert "wait" not in verdict.headline
    assert "reduce op differs; data may be wrong without any error" in verdict.why.text
    assert exit_status(found) == 3


def test_a_hang_long_after_a_disagreement_has_its_own_verdict() -> None:
    scene = Scene(4)
    scene.does([0, 1, 3], "all_reduce", ago=0.2)
    scene.does([2], "all_reduce", ago=0.2, reduce="max")
    scene.judge()
    for _ in range(10):
        scene.does(range(4), "all_reduce", ago=0.2)
    scene.pass_time(10)
    scene.waits([0, 1, 2], "all_reduce", for_s=8)
    scene.sleeps(3)
    found = scene.settle()
    assert [verdict.kind for verdict in found.verdicts] == ["not_entered", "mismatch"]
    assert found.verdicts[0].culprits == (3,)


def test_aborts_follow_from_the_disagreement() -> None:
    scene = Scene(4)
    scene.does([0, 1, 3], "all_reduce", ago=1.1)
    scene.does([2], "all_reduce", ago=1.1, inputs=MORE)
    scene.ends(0, signal=6, ago=1.0)
    for rank in (1, 2, 3):
        scene.raises(rank, "RuntimeError", "Connection closed by peer", ago=0.9)
    verdict = only(scene.settle())
    assert (verdict.kind, verdict.culprits, fold(verdict.victims)) == ("mismatch", (2,), "0-1,3")
    assert "size differs; the deaths follow from it" in verdict.why.text


def test_a_disagreement_is_as_old_as_the_first_op_in_it() -> None:
    scene = Scene(4, hosts=4)
    scene.does([0, 1], "all_reduce", ago=302)
    scene.does([3], "all_reduce", ago=301)
    scene.does([2], "all_reduce", ago=300, reduce="max")
    found = scene.judge().frame
    assert (found.now_ns - found.since_ns) / SECOND == pytest.approx(302)
    assert only(found).since_ns == found.since_ns
    assert "ended" not in only(found).why.text


@pytest.mark.parametrize("ending", [{"exit_code": 0, "clean": True}, {"signal": 6}])
def test_a_disagreement_of_a_job_that_is_over_says_so(ending: dict[str, Any]) -> None:
    scene = Scene(4)
    scene.does([0, 1, 3], "all_reduce", ago=300)
    scene.does([2], "all_reduce", ago=300, reduce="max")
    for rank in range(4):
        scene.ends(rank, ago=299, **ending)
    verdict = only(scene.settle())
    assert (verdict.kind, verdict.progress) == ("mismatch", "none")
    assert verdict.why.text.endswith("; the job has ended")


def test_an_exception_beside_a_disagreement_is_its_own_root() -> None:
    scene = Scene(4)
    scene.does([0, 1, 3], "all_reduce", ago=1.1)
    scene.does([2], "all_reduce", ago=1.1, reduce="max")
    scene.raises(1, "ValueError", "bad label")
    kinds = {verdict.kind for verdict in scene.settle().verdicts}
    assert kinds == {"mismatch", "dead"}


def test_what_cannot_be_compared_is_no_mismatch() -> None:
    messages = Scene(4)
    messages.waits([0], "send", for_s=1, p2p=True, sync=False, peer=1)
    messages.waits([1], "recv", for_s=1, p2p=True, sync=False, peer=0)
    messages.waits([2], "send", for_s=1, p2p=True, sync=False, peer=3, inputs=MORE)
    relative_numbers = Scene(4, exact=False)
    relative_numbers.does([0, 1, 3], "all_reduce", ago=0.2)
    relative_numbers.does([2], "barrier", ago=0.2)
    other_groups = Scene(4)
    for name, ranks, kind in (("9", [0, 1], "all_reduce"), ("9b", [2, 3], "barrier")):
        other_groups.group(name, ranks, name)
        other_groups.does(ranks, kind, group=name, ago=0.2)
    other_lines = Scene(4)
    other_lines.does([0, 1, 3], "all_reduce", ago=0.2)
    other_lines.does([2], "all_reduce", ago=0.2, site="train.py:999")
    for scene in (messages, relative_numbers, other_groups, other_lines):
        assert not scene.settle(0).verdicts


def test_pairs_of_splits_have_to_agree() -> None:
    scene = Scene(2)
    scene.does([0], "all_to_all_single", ago=0.2, in_splits=(1, 3), out_splits=(1, 2))
    scene.does([1], "all_to_all_single", ago=0.2, in_splits=(2, 2), out_splits=(4, 2))
    verdict = only(scene.settle(0))
    assert "splits differ;" in verdict.why.text
    assert verdict.parties == ((0,), (1,))
    assert verdict.headline == "rank 0 sends 3 rows to rank 1, which expects 4, at #8 of default_pg"


def test_a_rank_whose_splits_pair_with_nobodys_is_named() -> None:
    scene = Scene(4)
    scene.does([0, 1, 3], "all_to_all_single", ago=0.2, in_splits=(2,) * 4, out_splits=(2,) * 4)
    scene.does([2], "all_to_all_single", ago=0.2, in_splits=(2,) * 4, out_splits=(1, 1, 2, 1))
    verdict = only(scene.settle(0))
    assert (verdict.culprits, verdict.parties) == ((2,), ((2,), (0, 1, 3)))
    assert (
        "expects 1 row of rank 0, which sends 2, at #8 of default_pg, and 2 more"
        in verdict.headline
    )
    assert "rank 3 sends 2 rows to rank 2, which expects 1" in verdict.evidence
    assert any(one.startswith("rank 0: all_to_all_single") for one in verdict.evidence)


def test_a_rank_that_sends_more_than_others_expect_is_named() -> None:
    """All splits vary: those of one rank are not shown as those of all."""
    sizes = [[14, 3, 9], [6, 6, 6], [15, 2, 8]]  # by sender
    scene = Scene(3)
    for rank in range(3):
        takes = [row[rank] for row in sizes]
        if rank == 0:
            takes[2] = 14
        scene.does(
            [rank], "all_to_all_single", ago=0.2,
            in_splits=tuple(sizes[rank]), out_splits=tuple(takes),
        )  # fmt: skip
    verdict = only(scene.settle(0))
    assert (
        verdict.headline == "rank 2 sends 15 rows to rank 0, which expects 14, at #8 of default_pg"
    )
    assert not any(one.startswith("ranks") for one in verdict.evidence)


def test_one_pair_of_splits_that_does_not_fit_blames_neither() -> None:
    scene = Scene(4)
    scene.does([0, 1, 3], "all_to_all_single", ago=0.2, in_splits=(2,) * 4, out_splits=(2,) * 4)
    scene.does([2], "all_to_all_single", ago=0.2, in_splits=(2,) * 4, out_splits=(2, 1, 2, 2))
    assert told(scene.settle(0), "culprits", "parties") == ((), ((1,), (2,)))


def test_uneven_splits_that_agree_in_pairs_are_legal() -> None:
    scene = Scene(2)
    scene.does([0], "all_to_all_single", ago=0.2, in_splits=(1, 3), out_splits=(1, 2))
    scene.does([1], "all_to_all_single", ago=0.2, in_splits=(2, 2), out_splits=(3, 2))
    assert not scene.settle(0).verdicts


def test_what_waits_for_ranks_in_disagreement_follows_from_it() -> None:
    scene = Scene(8)
    scene.group("1", [0, 1, 2, 3], "tp")
    scene.waits([0, 1], "all_reduce", for_s=20, group="1")
    scene.waits([2], "barrier", for_s=20, group="1")
    scene.waits([3], "all_reduce", for_s=20, group="1")
    scene.waits([4, 5, 6, 7], "all_reduce", for_s=19)
    assert told(scene.settle(), "kind", "culprits") == ("mismatch", (2,))


def test_ops_of_looks_tell_where_the_paths_parted() -> None:
    scene = Scene(4)
    scene.does([0, 1, 3], "all_reduce", ago=5, told=False)
    scene.does([2], "all_gather", ago=5, told=False)
    scene.hear()
    for rank, actor in scene.actors.items():
        look = scene.look_of(actor)
        look = wire.Snapshot(look.key, look.at_ns, ops=tuple(actor.recent))
        scene.state.apply_snapshots("node0", wire.SnapshotResponse(rank, "node0", (look,)))
        scene.at(rank, frame("train.py:5"), active=True)
    assert told(scene.engine.judge(scene.frame()).frame, "kind", "culprits") == ("mismatch", (2,))


def test_the_rings_of_the_dead_tell_what_the_last_update_did_not() -> None:
    scene = Scene(4)
    scene.does([0, 1, 3], "all_reduce", ago=1.1, told=False)
    scene.does([2], "all_reduce", ago=1.1, inputs=MORE, told=False)
    scene.ends(1, signal=6, ago=1.0)
    for rank in (0, 2, 3):
        scene.raises(rank, "RuntimeError", "Connection closed by peer", ago=0.9)
    scene.hear()
    judgement = scene.engine.judge(scene.frame())
    assert told(judgement.frame, "kind", "culprits") == ("undecided", ())
    assert not judgement.frame.notes
    assert {(wanted.key, wanted.stacks) for wanted in judgement.look_requests} == {
        (1, False), (2, False), (3, False), (4, False),
    }  # fmt: skip
    scene.look(judgement)
    assert told(scene.settle(), "kind", "culprits") == ("mismatch", (2,))


@pytest.mark.parametrize("ring", [True, False])
def test_an_abort_without_a_disagreement_is_confirmed_in_the_end(*, ring: bool) -> None:
    scene = Scene(4)
    scene.ends(1, signal=6, ago=1.0)
    for actor in scene.actors.values():
        actor.recent = actor.recent if ring else []
    assert only(scene.judge().frame).culprits == ()
    found = scene.settle(4 if ring else 8)
    assert told(found, "kind", "culprits", "confidence") == ("dead", (1,), "confirmed")


def test_a_death_long_after_a_disagreement_does_not_follow_from_it() -> None:
    scene = Scene(4)
    scene.does([0, 1, 2], "all_reduce", number=8, ago=3600)
    scene.does([3], "all_reduce", number=8, ago=3600, reduce="max")
    scene.settle(1)
    scene.does(range(4), "all_reduce", number=5000, ago=5)
    for actor in scene.actors.values():
        actor.recent = actor.recent[-1:]
    scene.settle(1)
    scene.ends(2, signal=6, ago=1)
    for rank in (0, 1, 3):
        scene.raises(rank, "RuntimeError", "Connection closed by peer", ago=0.8)
    death, mismatch = scene.settle().verdicts
    assert (death.kind, death.culprits) == ("dead", (2,))
    assert (mismatch.kind, fold(mismatch.victims)) == ("mismatch", "")
    assert "data may be wrong" in mismatch.why.text


def test_who_counts_from_another_op_on_and_waits_in_another_one_disagrees() -> None:
    scene = Scene(4)
    late = scene.actors[2]
    late.groups[1] = wire.Group(1, "0", "default_pg", "gloo", "0-3", False, 0, 1800.0)
    scene.waits([0, 1, 3], "all_reduce", for_s=5)
    scene.waits([2], "barrier", for_s=5, number=2, site="train.py:99")
    verdict = only(scene.settle())
    assert (verdict.kind, verdict.culprits) == ("mismatch", (2,))
    assert (verdict.op is not None, verdict.op and verdict.op.number) == (True, None)
    assert "rank 2" in verdict.missing[0]


def test_who_counts_from_another_op_on_and_waits_in_the_same_does_not_disagree() -> None:
    scene = Scene(4)
    late = scene.actors[2]
    late.groups[1] = wire.Group(1, "0", "default_pg", "gloo", "0-3", False, 0, 1800.0)
    scene.waits([0, 1, 3], "all_reduce", for_s=5)
    scene.waits([2], "all_reduce", for_s=5, number=2)
    assert only(scene.settle()).kind != "mismatch"


def test_whoever_is_reported_first_is_no_majority_yet() -> None:
    scene = Scene(6, hosts=2)
    scene.does([0, 1], "barrier", ago=0.4)
    scene.does([2, 3, 4, 5], "all_reduce", ago=0.4)
    scene.deafen(1)
    assert only(scene.judge().frame).culprits == ()
    scene.deaf.clear()
    assert only(scene.judge().frame).culprits == (0, 1)


def test_members_on_a_silent_host_may_be_the_majority() -> None:
    scene = Scene(6, hosts=2)
    scene.hear()
    scene.waits([0, 1], "barrier", for_s=1)
    scene.waits([2], "all_reduce", for_s=1)
    scene.deafen(1)
    scene.pass_time(9)
    assert told(scene.settle(), "kind", "culprits", "parties") == ("mismatch", (), ((0, 1), (2,)))


def test_a_mismatch_says_which_module_issued_the_ops() -> None:
    one, other = (wire.Issuer("forward", f"layers.{place}.mlp", "Net") for place in (1, 2))
    same, different = (_in_modules(issuers) for issuers in ((one, one), (one, other)))
    assert same.headline.count("(forward of layers.1.mlp)") == 1
    assert "default_pg (forward of layers.1.mlp), where" in same.headline
    assert "(forward of layers.2.mlp)" in different.headline
    assert "broadcast root 0 float32[1024] (forward of layers.2.mlp)" in different.evidence[1]
    assert "(" not in same.next
    assert different.issuer == one


def _in_modules(issuers: tuple[wire.Issuer, wire.Issuer]) -> Verdict:
    scene = three_wait(3)
    scene.waits([2], "broadcast", root=0, for_s=3)
    for rank, actor in scene.actors.items():
        actor.pending = [replace(op, issuer=issuers[rank == 2]) for op in actor.pending]
        actor.recent = [replace(op, issuer=issuers[rank == 2]) for op in actor.recent]
        actor.group_progress = {
            local: replace(progress, last=actor.pending[-1])
            for local, progress in actor.group_progress.items()
        }
    found = scene.settle()
    json_of = document(found)
    assert json_of["verdicts"][0]["op"]["module"] == "Net.layers.1.mlp"
    assert json_of["ranks"]["2"]["blocked_on"]["module"] == f"Net.{issuers[1].path}"
    return only(found)


def test_of_two_all_to_alls_whose_splits_do_not_pair_the_one_that_passed_is_the_root() -> None:
    """Experts: the return trip differs because the way there did."""
    scene = Scene(4)
    even = (4, 4, 4, 4)
    for rank in range(4):
        taken = (5, 4, 4, 4) if rank == 1 else even
        scene.does([rank], "all_to_all_single", ago=6.0, in_splits=even, out_splits=taken)
        scene.waits([rank], "all_to_all_single", for_s=5.0, in_splits=taken, out_splits=even)
    first = only(scene.judge().frame)
    assert first.op is not None
    assert (first.op.number, first.confidence) == (9, "suspect")  # what came before is not known
    verdict = only(scene.settle())
    assert verdict.confidence == "confirmed"
    assert verdict.op is not None
    assert (verdict.kind, verdict.op.number, set(verdict.parties)) == ("mismatch", 8, {(0,), (1,)})
    assert verdict.headline.startswith("rank 0 sends 4 rows to rank 1, which expects 5")
