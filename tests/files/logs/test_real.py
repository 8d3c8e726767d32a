"""What the installed torch and torchrun really write, in one job with two attempts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from files.frames import notes
from frtop_tui.files.loader import open_paths

TIMEOUT_S = 90
PROGRAM = """
import logging, os, sys
import torch, torch.distributed as dist

attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
dist.init_process_group(
    "gloo", init_method=f"file://{sys.argv[1]}{attempt}", rank=int(os.environ["RANK"]), world_size=3
)
rank, numbers = dist.get_rank(), torch.ones(8)
dist.all_reduce(numbers)
try:
    raise KeyError("handled")
except KeyError:
    logging.exception("goes on")
if attempt == "0":
    if rank == 1:
        raise ValueError("of the first attempt")
    dist.all_reduce(numbers)
elif rank == 2:
    raise IndexError("of the second attempt")
else:
    dist.all_reduce(numbers)
"""


@pytest.mark.long
def test_a_job_that_restarts_and_fails_again(tmp_path: Path) -> None:
    program, log = tmp_path / "train.py", tmp_path / "job.out"
    program.write_text(PROGRAM)
    torchrun = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone",
                "--nproc-per-node=3", "--max-restarts=1", "--monitor-interval=0.1"]  # fmt: skip
    with log.open("wb") as output:
        subprocess.run(
            [*torchrun, program, tmp_path / "store"],
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=TIMEOUT_S,
            check=False,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
    frame = open_paths([log])
    assert [(one.kind, one.culprits) for one in frame.verdicts] == [("dead", (2,))]
    assert "IndexError: of the second attempt at train.py:" in frame.verdicts[0].headline
    assert "the workers were restarted (job.out:" in notes(frame)
    assert "of the first attempt" not in "".join(frame.verdicts[0].evidence)
    lines = log.read_text().splitlines(keepends=True)
    ends = [at for at, line in enumerate(lines) if "failed (exitcode" in line]
    log.write_text("".join(lines[: ends[0] + 1]))
    frame = open_paths([log])
    assert [(one.kind, one.culprits) for one in frame.verdicts] == [("dead", (1,))]
    assert "ValueError: of the first attempt at train.py:" in frame.verdicts[0].headline
