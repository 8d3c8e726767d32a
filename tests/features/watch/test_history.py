"""The history of culprits: a real file, other watchers, damage."""

from __future__ import annotations

import json
import shlex
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from connect.scripted_source import ScriptedSource
from frtop_tui.cli import main
from frtop_tui.features.watch import history as history_module
from frtop_tui.features.watch.history import FILE, Culprit, CulpritHistory
from frtop_tui.features.watch.job_file import run_name
from frtop_tui.features.watch.offenders import culprits_now, offenders, said_before
from frtop_tui.job.naming import job_key
from json_schemas import read_document
from screens import scenes


def culprit(host: str, run: str, *, days_ago: float = 1.0, **fields: Any) -> Culprit:
    at_s = time.time() - 86400 * days_ago
    row = Culprit(at_s, run, "train.py", host, 3, "5", "", "not_entered", "gil", "software")
    return row._replace(**fields)


@pytest.fixture
def history(tmp_path: Path) -> CulpritHistory:
    return CulpritHistory(tmp_path / FILE)


def test_what_was_added_is_there_and_only_for_this_user(
    history: CulpritHistory, tmp_path: Path
) -> None:
    rows = [culprit("node4", "a"), culprit("node5", "b", days_ago=20)]
    history.add(rows)
    assert history.problem == ""
    assert history.since(0) == (rows[1], rows[0])
    assert history.since(time.time() - 14 * 86400) == (rows[0],)
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600


def test_it_is_bounded_in_age_rows_and_text(
    history: CulpritHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_module, "MOST_ROWS", 3)
    history.add([culprit("node4", "old", days_ago=91)])
    assert history.since(0) == ()
    history.add([culprit("n" * 5000, str(n), days_ago=5 - n) for n in range(5)])
    assert [one.run for one in history.since(0)] == ["2", "3", "4"]
    assert {len(one.host) for one in history.since(0)} == {200}


def test_a_damaged_file_is_set_aside_and_a_new_one_begins(
    history: CulpritHistory, tmp_path: Path
) -> None:
    (tmp_path / FILE).write_bytes(b"no database at all, whatever its name says" * 100)
    history.add([culprit("node4", "a")])
    assert "damaged" in history.problem
    assert len(list(tmp_path.glob("*-damaged-*"))) == 1
    history.add([culprit("node4", "b")])
    assert history.problem == ""
    assert [one.run for one in history.since(0)] == ["a", "b"]


def test_rows_that_are_not_ours_are_no_traceback(
    history: CulpritHistory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history.add([culprit("node4", "a")])
    code = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute(\"update culprits set rank='x'\"); c.commit()"  # noqa: E501
    subprocess.run([sys.executable, "-c", code, str(tmp_path / FILE)], check=True)
    assert main(["history", "--state", str(tmp_path)]) == 1
    assert "damaged" in capsys.readouterr().err
    assert main(["history", "--state", str(tmp_path)]) == 0


def test_a_history_that_cannot_be_written_is_a_line(tmp_path: Path) -> None:
    history = CulpritHistory(tmp_path / "gone" / FILE)
    history.add([culprit("node4", "a")])
    assert "cannot be used" in history.problem
    assert history.since(0) == ()


def test_two_watchers_write_at_once(history: CulpritHistory, tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path\n"
        "from frtop_tui.features.watch.history import *\n"
        "for n in range(15):\n"
        "    one = CulpritHistory(Path(sys.argv[1]))\n"
        "    one.add([Culprit(time.time(), sys.argv[2] + str(n), *'jh', 1, *'5lkcs')])\n"
        "    assert not one.problem, one.problem\n"
    )
    words = [sys.executable, "-c", code, str(tmp_path / FILE)]
    two = [subprocess.Popen([*words, name]) for name in "ab"]
    assert [one.wait(30) for one in two] == [0, 0]
    assert len(history.since(0)) == 30


def test_a_host_that_was_the_culprit_in_three_runs_is_to_be_drained() -> None:
    rows = [culprit("node4", run) for run in "abc"] + [culprit("node4", "a", rank=4)]
    rows += [culprit("node5", "a"), culprit("node4", "d", job="other.py", cause="file_io")]
    first, second = offenders(rows)
    assert (first.name, first.times, first.causes[0]) == ("node4 gpu5", 4, ("not_entered/gil", 3))
    assert first.advice.startswith("scontrol update nodename=node4 state=drain")
    assert (second.host, second.times, second.advice) == ("node5", 1, "")
    (own,) = offenders(culprit("node4", run) for run in "abc")
    assert own.advice == "only one program, and its own code: look at that first"
    (odd,) = offenders(culprit("a b; $(x) 'q", run, job=run) for run in "abc")
    assert f"nodename={odd.host}" in shlex.split(odd.advice)


def test_a_verdict_says_what_was_before_but_not_this_run() -> None:
    frame = scenes.hung()
    verdict = frame.verdicts[0]
    now = culprits_now(frame, verdict)
    assert [one.rank for one in now] == list(verdict.culprits)
    host = now[0].host
    assert said_before(now, frame, verdict) == []
    rows = [*now, culprit(host, "a", gpu=""), culprit(host, "b", gpu=""), culprit("else", "c")]
    assert said_before(rows, frame, verdict) == [
        f"{host} was the culprit 2 times in 14 days before this run"
    ]
    assert frame.job is not None
    again = replace(frame, job=replace(frame.job, attempt=7))
    assert run_name(job_key(frame.job)) == now[0].run
    assert "3 times" in said_before(rows, again, verdict)[0]


def test_diagnose_says_what_was_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = scenes.hung()
    host = frame.ranks[frame.verdicts[0].culprits[0]].host
    (tmp_path / "frtop").mkdir()
    CulpritHistory(tmp_path / "frtop" / FILE).add([culprit(host, run) for run in "abc"])
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("frtop_tui.cli.live.connect", lambda _: ScriptedSource([frame]))
    before = f"{host} gpu5 was the culprit 3 times in 14 days before this run"
    main(["diagnose", "--json"])
    assert json.loads(capsys.readouterr().out)["before"] == [f"{before}: `frtop history`"]
    main(["diagnose"])
    assert f"note  {before}: `frtop history`" in capsys.readouterr().out


def test_frtop_history_lists_and_forgets(
    history: CulpritHistory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["history", "--state", str(tmp_path)]) == 0
    assert "no history yet: " in capsys.readouterr().out
    history.add([culprit("node4", run, job=f"{run}.py") for run in "abc"])
    assert main(["history", "--state", str(tmp_path), "--days", "0.5"]) == 0
    assert "0 runs" in capsys.readouterr().out
    assert main(["history", "--state", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "node4 gpu5  3 times, last " in said
    assert "next  scontrol update nodename=node4" in said
    assert main(["history", "--state", str(tmp_path), "--json"]) == 0
    (host,) = read_document(capsys.readouterr().out, "frtop-history-1")["hosts"]
    assert (host["host"], host["times"]) == ("node4", 3)
    assert main(["history", "--state", str(tmp_path), "--json", "--days", "0.5"]) == 0
    assert json.loads(capsys.readouterr().out)["hosts"] == []
    assert main(["history", "--state", str(tmp_path), "--forget"]) == 0
    assert history.since(0) == ()
