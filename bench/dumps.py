"""Measures `frtop diagnose` on the dumps of one hung job, and `torchfrtrace` for comparison."""

from __future__ import annotations

import os
import pickle  # noqa: TID251 - to write
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
BLOCK_SIZE: Final = 8
STACK_DEPTH: Final = 30
TIMEOUT_S: Final = 300.0


class Job(NamedTuple):
    """The dumps of one job; `by_python`: torch's, unpickled and pickled again."""

    ranks: int
    budget: str
    entries: int = 2000
    stacks: bool = False
    by_python: bool = False


JOBS: Final = (
    Job(64, "1 s"),
    Job(64, "3 s", 4800, stacks=True),
    Job(64, "3 s", 5600, stacks=True, by_python=True),
    Job(1024, "6 s, 600 MB"),
)


def main() -> None:
    """Prints time and memory of each program, and whether it names the culprit."""
    print("dumps of jobs in which one rank has not entered the op; start to exit")
    for job in JOBS:
        with tempfile.TemporaryDirectory() as folder:
            culprit, written = _write(Path(folder), job)
            print(
                f"  {job.ranks} dumps of {job.entries} entries{', with stacks' * job.stacks}:"
                f" {written / 1e6:.0f} MB, pickled by {'Python' if job.by_python else 'torch'}"
            )
            seconds, cpu, size, output = run(
                [sys.executable, "-m", "frtop_tui", "diagnose", folder]
            )
            is_named = f"rank {culprit} has not entered" in output
            print(
                f"      frtop diagnose   {seconds:6.2f} s ({cpu:.2f} s of CPU) {size:5.0f} MB"
                f"   {'names it' if is_named else 'DOES NOT NAME IT'}   (budget {job.budget})"
            )
            other = shutil.which("torchfrtrace", path=str(Path(sys.executable).parent))
            if other is None:
                continue
            seconds, _, size, output = run([other, "-p", "nccl_trace_rank_", folder])
            is_named = f"missing ranks: {{{culprit}}}" in output
            took = f"{seconds:6.2f} s" if seconds < TIMEOUT_S else f"more than {TIMEOUT_S:.0f} s"
            print(f"      torchfrtrace     {took} {size:5.0f} MB   {'names it' * is_named}")


def _write(folder: Path, job: Job) -> tuple[int, int]:
    """Writes the dumps; all ranks of a block except the culprit did the same.

    Returns:
        The culprit, and the bytes of all files.
    """
    from files.flightrecorder.writer import FakeRecorder  # noqa: PLC0415 - part of the tests

    ranks = job.ranks
    culprit, written = ranks // 2 + 1, 0
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
                stacks = _stacks() if job.stacks else [{}]
                for step in range(job.entries // 4 - 1):
                    size, more = [[8192, step % 7]], stacks[step % len(stacks)]
                    one.ran(name, input_sizes=size, output_sizes=size, count=3, **more)
                    one.ran("0", **more)
                one.ran(name, count=3, **stacks[0])
                if not is_culprit:
                    one.waits("0", **stacks[0])
                made[is_culprit] = pickle.dumps(one.values()) if job.by_python else one.pickle()
            (folder / f"nccl_trace_rank_{rank}").write_bytes(made[is_culprit])
            written += len(made[is_culprit])
    return culprit, written


def _stacks() -> list[dict[str, Any]]:
    """The field with the stack, for 40 lines of a program; they share their outer lines."""
    package = "/opt/conda/lib/python3.12/site-packages/torch/nn/modules/module_{}.py"
    outer = [
        {"name": f"forward_{depth}", "filename": package.format(depth), "line": depth}
        for depth in range(STACK_DEPTH - 1)
    ]
    return [
        {"frames": [{"name": "step", "filename": "/home/me/train.py", "line": line}, *outer]}
        for line in range(40)
    ]


def run(command: list[str]) -> tuple[float, float, float, str]:
    """Seconds, those of CPU, peak memory in MB, and the output."""
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
        cpu = used.ru_utime + used.ru_stime
        return seconds, cpu, used.ru_maxrss / 1024, output.read().decode(errors="replace")


if __name__ == "__main__":
    main()
