"""The cost of `frtop run` for processes without torch."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Final

from frtop_tui.prepare import prepare

ROUNDS: Final = 40


def main() -> None:
    """Prints medians from start to exit in ms; plain and prepared starts alternate."""
    with tempfile.TemporaryDirectory() as cache:
        # An installed frtop has bytecode; a read-only checkout has none.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = cache
        _measure()


def _measure() -> None:
    print(f"start-up, medians of {ROUNDS} alternating starts, ms")
    print(f"{'':<34}{'plain':>8}{'prepared':>10}{'added':>8}")
    python = [sys.executable, "-c", "pass"]
    _compare("python -c pass", python, python, prepare(os.environ))
    shell = ["sh", "-c", ":"]
    _compare("sh -c :", shell, shell, prepare(os.environ))
    wrapped = [sys.executable, "-m", "frtop_tui", "run", "--", *python]
    _compare("frtop run -- python -c pass, once", python, wrapped, dict(os.environ))


def _compare(
    name: str, plain: Sequence[str], other: Sequence[str], environment: dict[str, str]
) -> None:
    bare, prepared, added = [], [], []
    _run(other, environment)
    for _ in range(ROUNDS):
        bare.append(_run(plain, dict(os.environ)))
        prepared.append(_run(other, environment))
        added.append(prepared[-1] - bare[-1])
    figures = [1000 * statistics.median(times) for times in (bare, prepared, added)]
    print(f"{name:<34}{figures[0]:>8.1f}{figures[1]:>10.1f}{figures[2]:>+8.1f}")


def _run(command: Sequence[str], environment: dict[str, str]) -> float:
    begin = time.perf_counter()
    subprocess.run(command, env=environment, check=True)
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
