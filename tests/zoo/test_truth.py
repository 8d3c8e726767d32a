"""The zoo's judge: what passes as right, what counts as slander, and how it is worded."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from flightrecorder.writer import make_recorders, write_dumps
from frtop_tui.diagnosis.model import Frame, Verdict, Why
from frtop_tui.export.flightrecorder.dump_file import read_values
from zoo import table
from zoo.dumps import mend, torchfrtrace_text
from zoo.keeper import case_of, names, story_of
from zoo.truth import Case, Truth
from zoo.wording import blame_text, truth_text, verdict_text
from zoo.worker import Run

SLEEPS = Truth(("not_entered",), culprits=(1,), causes=("sleeping",), says=("time.sleep",))
SAID = Verdict(
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


def test_a_right_verdict_is_right() -> None:
    case = Case((SLEEPS,))
    assert case.told([SAID])
    assert case.confirmed([SAID])
    assert not case.innocents([SAID])


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"kind": "stuck"}, "kind stuck, not not_entered"),
        ({"culprits": (1, 2)}, "culprits (1, 2), not (1,)"),
        ({"why": Why("lock", "software", "in time.sleep")}, "cause lock, not sleeping"),
        ({"progress": "active"}, "progress active, not none"),
        ({"why": Why("sleeping", "software", "asleep")}, "not a word of 'time.sleep'"),
        ({"confidence": "suspect"}, "never confirmed"),
    ],
)
def test_what_is_not_so_is_told(changed: dict[str, Any], told: str) -> None:
    case, said = Case((SLEEPS,)), replace(SAID, **changed)
    assert not case.confirmed([said])
    assert told in case.amiss([said])


def test_who_is_named_before_how_it_gets_on_is_known() -> None:
    early = replace(SAID, progress="unknown", confidence="suspect")
    assert Case((SLEEPS,)).told([early])
    assert not Case((SLEEPS,)).confirmed([early])


def test_two_roots_need_two_verdicts_and_no_third() -> None:
    other = Truth(("dead",), culprits=(3,))
    dead = replace(SAID, kind="dead", culprits=(3,))
    case = Case((SLEEPS, other))
    assert case.confirmed([dead, SAID])
    assert not case.told([SAID])
    assert not case.told([SAID, SAID])
    assert not case.told([SAID, dead, replace(SAID, kind="undecided", culprits=())])
    assert "1 verdicts, not 2" in case.amiss([SAID])


def test_a_suspicion_suffices_where_no_more_can_be_known() -> None:
    suspected = replace(SLEEPS, suspected="one look only")
    assert Case((suspected,)).confirmed([replace(SAID, confidence="suspect")])


def test_parties_are_compared_in_any_order() -> None:
    said = replace(SAID, kind="mismatch", culprits=(), parties=((1,), (0,)))
    assert Case((TIE,)).told([said])
    assert not Case((TIE,)).told([replace(said, parties=((0, 1),))])


def test_who_is_innocent_is_told_whatever_else_is_right() -> None:
    assert Case((SLEEPS,)).innocents([SAID, replace(SAID, culprits=(0, 1))]) == [0]
    assert Case((TIE,)).innocents([replace(SAID, culprits=(0,))]) == [0]


@pytest.mark.parametrize("health", ["hung", "dead", "diverged"])
def test_a_healthy_job_that_is_called_hung_is_slandered(health: str) -> None:
    assert Case().slander(frame(health))
    assert Case(allowed=(SLEEPS,)).slander(frame(health, SAID))


def test_a_job_that_is_held_up_is_not_called_hung_at_any_time() -> None:
    held_up = Case((replace(SLEEPS, progress=("active",)),))
    assert "called hung" in held_up.slander(frame("hung", SAID))
    assert not held_up.slander(frame("held up", SAID))
    assert not Case((SLEEPS,)).slander(frame("hung", SAID))
    assert "innocent [0]" in Case((SLEEPS,)).slander(frame("hung", replace(SAID, culprits=(0,))))


def test_a_healthy_job_may_be_held_up_by_whom_it_says() -> None:
    slow = replace(SLEEPS, progress=("active",))
    held_up = replace(SAID, progress="active")
    assert not Case(allowed=(slow,)).slander(frame("held up", held_up))
    assert Case(allowed=(slow,)).slander(frame("held up", replace(held_up, culprits=(2,))))
    assert Case().slander(frame("held up", held_up))
    assert not Case().slander(frame("waiting"))


@pytest.mark.parametrize("name", names())
def test_every_program_tells_its_fault_and_its_truth(name: str) -> None:
    assert story_of(name).endswith(".")
    assert truth_text(case_of(name))


def test_truth_and_verdict_are_worded_alike() -> None:
    assert truth_text(Case((SLEEPS,))) == "not_entered 1: sleeping, none"
    assert verdict_text([SAID]) == "not_entered 1: sleeping, none"
    assert verdict_text([replace(SAID, confidence="suspect")]).endswith(", suspect")
    assert truth_text(Case((TIE,))) == "mismatch 0 vs 1"
    assert verdict_text([]) == "nothing"


def test_blame_counts_innocents_and_no_party() -> None:
    assert blame_text([], Case((SLEEPS,))) == "nothing"
    assert blame_text([1], Case((SLEEPS,))) == "blames 1"
    assert blame_text([0, 2, 3], Case((SLEEPS,))) == "blames 0,2-3 (3 innocent)"
    assert blame_text([1], Case((TIE,))) == "blames 1"


@pytest.mark.parametrize(
    ("output", "told"),
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
def test_what_torchfrtrace_prints_is_read(output: str, told: str) -> None:
    assert torchfrtrace_text(output, Case((SLEEPS,))) == told


def test_a_mended_dump_has_its_groups_and_all_else(tmp_path: Path) -> None:
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
    better = mend(folder)
    for one in ranks:
        before: dict[str, Any] = read_values(folder / f"nccl_trace_rank_{one.rank}")
        after: dict[str, Any] = read_values(better / f"nccl_trace_rank_{one.rank}")
        assert after["pg_config"]["0"]["ranks"] == "[0, 1]"
        assert after["entries"] == before["entries"]
        assert after["version"] == before["version"]


def test_the_table_goes_between_its_markers(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n")
    run = Run("dead/killed", "sync", said="dead 0: signal", health="dead", who_s=0.5)
    table.write([run, dataclasses.replace(run, mode="late", who_s=0.7, confirmed_s=1.2)], page)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "| 0.5 / 0.7 | - / 1.2 |" in text
    table.write([run], page)
    assert page.read_text().count("dead 0: signal") == 2
