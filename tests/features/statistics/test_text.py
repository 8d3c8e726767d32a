"""The table, the comparison and their JSON, of files as `frtop statistics` and `diff` read them."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from frtop_tui.cli import main
from frtop_tui.connect.recorded import RecordedSource
from frtop_tui.connect.source import Source
from frtop_tui.errors import FrtopError
from frtop_tui.features.statistics import command as statistics
from frtop_tui.features.statistics.comparison_words import comparison_lines
from frtop_tui.files import capture
from frtop_tui.job.model import HostView
from frtop_tui.statistics.limits import limits_of
from frtop_tui.statistics.wanted import StatisticsWanted
from frtop_tui.text.statistics_words import coverage_words
from job_statistics.captures import write
from job_statistics.ranks import MS
from job_statistics.test_run_gauges import host, minutes
from json_schemas import read_document


def printed(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert main(list(argv)) == 0
    return capsys.readouterr().out


def test_a_capture_has_statistics(tmp_path: Path) -> None:
    frame = write(tmp_path / "a.cap")
    found = frame.statistics
    assert found is not None
    (row,) = found.calls
    assert (row.count, row.skew_ns, row.transfer_ns) == (320, 20 * MS, MS)
    assert row.last == ((2, row.sampled),)
    step = found.steps[2][0]
    assert (step.took_ns, step.blocked_ns, step.pending_ns) == (100 * MS, MS, MS)
    assert (found.steps[0][0].pending_ns, step.samples, step.data_ns) == (21 * MS, 32, None)
    # They are computed when the file is opened. Where it has no histories, they are written.
    capture.write(tmp_path / "b.cap", frame, {}, ())
    assert capture.read(tmp_path / "b.cap").statistics == found


@pytest.mark.parametrize(("kernels", "late", "says"), [
    ("Python: none was built", 200, ("200 of 320 ops", "frtop build-native", "a profile")),
    ("native", 200, ("200 of 320 ops", "nobody was seen to wait")),
    ("Python: none was built", 10, ()),
])  # fmt: skip
def test_what_makes_ends_exact_is_said_where_many_are_upper_bounds(
    tmp_path: Path, kernels: str, late: int, says: tuple[str, ...]
) -> None:
    frame = write(tmp_path / "a.cap")
    assert frame.statistics is not None
    (row,) = frame.statistics.calls
    view = frame.ranks[0]
    identity = replace(view.identity, settings=(("frtop kernels", kernels),))
    found = replace(frame.statistics, calls=(replace(row, late=late),))
    ranks = {**frame.ranks, 0: replace(view, identity=identity)}
    said = coverage_words(replace(frame, ranks=ranks), found)
    assert bool(said) == bool(says)
    assert all(one in " ".join(said) for one in says)


def test_a_recorded_source_counts_again_what_is_asked_for(tmp_path: Path) -> None:
    source = RecordedSource(write(tmp_path / "a.cap"))
    everything = source.frame().statistics
    source.want_statistics(StatisticsWanted(), whom="verdicts")
    assert source.frame().statistics is everything
    wanted = StatisticsWanted(5.0, calls=True, ranks=frozenset({1}))
    source.want_statistics(wanted, whom="screen")
    found = source.frame().statistics
    assert found is not None
    assert found.calls[0].ranks == (1,)
    assert found.seconds == pytest.approx(60.0)
    source.want_statistics(None, whom="verdicts")
    found = source.frame().statistics
    assert found is not None
    assert found.seconds == pytest.approx(5.0, abs=0.1)
    assert 0 < found.calls[0].count <= 50
    assert 0 < len(found.steps[3]) <= 50


def test_the_table_says_who_is_late_and_where_a_step_goes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "a.cap")
    text = printed(capsys, "statistics", str(tmp_path / "a.cap"))
    assert "train.py:40  all_reduce  default_pg  1.05 MB    320" in text
    assert "rank 2: 100 %" in text
    assert "20.0 ms" in text
    assert "samples/s; steps: p95 100 ms, the longest 100 ms" in text
    assert " ".join(text.split()).count("rank 2 - - - 1.00 ms - 99.0 ms 100 ms") == 1
    assert "of a step - - - 21 % - 79 %" in " ".join(text.split())
    text = printed(capsys, "statistics", "--json", "--rank", "1", "--", str(tmp_path / "a.cap"))
    document = read_document(text, "frtop-statistics-1")
    assert document["calls"][0]["ranks"] == [1]
    assert document["calls"][0]["skew_ns"] == 20 * MS
    assert document["steps"][0]["rank"] is None
    assert document["steps"][0]["max_ns"] == 100 * MS


def test_a_comparison_of_captures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "a.cap")
    write(tmp_path / "b.cap", late_ms=50, torch="2.14.0")
    paths = str(tmp_path / "a.cap"), str(tmp_path / "b.cap")
    same = printed(capsys, "diff", paths[0], paths[0])
    assert "nothing changed by more than the noise" in same
    text = printed(capsys, "diff", *paths)
    assert "torch: 2.13.0, then 2.14.0" in text
    (line,) = (one for one in text.splitlines() if one.startswith("train.py:40"))
    assert line.split()[-1] == "slower"
    assert "50.0 ms" in line
    document = read_document(printed(capsys, "diff", "--json", *paths), "frtop-diff-1")
    assert document["lines"][0]["skew"]["change"] == "slower"
    assert document["step"]["change"] == "same"


def test_of_a_hang_between_two_captures_no_line_is_called_gone(tmp_path: Path) -> None:
    before = write(tmp_path / "a.cap")
    assert before.recorded is not None
    assert before.statistics is not None
    later = replace(before.recorded, wall_ns=before.recorded.wall_ns + 90_000_000_000)
    nothing = replace(before.statistics, calls=(), groups=(), steps={})
    after = replace(before, recorded=later, statistics=nothing)
    (line,) = comparison_lines(before, after)
    assert line.startswith("no op ended in the 1m30s between the two recordings: nothing can be")


def test_mistakes_name_the_next_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "a.cap")
    path = str(tmp_path / "a.cap")
    for options, told in (
        (("--rank", "9"), "the job has no rank 9"),
        (("--group", "tp"), "no group is called 'tp'"),
        (("--sort", "time", "--ssh", "node0"), "either files or hosts"),
    ):
        assert main(["statistics", path, *options]) != 0
        assert told in capsys.readouterr().err
    assert main(["statistics", "--group", "tp", path]) != 0
    assert "no group is called 'tp'" in capsys.readouterr().err


def test_a_folder_with_the_name_of_a_group_is_no_file_of_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)

    def connect(_: object) -> Source:
        raise FrtopError("it connects", "as it should")

    monkeypatch.setattr(statistics, "connect", connect)
    assert main(["statistics", "--group", "data"]) != 0
    assert "it connects" in capsys.readouterr().err


def test_diff_says_what_a_job_of_tests_needs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "a.cap")
    write(tmp_path / "b.cap", late_ms=50)
    a, b = str(tmp_path / "a.cap"), str(tmp_path / "b.cap")
    for limits, status, told in (
        ("step=5%", 0, "1 check: 1 within"),
        ("skew=10%+1ms", 6, "1 check: 1 above the limit"),
        ("step=5%,data=1ms", 4, "2 checks: 1 undecided, 1 within"),
        ("data=1ms,transfer=5%,skew=20%", 6, "1 above the limit, 1 undecided, 1 within"),
    ):
        assert main(["diff", a, b, "--fail-above", limits]) == status
        assert told in capsys.readouterr().out
        assert main(["diff", a, b, "--json", "--fail-above", limits]) == status
        document = read_document(capsys.readouterr().out, "frtop-diff-1")
        assert document["exit_status"] == status
        assert len(document["checks"]) == len(limits_of(limits))
    assert main(["diff", a, b, "--fail-above", "step"]) == 2
    assert "'step' is not a limit" in capsys.readouterr().err
    assert main(["diff", a, b, "--fail-above", "skew=10%+1ms"]) == 6
    (line,) = (
        one for one in capsys.readouterr().out.splitlines() if one.startswith("skew ")
    )  # fmt: skip
    cells = " ".join(line.split())
    assert cells.startswith("skew train.py:40 all_reduce +10 % +1 ms 20.0 ms 50.0 ms +150.0")
    assert cells.endswith("80, 80 above")


def test_a_comparison_has_a_line_for_each(tmp_path: Path) -> None:
    frame = write(tmp_path / "a.cap")
    before, after = (
        replace(frame, hosts=(HostView("node0", "reporting", minutes=minutes(one)),))
        for one in (host(400, 900), host(410, 400))
    )
    lines = comparison_lines(before, after)
    assert "  GPUs busy: 90 %, then 40 % (±0 %)" in lines
    assert not any("processors" in line for line in lines)
    assert "gauges" not in comparison_lines(before, before)
