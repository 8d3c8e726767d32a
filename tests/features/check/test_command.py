"""`frtop check` of captures: what it prints, what it writes, its exit status."""

from __future__ import annotations

from pathlib import Path

import pytest

from features.check.made_up_jobs import TENSOR, Issued, usual, write_capture
from frtop_tui.cli import main
from json_schemas import read_document


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_capture(tmp_path / "good.cap")
    write_capture(tmp_path / "more.cap", lambda rank, step: [*usual(rank, step), Issued(TENSOR)])
    write_capture(tmp_path / "begun.cap", steps=2)
    return tmp_path


def test_a_plan_is_written_once_and_says_what_another_run_does(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = str(folder / "plan.toml")
    assert main(["check", "--write", plan, str(folder / "good.cap")]) == 0
    assert "4 ranks, steps 3 to 12" in capsys.readouterr().out
    written = (folder / "plan.toml").read_bytes()
    assert main(["check", "--write", plan, str(folder / "more.cap")]) == 1
    assert "is already there" in capsys.readouterr().err
    assert (folder / "plan.toml").read_bytes() == written

    assert main(["check", plan, str(folder / "good.cap")]) == 0
    assert "held       ops.mesh_tp.all_reduce.count: 4\n" in capsys.readouterr().out
    assert main(["check", plan, str(folder / "more.cap")]) == 6
    first, *_, summary, step = capsys.readouterr().out.splitlines()
    assert first == "broken     ops.mesh_tp.all_reduce.count: expected 4, found 5 on ranks 0-3"
    assert "2 broken, " in summary
    assert "frtop statistics" in step
    assert main(["check", plan, str(folder / "begun.cap")]) == 4
    assert "not known  step.seconds: expected 0.05 to 0.2 s, 0 of 3" in capsys.readouterr().out

    assert main(["check", "--json", plan, str(folder / "more.cap")]) == 6
    document = read_document(capsys.readouterr().out, "frtop-check-1")
    assert (document["result"], document["exit_status"]) == ("broken", 6)
    (count,) = (one for one in document["expectations"] if one["key"].endswith("reduce.count"))
    assert (count["value"], count["expected"]) == ([4, 4], "4")
    assert (count["found"], count["ranks"]) == ("5 on ranks 0-3", [0, 1, 2, 3])


def test_a_plan_without_steps_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = folder / "plan.toml"
    assert main(["check", "--write", str(plan), str(folder / "begun.cap")]) == 4
    assert "no steps and no ops are in it: 0 of 3" in capsys.readouterr().err
    assert main(["check", str(plan), str(folder / "more.cap")]) == 0


def test_a_few_words_need_no_plan(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = str(folder / "good.cap")
    words = ["job.world-size=4", "groups.mesh_tp.ranks=4"]
    assert main(["check", good, "--expect", *words]) == 6
    assert "expected 4, found 2 (groups 0,1; 2,3)" in capsys.readouterr().out
    assert main(["check", "--expect", words[0], "--", good]) == 0
    plan = folder / "plan.toml"
    plan.write_text("[job]\nworld-size = 5\n")
    assert main(["check", str(plan), good, "--expect", words[0]]) == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "there is nothing to check"),
        (["good.cap"], "good.cap is no plan"),
        (["empty.toml", "good.cap"], "empty.toml expects nothing"),
        (["missing.toml"], "No such file"),
        (["--write"], "--write takes the name of a plan"),
        (["--write", "new.toml", "--expect", "job.world-size=4"], "no --expect"),
        (["empty.toml", "good.cap", "--ssh", "node0"], "name either files or hosts"),
    ],
)
def test_mistakes_name_the_next_step(
    words: list[str],
    told: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    (folder / "empty.toml").write_text("# nothing\n")
    assert main(["check", *words]) == 2
    said = capsys.readouterr().err
    assert told in said
    assert "next: " in said
