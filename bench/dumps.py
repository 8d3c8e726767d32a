"""Flight Recorder dumps of one hung job: `frtop diagnose`, and `torchfrtrace` beside it."""

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
BLOCK: Final = 8
PATIENCE_S: Final = 300.0
SIZES: Final = ((64, "1 s"), (1024, "6 s, 600 MB"))


def main() -> None:
    """Seconds and memory from the start of a program to its exit, and whom it names."""
    print(f"dumps of {ENTRIES} entries, one rank has not come; start to exit")
    for ranks, budget in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            culprit = _write(Path(folder), ranks)
            seconds, size, said = _run([sys.executable, "-m", "frtop_tui", "diagnose", folder])
            right = f"rank {culprit} has not entered" in said
            print(
                f"  {ranks:5} x frtop diagnose   {seconds:6.2f} s {size:5.0f} MB"
                f"   {'names it' if right else 'DOES NOT NAME IT'}   (budget {budget})"
            )
            other = shutil.which("torchfrtrace", path=str(Path(sys.executable).parent))
            if other is None:
                continue
            seconds, size, said = _run([other, "-p", "nccl_trace_rank_", folder])
            right = f"missing ranks: {{{culprit}}}" in said
            took = f"{seconds:6.2f} s" if seconds < PATIENCE_S else f"more than {PATIENCE_S:.0f} s"
            print(f"        x torchfrtrace     {took} {size:5.0f} MB   {'names it' * right}")


def _write(folder: Path, ranks: int) -> int:
    """Dumps as torch writes them; ranks of one block have done the same."""
    sys.path.insert(0, str(ROOT / "tests"))
    from flightrecorder.writer import FakeRecorder  # noqa: PLC0415 - beside the tests it is for

    culprit = ranks // 2 + 1
    for block in range(0, ranks, BLOCK):
        members = range(block, block + BLOCK)
        made: dict[bool, bytes] = {}
        for rank in members:
            guilty = rank == culprit
            if guilty not in made:
                one = FakeRecorder(rank)
                one.group("0", range(ranks), "default_pg")
                one.group(str(1 + block // BLOCK), members, "TENSOR")
                name = str(1 + block // BLOCK)
                for step in range(ENTRIES // 4 - 1):
                    size = [[8192, step % 7]]
                    one.ran(name, input_sizes=size, output_sizes=size, count=3)
                    one.ran("0")
                one.ran(name, count=3)
                if not guilty:
                    one.waits("0")
                made[guilty] = one.pickle()
            (folder / f"nccl_trace_rank_{rank}").write_bytes(made[guilty])
    return culprit


def _run(command: list[str]) -> tuple[float, float, str]:
    """Seconds, largest size in MB, and what was printed."""
    with tempfile.TemporaryFile() as output:
        begin = time.monotonic()
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd=ROOT)
        while time.monotonic() - begin < PATIENCE_S:
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
