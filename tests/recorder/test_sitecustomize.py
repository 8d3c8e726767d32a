"""The zero-code start: `sitecustomize`, which chains to the job's own, and the import hook."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from frtop_probe.recorder.process.import_hook import when_imported
from recorder.rank_runner import PROBE, ZERO, code, run_python


def test_sitecustomize_chains_to_the_jobs_own(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "sitecustomize.py").write_text("import sys; sys.theirs = __file__\n")
    program = """
        import sys
        print(sys.theirs, sys.modules["sitecustomize"].__file__)
        print([name for name in sys.modules if "frtop" in name])
        before = list(sys.path)
        import frtop_probe.ring.layout
        print(sys.path == before, frtop_probe.__file__)
    """
    path = os.pathsep.join([str(ZERO), str(theirs)])
    done = run_python(tmp_path / "rings", "-S", "-c", "", PYTHONPATH=path)
    assert done.returncode == 0
    done = run_python(tmp_path / "rings", *code(program), PYTHONPATH=path)
    file = str(theirs / "sitecustomize.py")
    package = str(PROBE / "frtop_probe" / "__init__.py")
    assert done.stdout.splitlines() == [f"{file} {file}", "[]", f"True {package}"], done.stderr


def test_a_broken_sitecustomize_of_the_job_fails_as_without_the_recorder(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "sitecustomize.py").write_text("raise RuntimeError('theirs')\n")
    alone = run_python(tmp_path / "rings", "-c", "print(1)", PYTHONPATH=str(theirs))
    path = os.pathsep.join([str(ZERO), str(theirs)])
    chained = run_python(tmp_path / "rings", "-c", "print(1)", PYTHONPATH=path)
    assert (chained.returncode, chained.stdout) == (alone.returncode, alone.stdout)
    assert "theirs" in chained.stderr


def test_the_callback_runs_once_after_the_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "frtop_imported.py").write_text("VALUE = 5\n")
    monkeypatch.syspath_prepend(tmp_path)
    values: list[int] = []
    finders = list(sys.meta_path)
    when_imported("frtop_imported", lambda module: values.append(module.VALUE))
    assert values == []
    import frtop_imported  # type: ignore[import-not-found]  # noqa: PLC0415

    assert values == [5]
    assert sys.meta_path == finders
    assert type(frtop_imported.__loader__).__name__ == "SourceFileLoader"
    when_imported("frtop_imported", lambda module: values.append(module.VALUE))
    assert values == [5, 5]
    del sys.modules["frtop_imported"]
