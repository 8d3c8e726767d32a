"""`frtop.pyz` in an interpreter without any package: the same verdicts, from a file and a pipe."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from frtop_tui.cli import main
from packages.hang import bare, clean_pythons, hanging_job
from release import dist, onefile

RECORDED = Path(__file__).parents[1] / "files" / "recorded"


@pytest.fixture(scope="module")
def pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file without py-spy, which would have to be downloaded."""
    return onefile.make(tmp_path_factory.mktemp("dist"), dist.version(), with_py_spy=False)


def run(
    pyz: Path, words: Sequence[str], python: str = sys.executable, *, piped: bool = False
) -> subprocess.CompletedProcess[str]:
    script = "-" if piped else str(pyz)
    with pyz.open("rb") as content:
        # A pipe, and not the file: Python would read that another way.
        text = subprocess.Popen(["cat"], stdin=content, stdout=subprocess.PIPE)
        done = subprocess.run(
            [python, "-I", "-S", script, *words],
            stdin=text.stdout if piped else subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=bare(pyz.parent),
            check=False,
            timeout=120,
        )
        text.kill()
        text.communicate()
    return done


def test_it_has_no_packages_and_nothing_of_ranks() -> None:
    found = onefile.sources()
    assert {"frtop_tui/connect/live.py", "frtop_probe/pipe/agent.py"} <= found.keys()
    missing = {"textual", "zmq", "torch", "recorder", "demo.job", "screens"}
    assert not [name for name in found if missing & set(re.split(r"[/.]", name))]
    for verb in onefile.VERBS:
        assert f"frtop_tui/{verb.replace('.', '/')}.py" in found


@pytest.mark.parametrize(
    "name", ["sleeping.cap", pytest.param("node0.box", marks=pytest.mark.long)]
)
def test_it_says_what_the_installed_one_says(
    pyz: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["diagnose", "--json", "--explain", str(RECORDED / name)]
    status = main(words)
    done = run(pyz, words)
    assert (done.returncode, done.stderr) == (status, "")
    assert json.loads(done.stdout) == json.loads(capsys.readouterr().out)


def test_from_a_pipe_and_without_the_other_verbs(pyz: Path) -> None:
    done = run(pyz, ["--version"], piped=True)
    assert (done.stdout, done.stderr) == (f"frtop {dist.version()}\n", "")
    done = run(pyz, [])
    assert done.returncode == 1
    assert done.stderr.startswith("frtop: this command is not in frtop.pyz: ")


def test_an_old_python_says_what_to_do(pyz: Path, tmp_path: Path) -> None:
    """Also one whose grammar is that of Python 2: nothing newer stands in what it parses."""
    text = pyz.read_text().replace("sys.version_info < (3, 10)", "sys.version_info < (4,)")
    old = tmp_path / "frtop.pyz"
    old.write_text(text)
    done = run(old, ["diagnose"])
    assert done.returncode == 1
    assert re.match(r"frtop: this is Python 3\.\d+\.\d+, and frtop needs 3\.10 or", done.stderr)
    assert re.search(r"\n  next: /.*/python3\.1\d\n$", done.stderr)


@pytest.mark.long
@pytest.mark.job
@pytest.mark.timeout(1800)
def test_it_names_the_rank_that_a_hung_job_waits_for(tmp_path: Path) -> None:
    """With py-spy inside, on every Python of this host; needs a package index."""
    pyz = onefile.make(tmp_path, dist.version())
    with hanging_job(tmp_path) as pids:
        own = ["--pid", str(pids[0])]
        for python in clean_pythons() or [sys.executable]:
            for piped in (False, True):
                done = run(pyz, ["diagnose", "--json", *own], python, piped=piped)
                assert done.returncode == 3, (python, done.stdout, done.stderr)
                require_late_rank(json.loads(done.stdout))
            done = run(pyz, ["stacks", *own], python)
            assert "load_batch" in done.stdout, done.stderr
        done = run(pyz, ["jobs"])
        assert done.returncode == 0
        assert "hanging_job.py" in done.stdout
        done = run(pyz, ["doctor"])
        assert "frtop failed" not in done.stdout + done.stderr
        taken = tmp_path / "taken.cap"
        assert run(pyz, ["capture", "-o", str(taken), *own]).returncode == 0
        assert main(["diagnose", str(taken)]) == 3


def require_late_rank(found: dict[str, Any]) -> None:
    (verdict,) = found["verdicts"]
    assert verdict["culprits"] == [1]
    assert "load_batch" in json.dumps(verdict)
