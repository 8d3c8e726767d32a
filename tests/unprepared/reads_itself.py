"""A rank that reads its own c10d state as another process would: for `tests/aarch64.py --torch`.

Under emulation, another process would see the emulator in its place.
"""

from __future__ import annotations

import os
import platform
import tempfile

import torch
import torch.distributed as dist

from frtop_probe.unprepared.reader import UnpreparedReader


def main() -> None:
    os.environ["TORCH_FR_BUFFER_SIZE"] = "100"
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/s", rank=0, world_size=1)
        left = dist.new_group([0], group_desc="left")
        for group in (None, None, None, left):
            dist.all_reduce(torch.ones(3), group=group)
        with UnpreparedReader(os.getpid()) as reader:
            state, rings = reader.read(), reader.rings()
    assert not state.reason, state.reason
    found = [(one.description, one.backends[0].number, one.backends[0].collectives,
              one.backends[0].timeout_s) for one in state.groups]  # fmt: skip
    assert found == [("default_pg", 3, 3, 1800.0), ("left", 1, 1, 1800.0)], found
    last = rings[0].entries[-1]
    assert (last.op, last.inputs, last.input_types) == ("gloo:all_reduce", ((3,),), ("float32",))
    assert last.site is not None
    assert last.site[::2] == (__file__, "main")
    print(f"read: groups, numbers, timeouts and history of torch {torch.__version__}, "
          f"{platform.machine()}")  # fmt: skip


if __name__ == "__main__":
    main()
