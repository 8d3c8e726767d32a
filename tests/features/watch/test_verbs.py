"""The command line of `frtop watch`, and of `frtop run --watch`."""

from __future__ import annotations

from pathlib import Path

import pytest

from frtop_tui.cli import main
from frtop_tui.cli.parser import parse


@pytest.mark.parametrize(
    "words",
    [
        ["watch", "--pots", "https://host/SECRET"],
        ["watch", "--pots=https://host/SECRET"],
        ["watch", "--exec", "nowhere-1f SECRET"],
        ["watch", "--exec", "'SECRET"],
        ["run", "--watch-options", "--post 'https://host/SECRET", "--", "true"],
        ["run", "--watch-options", "--pots https://host/SECRET", "--", "true"],
    ],
)
def test_no_complaint_quotes_what_may_be_a_secret(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert "SECRET" not in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("options", "says"), [("--evry 1h", "--evry"), ("'", "No closing quotation")]
)
def test_wrong_options_of_the_watcher_are_said_before_the_job_starts(
    options: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    touched = tmp_path / "x"
    assert main(["run", "--watch-options", options, "--", "touch", str(touched)]) == 2
    assert says in capsys.readouterr().err
    assert not touched.exists()


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "config.toml"
    monkeypatch.setenv("FRTOP_CONFIG", str(path))
    return path


@pytest.mark.parametrize("verb", ["watch", "history"])
def test_a_home_of_nobody_is_no_folder(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([verb, "--state", "~no-such-user/x"]) == 1
    assert "~no-such-user/x: there is no such user" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_what_is_no_time_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", "--every", "soon"]) == 2
    assert "'soon' is not a time: 90s, 10m, 6h, 2d" in capsys.readouterr().err


def test_the_file_has_a_table_of_its_own(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text('[watch]\nevery = "10m"\nexec = "./tell.sh"\n')
    config.chmod(0o600)
    watch = parse(["watch", "--before", "5s"])
    assert (watch.every, watch.before, watch.deadline, watch.command) == (600, 5, 60, "./tell.sh")
    assert main(["config"]) == 0
    (row,) = (one for one in capsys.readouterr().out.splitlines() if one.startswith("watch.every"))
    assert row.split(maxsplit=2)[1:] == ["600", f"{config} line 2"]
