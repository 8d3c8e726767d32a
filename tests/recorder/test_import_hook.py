"""The import hook calls back after an import and changes nothing else."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from frtop_probe.recorder.process.import_hook import when_imported


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
