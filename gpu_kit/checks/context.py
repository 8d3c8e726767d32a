"""What every check gets; it marks phases and samples power beside its ranks."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpu_kit import facts, processes

PATIENCE: Final = 3


@dataclass(frozen=True, slots=True)
class Context:
    """A check's folder, its deadline (monotonic), whether it runs without a GPU, its arguments."""

    folder: Path
    until: float
    dry: bool
    arguments: tuple[str, ...] = ()

    def patient(self, seconds: float) -> float:
        """Returns `seconds`, or more without a GPU: such a machine may be busy."""
        return seconds * PATIENCE if self.dry else seconds

    @property
    def left_s(self) -> float:
        return self.until - time.monotonic()

    @contextmanager
    def power(self) -> Iterator[None]:
        """Samples the GPU's power meanwhile, in a process that may have to be left behind."""
        if self.dry:
            yield
            return
        sampler: subprocess.Popen[bytes] = processes.start(
            [sys.executable, "-m", "gpu_kit.power"], os.environ, self.folder / "power.log"
        )
        try:
            yield
        finally:
            sampler.kill()


def phase(name: str) -> None:
    """Marks the beginning of a phase."""
    facts.say("phase", name=name, at=time.monotonic())
