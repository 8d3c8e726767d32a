"""Measures `frtop diagnose` on one long log of a job in which one rank was late."""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path
from typing import Final

from bench.dumps import run

RANKS: Final = 1024
SIZE: Final = 2_000_000_000
BUDGET: Final = "30 s, 300 MB"


def main() -> None:
    """Prints time and memory, and whether the verdict names the culprit."""
    print("a log of 1,024 ranks, their lines mixed, in which one has not entered the op")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.out"
        culprit = _write(path)
        command = [sys.executable, "-m", "frtop_tui", "diagnose", str(path)]
        seconds, cpu, size, output = run(command)
        is_named = f"rank {culprit} has not entered" in output
        print(
            f"      frtop diagnose   {seconds:6.2f} s ({cpu:.2f} s of CPU) {size:5.0f} MB for"
            f" {path.stat().st_size / 1e6:,.0f} MB   {'names it' * is_named or 'DOES NOT NAME IT'}"
            f"   (budget {BUDGET})"
        )


def _write(path: Path) -> int:
    """Writes steps of all ranks, then what torch writes; returns the rank that was late."""
    from files.logs.eras import TORCH_2_7, interleaved, one_late  # noqa: PLC0415 - part of the tests

    culprit, chance = RANKS // 2 + 1, random.Random(1)
    with path.open("w") as file:
        step = 0
        while file.tell() < SIZE:
            step += 1
            order = chance.sample(range(RANKS), RANKS)
            file.writelines(
                f"[default{rank % 8}]: [2026-11-29 10:00:00] iteration {step:8d}/ 500000 | consumed"
                f" samples: {step * 1024:12d} | elapsed time per iteration (ms): 512.3 | rank"
                f" {rank} | learning rate: 3.0E-04 | lm loss: 2.134 | grad norm: 0.512 |\n"
                for rank in order
            )
        file.write(interleaved(*one_late(TORCH_2_7, culprit, RANKS)))
    return culprit


if __name__ == "__main__":
    main()
