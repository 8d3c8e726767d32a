"""An exception that passes the recorder's wrappers has none of their frames in its traceback."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from recorder.rank_runner import run

pytestmark = pytest.mark.torch

PROGRAM = """
    import os, traceback
    from datetime import timedelta
    import torch
    import torch.distributed as dist

    def shown(function):
        try:
            function()
        except BaseException as error:
            files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
            print(type(error).__name__, sum("frtop_probe" in file for file in files), flush=True)

    dist.init_process_group("gloo")
    group = dist.new_group([0, 1], timeout=timedelta(seconds=1))
    store = dist.distributed_c10d._get_default_store()
    ones = torch.ones(3)
    if dist.get_rank() == 0:
        shown(dist.all_reduce(ones, group=group, async_op=True).wait)
        shown(lambda: dist.monitored_barrier(group, timeout=timedelta(seconds=0.2)))
        shown(lambda: dist.all_reduce(ones, group=group))
        shown(lambda: dist.recv(ones, 1, group=group))
        shown(lambda: dist.new_group([0, 7]))
        dist.get_backend()
        print("done", flush=True)
        store.set("done", "")
    else:
        store.wait(["done"])
    os._exit(0)
"""


@pytest.mark.skipif(sys.version_info < (3, 11), reason="a raise adds its frame again")
def test_no_frame_of_the_recorder_is_in_a_traceback(tmp_path: Path) -> None:
    rank, _ = run(PROGRAM, tmp_path / "rings", ranks=2)
    assert rank.out.split() == ["RuntimeError", "0"] * 4 + ["ValueError", "0", "done"], rank.err
