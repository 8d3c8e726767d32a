"""An exception that passes the recorder's wrappers has none of their frames in its traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from free_port import free_port

PROGRAM = """\
import os, time, traceback
from datetime import timedelta
import torch
import torch.distributed as dist

def shown(function):
    try:
        function()
    except BaseException as error:
        files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
        print(type(error).__name__, sum("frtop_probe" in file for file in files), flush=True)

dist.init_process_group("gloo", timeout=timedelta(seconds=2))
ones = torch.ones(3)
if dist.get_rank() == 0:
    shown(dist.all_reduce(ones, async_op=True).wait)
    shown(lambda: dist.monitored_barrier(timeout=timedelta(seconds=1)))
    shown(lambda: dist.all_reduce(ones))
    shown(lambda: dist.recv(ones, 1))
    shown(lambda: dist.new_group([0, 7]))
    dist.get_backend()
    print("done", flush=True)
    os._exit(0)
time.sleep(60)
"""


@pytest.mark.skipif(sys.version_info < (3, 11), reason="a raise adds its frame again")
def test_no_frame_of_the_recorder_is_in_a_traceback(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    known = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1",
             "MASTER_PORT": str(free_port()), "FRTOP_DIR": str(tmp_path / "f"),
             "FRTOP_AGENT": "0"}  # fmt: skip
    ranks = [
        subprocess.Popen([sys.executable, "-m", "frtop_probe", str(program)],
                         env={**known, "RANK": str(rank)}, stdout=subprocess.PIPE, text=True)
        for rank in (0, 1)
    ]  # fmt: skip
    try:
        output, _ = ranks[0].communicate(timeout=60)
    finally:
        for process in ranks:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
    assert output.split() == ["RuntimeError", "0"] * 4 + ["ValueError", "0", "done"]
