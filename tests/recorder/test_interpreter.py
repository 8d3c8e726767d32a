"""Pythons in which the recorder does not run: one line on stderr, and the program goes on."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from frtop_probe.recorder.process import lifecycle
from recorder.rank_runner import PROBE, ZERO, code, environment

FREE_THREADED = [name for name in ("python3.13t", "python3.14t") if shutil.which(name)]
"""Installed ones, if any: the real thing. Elsewhere the feature is faked where Python tells it."""
FAKE = "import sys; sys._is_gil_enabled = lambda: False\n"
STAND_IN = """
    class Group:
        WORLD = None
    class world:
        pg_map = {}
    group, _world, calls = Group, world, []
    def is_initialized(): return False
    def init_process_group(backend=None): calls.append(backend)
    def new_group(ranks=None): calls.append(ranks)
    def destroy_process_group(group=None): calls.append(None)
    def _register_process_group(name, process_group): calls.append(name)
"""
"""`torch.distributed` as far as the recorder wraps it, for Pythons that no torch is at hand for."""
JOB = """
    import sys
    import torch.distributed.distributed_c10d as c10d
    if "start" in sys.argv:
        import frtop_probe
        frtop_probe.start()
        frtop_probe.start()
    c10d.init_process_group("gloo")
    c10d.new_group([0])
    c10d.destroy_process_group()
    import frtop_probe
    frtop_probe.start()
    frtop_probe.annotate("here")
    frtop_probe.step()
    frtop_probe.stop()
    print(c10d.calls)
"""


def torch_like(folder: Path) -> Path:
    package = folder / "torch" / "distributed"
    package.mkdir(parents=True)
    for file in (package.parent / "__init__.py", package / "__init__.py"):
        file.write_text("__version__ = '2.13.0'\n")
    (package / "distributed_c10d.py").write_text("\n".join(
        line.removeprefix("    ") for line in STAND_IN.splitlines()
    ))  # fmt: skip
    return folder


def run_job(python: str, tmp_path: Path, path: str, *arguments: str) -> list[str]:
    """Runs the job as a rank; returns the lines on stderr, after checks of all the rest."""
    rings = tmp_path / "rings"
    done = subprocess.run(
        [python, *arguments[:-1], *code(JOB), arguments[-1]],
        env=environment(rings, prepared=False, RANK="0", PYTHONPATH=path),
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "['gloo', [0], None]\n"
    assert list(rings.iterdir()) == []
    return done.stderr.splitlines()


@pytest.mark.parametrize("entrance", ["sitecustomize", "start"])
def test_a_python_without_the_gil_is_refused_with_one_line(tmp_path: Path, entrance: str) -> None:
    ours = ZERO if entrance == "sitecustomize" else PROBE
    fake = tmp_path / "fake"
    fake.mkdir()
    (fake / "sitecustomize.py").write_text(FAKE)  # the recorder's chains to it
    path = f"{ours}:{fake}:{torch_like(tmp_path / 'packages')}"
    for python in [sys.executable, *FREE_THREADED]:
        (line,) = run_job(python, tmp_path, path, entrance)
        assert line.startswith("frtop: recorder off: this Python is a free-threaded build (3.")
        assert line.endswith(". Training goes on")


def test_processes_that_are_no_ranks_say_nothing(tmp_path: Path) -> None:
    program = FAKE + "import torch.distributed.distributed_c10d, frtop_probe; frtop_probe.start()"
    path = f"{ZERO}:{torch_like(tmp_path / 'packages')}"
    for python in [sys.executable, *FREE_THREADED]:
        variables = environment(tmp_path / "rings", prepared=False, PYTHONPATH=path)
        variables.pop("RANK", None)
        done = subprocess.run(
            [python, "-c", program],
            env=variables, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")


def test_it_is_told_by_features(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sys, "_is_gil_enabled", raising=False)  # as before 3.13
    assert lifecycle.refusal() == ""
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: True, raising=False)
    monkeypatch.setattr(sysconfig, "get_config_var", {"Py_GIL_DISABLED": 0}.get)
    assert lifecycle.refusal() == ""
    monkeypatch.setattr(sysconfig, "get_config_var", {"Py_GIL_DISABLED": 1}.get)
    assert "free-threaded" in lifecycle.refusal()  # PYTHON_GIL=1 does not change the build
    monkeypatch.setattr(sysconfig, "get_config_var", {}.get)
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    assert "free-threaded" in lifecycle.refusal()
