"""Measures `frtop diagnose` on the dumps of one hung job, and `torchfrtrace` for comparison."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
ENTRIES: Final = 2000
BLOCK_SIZE: Final = 8
TIMEOUT_S: Final = 300.0
SIZES: Final = ((64, "1 s"), (1024, "6 s, 600 MB"))


def main() -> None:
    """Prints time and memory of each program, and whether it names the culprit."""
    print(f"dumps of {ENTRIES} entries, one rank has not entered the op; start to exit")
    for ranks, budget in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            culprit = _write(Path(folder), ranks)
            seconds, size, output = _run([sys.executable, "-m", "frtop_tui", "diagnose", folder])
            is_named = f"rank {culprit} has not entered" in output
            print(
                f"  {ranks:5} x frtop diagnose   {seconds:6.2f} s {size:5.0f} MB"
                f"   {'names it' if is_named else 'DOES NOT NAME IT'}   (budget {budget})"
            )
            other = shutil.which("torchfrtrace", path=str(Path(sys.executable).parent))
            if other is None:
                continue
            seconds, size, output = _run([other, "-p", "nccl_trace_rank_", folder])
            is_named = f"missing ranks: {{{culprit}}}" in output
            took = f"{seconds:6.2f} s" if seconds < TIMEOUT_S else f"more than {TIMEOUT_S:.0f} s"
            print(f"        x torchfrtrace     {took} {size:5.0f} MB   {'names it' * is_named}")


def _write(folder: Path, ranks: int) -> int:
    """Writes dumps as torch does; all ranks of a block except the culprit did the same.

    Returns:
        The culprit.
    """
    from files.flightrecorder.writer import FakeRecorder  # noqa: PLC0415 - part of the tests

    culprit = ranks // 2 + 1
    for block in range(0, ranks, BLOCK_SIZE):
        members = range(block, block + BLOCK_SIZE)
        made: dict[bool, bytes] = {}
        for rank in members:
            is_culprit = rank == culprit
            if is_culprit not in made:
                one = FakeRecorder(rank)
                one.group("0", range(ranks), "default_pg")
                one.group(str(1 + block // BLOCK_SIZE), members, "TENSOR")
                name = str(1 + block // BLOCK_SIZE)
                for step in range(ENTRIES // 4 - 1):
                    size = [[8192, step % 7]]
                    one.ran(name, input_sizes=size, output_sizes=size, count=3)
                    one.ran("0")
                one.ran(name, count=3)
                if not is_culprit:
                    one.waits("0")
                made[is_culprit] = one.pickle()
            (folder / f"nccl_trace_rank_{rank}").write_bytes(made[is_culprit])
    return culprit


def _run(command: list[str]) -> tuple[float, float, str]:
    """Seconds, peak memory in MB, and the output."""
    with tempfile.TemporaryFile() as output:
        begin = time.monotonic()
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd=ROOT)
        while time.monotonic() - begin < TIMEOUT_S:
            pid, _, used = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            time.sleep(0.01)
        else:
            process.kill()
            _, _, used = os.wait4(process.pid, 0)
        process.returncode = 0
        seconds = time.monotonic() - begin
        output.seek(0)
        return seconds, used.ru_maxrss / 1024, output.read().decode(errors="replace")


if __name__ == "__main__":
    main()
