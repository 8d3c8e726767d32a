"""What is held, broken or not known of a job whose steps are known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from features.check.made_up_jobs import (
    DATA,
    TENSOR,
    WORLD,
    Issued,
    facts,
    frame,
    group,
    history,
    mesh,
    usual,
    views,
)
from frtop_tui.features.check.expectations import Outcome, compared, overall
from frtop_tui.features.check.facts import JobFacts, facts_of, steps_of_history
from frtop_tui.features.check.plan import joined, plan_of_words, read_plan
from frtop_tui.features.check.plan_text import left_out, plan_text


def outcomes(found: JobFacts, *words: str) -> dict[str, Outcome]:
    return {one.expectation.key: one for one in compared(plan_of_words(words), found)}


def results(found: JobFacts, *words: str) -> dict[str, str]:
    return {key: one.result for key, one in outcomes(found, *words).items()}


def checked(path: Path, good: JobFacts, found: JobFacts) -> dict[str, Outcome]:
    """What becomes of a plan of the good run, except for what is held."""
    path.write_text(plan_text(good, 10**18))
    plan = read_plan(path)
    assert plan.expectations
    return {one.expectation.key: one for one in compared(plan, found) if one.result != "held"}


def varying(rank: int, step: int) -> list[Issued]:
    """Experts on other ranks: in each step other tokens, and messages to other ranks."""
    return [
        Issued(WORLD, "all_to_all_single", 2, 100 + 7 * rank + 13 * (step % 5)),
        Issued(WORLD, "send", 1 + (step + rank) % 3),
    ]


def uneven(rank: int, step: int) -> list[Issued]:
    """A pipeline: the first stage receives nothing, and every tenth step has a log."""
    log = [Issued(WORLD)] if step % 10 == 0 else []
    return [Issued(DATA, "recv", 3), *log] if rank > 1 else [Issued(DATA, "send", 3), *log]


def plain(rank: int, step: int) -> list[Issued]:
    return [Issued(WORLD, ops=6)]


@pytest.mark.parametrize("program", [usual, varying, uneven, plain])
def test_the_run_that_a_plan_is_from_holds_it_later_and_slower(
    program: Callable[[int, int], list[Issued]], tmp_path: Path
) -> None:
    good, path = facts(program, steps=40), tmp_path / "plan.toml"
    assert checked(path, good, good) == {}
    assert checked(path, good, facts(program, steps=9, step_ms=180)) == {}
    assert checked(path, good, facts(program, steps=60, step_ms=60)) == {}


BROKEN = {
    "an extra op": (
        lambda rank, step: [*usual(rank, step), Issued(TENSOR)],
        {"ops.mesh_tp.all_reduce.count": "5 on ranks 0-3",
         "ops.mesh_tp.all_reduce.bytes": "20,000 bytes on ranks 0-3"},
    ),
    "another dtype": (
        lambda *_: [Issued(TENSOR, ops=4), Issued(DATA, "reduce_scatter_tensor", 2, 2048)],
        {"ops.mesh_dp.reduce_scatter_tensor.bytes": "16,384 bytes on ranks 0-3",
         "ops.mesh_dp.reduce_scatter_tensor.dtypes": "float32 on ranks 0-3"},
    ),
    "an op of another kind": (
        lambda rank, step: [*usual(rank, step), Issued(WORLD, "broadcast")],
        {"step.other-ops": "broadcast in default_pg on ranks 0-3"},
    ),
    "one rank": (
        lambda rank, step: [*usual(rank, step), *[Issued(TENSOR)] * (rank == 2)],
        {"ops.mesh_tp.all_reduce.count": "5 on rank 2",
         "ops.mesh_tp.all_reduce.bytes": "20,000 bytes on rank 2"},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("program", "expected"), BROKEN.values(), ids=BROKEN)
def test_what_steps_have_otherwise_is_named_with_its_ranks(
    program: Callable[[int, int], list[Issued]], expected: dict[str, str], tmp_path: Path
) -> None:
    found = checked(tmp_path / "plan.toml", facts(), facts(program))
    assert {key: one.found for key, one in found.items()} == expected
    assert {one.result for one in found.values()} == {"broken"}


def test_another_mesh_is_named(tmp_path: Path) -> None:
    other = facts(groups=lambda rank: mesh(rank, tensor=4, world=8), world=8)
    found = checked(tmp_path / "plan.toml", facts(), other)
    said = {key: one.found for key, one in found.items() if one.result == "broken"}
    assert said == {
        "job.world-size": "8",
        "groups.default_pg.ranks": "8 (group 0-7)",
        "groups.mesh_dp.groups": "4",
        "groups.mesh_tp.ranks": "4 (groups 0,1,2,3; 4,5,6,7)",
    }
    gone = facts(plain, groups=lambda _: {WORLD: group(WORLD, "default_pg", "0-3")})
    (one,) = outcomes(gone, "groups.mesh_tp.ranks=2").values()
    assert (one.result, one.found) == ("broken", "no group of this name; there is default_pg")


def test_a_job_that_is_slower_by_more_than_the_plan_allows_is_named(tmp_path: Path) -> None:
    found = checked(tmp_path / "plan.toml", facts(), facts(step_ms=250))
    assert found["step.seconds"].found == "0.25 s on ranks 0-3"
    few = checked(tmp_path / "plan.toml", facts(), facts(step_ms=250, steps=6))
    assert few["step.seconds"].result == "not known"  # four slow steps may be chance
    assert "0.25 s so far, as expected in 0 of 4 steps" in few["step.seconds"].why


def test_what_most_steps_have_decides() -> None:
    def now_and_then(rank: int, step: int) -> list[Issued]:
        return [*usual(rank, step), *[Issued(TENSOR, ops=9)] * (step % 4 == 0)]

    def every_other(rank: int, step: int) -> list[Issued]:
        return [*usual(rank, step), *[Issued(TENSOR)] * (step % 2)]

    words = ("ops.mesh_tp.all_reduce.count=4", "step.other-ops=false",
             "ops.mesh_dp.reduce_scatter_tensor.count=2")  # fmt: skip
    assert set(results(facts(now_and_then, steps=20), *words).values()) == {"held"}
    (one,) = outcomes(facts(every_other, steps=12), words[0]).values()
    assert (one.result, one.why) == ("not known", "as expected in 5 of 10 steps (ranks 0-3)")
    assert results(facts(every_other), "ops.mesh_tp.all_reduce.count=[4, 5]") == {
        "ops.mesh_tp.all_reduce.count": "held"
    }


def test_what_is_not_known_is_never_held_and_says_why() -> None:
    some = views(step=1)
    some[1] = replace(some[1], identity=replace(some[1].identity, prepared=False))
    begun = facts_of(frame(some[:3], 4), {})
    found = outcomes(
        begun, "job.world-size=4", "settings.torch=2.13.0", "settings.NCCL_ALGO=Tree",
        "groups.mesh_tp.groups=2", "groups.mesh_tp.ranks=2", "groups.mesh_tp.backend=nccl",
        "groups.mesh_pp.ranks=2", "step.seconds=1", "step.other-ops=false",
        "ops.mesh_tp.all_reduce.count=4", "ops.mesh_pp.send.count=1",
        "ops.mesh_tp.all_reduce.dtypes=float32",
    )  # fmt: skip
    known = {"job.world-size": "held", "settings.NCCL_ALGO": "broken",
             "groups.mesh_tp.backend": "broken"}  # fmt: skip
    assert {key: one.result for key, one in found.items()} == {
        key: known.get(key, "not known") for key in found
    }
    assert found["settings.torch"].why == "no recorder (rank 1); it has not reported (rank 3)"
    assert "no recorder (rank 1)" in found["ops.mesh_tp.all_reduce.count"].why
    assert "0 of 3 steps have ended since the first 2 (ranks 0,2)" in found["step.seconds"].why
    assert overall(found.values()) == "broken"
    assert overall([found["step.seconds"], found["job.world-size"]]) == "not known"


def test_steps_that_were_not_seen_whole_do_not_count() -> None:
    whole = history(0, steps=12)
    columns = whole.columns
    assert columns is not None
    (view, *_) = views()
    found = steps_of_history(whole, view.groups)
    assert [step.number for step in found] == list(range(3, 13))
    # Its last op was read before the last step ended.
    early = replace(whole, marks=(*whole.marks, replace(whole.marks[-1], number=13,
                                                        end_ns=10**18)))  # fmt: skip
    assert steps_of_history(early, view.groups) == found
    # An op of step 5 cannot be read: as if the ring had overwritten it.
    wide = replace(columns.sequence, width=1, differences=bytes([1] * 27 + [2] + [1] * 50))
    damaged = replace(whole, columns=replace(columns, sequence=wide))
    assert [step.number for step in steps_of_history(damaged, view.groups)] == [3, 4, *range(6, 13)]


def test_groups_whose_number_is_their_axis_are_apart() -> None:
    def numbered(rank: int) -> dict[int, object]:
        one, other = ("0,1", "2,3"), ("0,2", "1,3")
        return {
            TENSOR: group(TENSOR, "mesh_dim_1", one[rank // 2]),
            DATA: group(DATA, "mesh_dim_0", other[rank % 2]),
        }

    found = facts(groups=numbered)  # type: ignore[arg-type]
    assert list(found.groups) == ["mesh_dim_0", "mesh_dim_1"]

    def nameless(rank: int) -> dict[int, object]:
        return {TENSOR: group(TENSOR, "", f"{rank // 2 * 2}-{rank // 2 * 2 + 1}"),
                DATA: group(DATA, "undefined", f"{rank}")}  # fmt: skip

    assert list(facts(groups=nameless).groups) == ["unnamed of 1", "unnamed of 2"]  # type: ignore[arg-type]


def test_names_from_a_job_are_escaped(tmp_path: Path) -> None:
    hostile = 'tp"\x1b]0;x\n[job]\\'
    found = facts(groups=lambda rank: {**mesh(rank), TENSOR: group(TENSOR, hostile, "0-3")})
    assert checked(tmp_path / "plan.toml", found, found) == {}
    assert (tmp_path / "plan.toml").read_text().replace("\n", "").isprintable()


def test_a_plan_has_only_what_was_measured() -> None:
    assert "# bytes = [" in plan_text(facts(varying, steps=40), 0)
    assert "count = [1, 3]" in plan_text(facts(varying, steps=40), 0)
    text = plan_text(facts(uneven, steps=40), 0)
    assert "count = [0, 3]" in text
    assert "# [ops.default_pg.all_reduce] is left out: only 16 steps of all ranks had one" in text
    assert "NCCL_ALGO" in text
    assert "paths: NCCL_DEBUG_FILE" in text
    begun = facts(steps=2)
    assert left_out(begun).startswith("0 of 3 steps have ended")
    assert "[ops" not in plan_text(begun, 0)
    assert "[groups.mesh_tp]" in plan_text(begun, 0)


def test_a_word_replaces_what_the_file_says() -> None:
    found = joined([plan_of_words(["job.world-size=4", "job.world-size=5"])])
    (one,) = compared(found, facts())
    assert (one.result, one.found) == ("broken", "4")
