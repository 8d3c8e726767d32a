"""Comparing verdicts with the ground truth, and the wording of the zoo's table."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from flightrecorder.writer import make_recorders, write_dumps
from frtop_tui.diagnosis.model import Frame, Verdict, Why
from frtop_tui.files.flightrecorder.dump_file import read_values
from zoo import table
from zoo.dumps import repair_groups, torchfrtrace_text
from zoo.ground_truth import Case, Truth
from zoo.runner import case_of, description_of, names
from zoo.wording import blame_text, truth_text, verdict_text
from zoo.worker import Run

SLEEPING = Truth(("not_entered",), culprits=(1,), causes=("sleeping",), says=("time.sleep",))
VERDICT = Verdict(
    kind="not_entered",
    confidence="confirmed",
    progress="none",
    culprits=(1,),
    parties=(),
    headline="rank 1 has not entered",
    why=Why("sleeping", "software", "MainThread sleeps in time.sleep"),
    next="",
    victims=frozenset({0, 2, 3}),
    group=None,
    op=None,
    since_ns=0,
    left_s=None,
)
TIE = Truth(("mismatch",), parties=((0,), (1,)))


def frame(health: str, *verdicts: Verdict) -> Frame:
    return cast("Frame", SimpleNamespace(health=health, verdicts=verdicts))


def test_a_right_verdict_is_confirmed() -> None:
    case = Case((SLEEPING,))
    assert case.identified([VERDICT])
    assert case.confirmed([VERDICT])
    assert not case.innocents([VERDICT])


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"kind": "stuck"}, "kind stuck, not not_entered"),
        ({"culprits": (1, 2)}, "culprits (1, 2), not (1,)"),
        ({"why": Why("lock", "software", "in time.sleep")}, "cause lock, not sleeping"),
        ({"progress": "active"}, "progress active, not none"),
        ({"why": Why("sleeping", "software", "asleep")}, "the text lacks 'time.sleep'"),
        ({"confidence": "suspect"}, "never confirmed"),
    ],
)
def test_a_mistake_is_described(changed: dict[str, Any], text: str) -> None:
    case, verdict = Case((SLEEPING,)), replace(VERDICT, **changed)
    assert not case.confirmed([verdict])
    assert text in case.mistakes([verdict])


def test_culprits_may_be_named_before_progress_is_known() -> None:
    early = replace(VERDICT, progress="unknown", confidence="suspect")
    assert Case((SLEEPING,)).identified([early])
    assert not Case((SLEEPING,)).confirmed([early])


def test_two_root_causes_need_exactly_two_verdicts() -> None:
    other = Truth(("dead",), culprits=(3,))
    dead = replace(VERDICT, kind="dead", culprits=(3,))
    case = Case((SLEEPING, other))
    assert case.confirmed([dead, VERDICT])
    assert not case.identified([VERDICT])
    assert not case.identified([VERDICT, VERDICT])
    assert not case.identified([VERDICT, dead, replace(VERDICT, kind="undecided", culprits=())])
    assert "1 verdicts, not 2" in case.mistakes([VERDICT])


def test_a_suspicion_suffices_where_frtop_cannot_confirm() -> None:
    suspected = replace(SLEEPING, suspected="one look only")
    assert Case((suspected,)).confirmed([replace(VERDICT, confidence="suspect")])


def test_parties_are_compared_in_any_order() -> None:
    verdict = replace(VERDICT, kind="mismatch", culprits=(), parties=((1,), (0,)))
    assert Case((TIE,)).identified([verdict])
    assert not Case((TIE,)).identified([replace(verdict, parties=((0, 1),))])


def test_innocent_ranks_are_found_in_right_verdicts_too() -> None:
    assert Case((SLEEPING,)).innocents([VERDICT, replace(VERDICT, culprits=(0, 1))]) == [0]
    assert Case((TIE,)).innocents([replace(VERDICT, culprits=(0,))]) == [0]


@pytest.mark.parametrize("health", ["hung", "dead", "diverged"])
def test_calling_a_healthy_job_hung_is_a_false_claim(health: str) -> None:
    assert Case().false_claim(frame(health))
    assert Case(allowed=(SLEEPING,)).false_claim(frame(health, VERDICT))


def test_calling_a_held_up_job_hung_is_a_false_claim() -> None:
    held_up = Case((replace(SLEEPING, progress=("active",)),))
    assert "called hung" in held_up.false_claim(frame("hung", VERDICT))
    assert not held_up.false_claim(frame("held up", VERDICT))
    assert not Case((SLEEPING,)).false_claim(frame("hung", VERDICT))
    assert "innocent [0]" in Case((SLEEPING,)).false_claim(
        frame("hung", replace(VERDICT, culprits=(0,)))
    )


def test_a_control_may_be_held_up_by_its_allowed_culprits() -> None:
    slow = replace(SLEEPING, progress=("active",))
    held_up = replace(VERDICT, progress="active")
    assert not Case(allowed=(slow,)).false_claim(frame("held up", held_up))
    assert Case(allowed=(slow,)).false_claim(frame("held up", replace(held_up, culprits=(2,))))
    assert Case().false_claim(frame("held up", held_up))
    assert not Case().false_claim(frame("waiting"))


@pytest.mark.parametrize("name", names())
def test_every_program_has_a_description_and_a_ground_truth(name: str) -> None:
    assert description_of(name).endswith(".")
    assert truth_text(case_of(name))


def test_truth_and_verdict_have_the_same_wording() -> None:
    assert truth_text(Case((SLEEPING,))) == "not_entered 1: sleeping, none"
    assert verdict_text([VERDICT]) == "not_entered 1: sleeping, none"
    assert verdict_text([replace(VERDICT, confidence="suspect")]).endswith(", suspect")
    assert truth_text(Case((TIE,))) == "mismatch 0 vs 1"
    assert verdict_text([]) == "nothing"


def test_blame_counts_innocents_but_not_parties() -> None:
    assert blame_text([], Case((SLEEPING,))) == "nothing"
    assert blame_text([1], Case((SLEEPING,))) == "blames 1"
    assert blame_text([0, 2, 3], Case((SLEEPING,))) == "blames 0,2-3 (3 innocent)"
    assert blame_text([1], Case((TIE,))) == "blames 1"


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ("No errors found", "nothing"),
        ("Not all ranks joining\nmissing ranks: {1}\n", "blames 1"),
        ("error msg: Culprit rank 2; Error type: X, Culprit rank 3; Y", "blames 2-3 (2 innocent)"),
        ("Traceback\n  ...\nKeyError: ('0', 0)\n", "crashes: KeyError"),
        ("missing ranks: {0}\nTraceback\nAssertionError\n",
         "crashes: AssertionError, blames 0 (1 innocent)"),
        ("Input/output mismatch in the collective sequence number: 3", "a mismatch, no rank"),
    ],
)  # fmt: skip
def test_output_of_torchfrtrace_is_parsed(output: str, text: str) -> None:
    assert torchfrtrace_text(output, Case((SLEEPING,))) == text


def test_a_repaired_dump_changes_only_the_groups(tmp_path: Path) -> None:
    folder = tmp_path / "fr"
    folder.mkdir()
    ranks = make_recorders(2, backend="gloo")
    for one in ranks:
        one.ran("0", count=3)
        right = (tmp_path / f"groups.{one.rank}").write_text(
            '{"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}'
        )
        assert right
        one.groups = {"": {"name": "", "desc": "", "ranks": "[]"}}
    write_dumps(folder, ranks)
    better = repair_groups(folder)
    for one in ranks:
        before: dict[str, Any] = read_values(folder / f"nccl_trace_rank_{one.rank}")
        after: dict[str, Any] = read_values(better / f"nccl_trace_rank_{one.rank}")
        assert after["pg_config"]["0"]["ranks"] == "[0, 1]"
        assert after["entries"] == before["entries"]
        assert after["version"] == before["version"]


def test_the_table_has_both_modes_of_a_program(tmp_path: Path) -> None:
    page = tmp_path / "docs" / "page.md"
    run = Run("dead/killed", "sync", verdict="dead 0: signal", health="dead", who_s=0.5)
    table.write([run, dataclasses.replace(run, mode="late", who_s=0.7, confirmed_s=1.2)], page)
    text = page.read_text()
    assert "| 0.5 / 0.7 | - / 1.2 |" in text
    table.write([run], page)
    assert page.read_text().count("dead 0: signal") == 2
