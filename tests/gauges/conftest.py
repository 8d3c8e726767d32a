from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gauges import standin
from gauges.standin import Gpus


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return standin.build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def gpus(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gpus:
    """GPUs that children of this test see."""
    folder = tmp_path / "nvml"
    folder.mkdir()
    shutil.copy(library, folder)
    made = Gpus(folder)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made
