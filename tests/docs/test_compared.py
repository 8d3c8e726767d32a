"""Every command of the comparison is one, and those on a capture are run on one of a real job."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from e2e.conftest import frtop
from features.warm_job import told_to_hang
from frtop_tui.cli import main
from frtop_tui.cli.parser import parser
from waiting import wait_for

PAGE = Path(__file__).parents[2] / "docs" / "compared.md"
COMMANDS = tuple(dict.fromkeys(re.findall(r"`frtop ([^`\n]+)`", PAGE.read_text())))
"""Without the program's name."""
ON_FILES = tuple(command for command in COMMANDS if "JOB.cap" in command)
FINE = {0, 3, 4, 5}
"""Done, and the verdicts of `frtop diagnose`."""


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_comparison_is_one(command: str) -> None:
    options, _ = parser()[0].parse_known_args(shlex.split(command))
    assert options.run is not None


@pytest.mark.long
@pytest.mark.job
def test_commands_on_a_capture_do_what_they_are_listed_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with told_to_hang(tmp_path):
        wait_for(lambda: frtop("diagnose").returncode == 0, "training goes on", 60)
        assert frtop("capture", "-o", "JOB.cap").returncode == 0
    assert ON_FILES
    for command in ON_FILES:
        status = main(shlex.split(command))
        said = capfd.readouterr()
        assert status in FINE, f"frtop {command}: {status}\n{said.out}{said.err}"
        written = re.search(r" -o (\S+)|--write (\S+)", command)
        assert said.out.strip() or (written and Path(written[1] or written[2]).exists()), command
