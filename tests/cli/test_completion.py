"""The tab key: frtop is asked as bash does it, by variables, and answers on descriptor 8."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from frtop_tui.cli import main


def offered(line: str, folder: Path) -> list[str]:
    """What may follow this line."""
    read, write = os.pipe()
    asked = {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line))}
    with subprocess.Popen(
        ["bash", "-c", f'exec "$@" 8>&{write}', "bash", sys.executable, "-m", "frtop_tui"],
        env={**os.environ, **asked, "COMP_TYPE": "9"},
        cwd=folder,
        pass_fds=(write,),
        stdout=subprocess.DEVNULL,
    ) as program:
        os.close(write)
        with os.fdopen(read, encoding="utf-8") as answer:
            words = answer.read().split("\v")
        assert program.wait(30) == 0
    return sorted(word.strip() for word in words if word)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("frtop diag", ["diagnose"]),
        ("frtop diagnose --js", ["--json"]),
        ("frtop diagnose --ss", ["--ssh"]),
        ("frtop --ssh 'node[0-7]' diagnose --ex", ["--explain"]),
        ("frtop --ssh ", []),
        ("frtop --theme c", ["contrast"]),
        ("frtop demo --fault slow-", ["slow-data"]),
        ("frtop export --format m", ["markdown"]),
        ("frtop open ", ["hang.cap"]),
        ("frtop export -o h", ["hang.cap"]),
        ("frtop key ad", ["admit"]),
        ("frtop completion z", ["zsh"]),
    ],
)
def test_the_tab_key_offers_what_may_follow(line: str, words: list[str], tmp_path: Path) -> None:
    (tmp_path / "hang.cap").touch()
    assert offered(line, tmp_path) == words


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "_ARGCOMPLETE" in script
    assert "frtop" in script
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)
