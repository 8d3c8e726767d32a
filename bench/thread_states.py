"""How often C++ threads take the GIL, with and without the recorder: two ranks on gloo.

Each time, a C++ thread makes a new thread state in the interpreter, under a lock. In CPython
before 3.10.15, 3.11.10 and 3.12, a child that is forked at that moment hangs (gh-112275). The
recorder must not make this more frequent than training itself does.
"""

from __future__ import annotations

import ctypes
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

RANKS: Final = 2
PAIRS: Final = 5
ROUNDS: Final = 1000


def main() -> None:
    """Prints the thread states made in 1,000 steps with and without the recorder, and the ratio."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o700)
        pairs = [(_measure(folder, "off"), _measure(folder, "on")) for _ in range(PAIRS)]
    print("recorder, thread states that C++ threads make in 1,000 rounds of one step")
    off, on = (statistics.median(column) for column in zip(*pairs, strict=True))
    each = ", ".join(f"{after / max(before, 1):.2f}" for before, after in pairs)
    print(f"off {off:.0f}, on {on:.0f}: ratio {on / max(off, 1):.2f}   per pair of runs: {each}")


def _measure(folder: str, recorder: str) -> float:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    base = {
        **os.environ,
        "FRTOP_DIR": folder,
        "FRTOP_AGENT": "0",
        "WORLD_SIZE": str(RANKS),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
    }
    children = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "bench.thread_states", recorder],
            env={**base, "RANK": str(rank)},
            stdout=subprocess.PIPE,
        )
        for rank in range(RANKS)
    ]
    made = [int(child.communicate(timeout=300)[0]) for child in children]
    return 1000 * sum(made) / ROUNDS / RANKS


def train(recorder: str) -> int:
    """Runs `ROUNDS` steps as one rank; returns the number of thread states made."""
    import torch  # noqa: PLC0415
    import torch.distributed as dist  # noqa: PLC0415
    from torch.nn.parallel import DistributedDataParallel  # noqa: PLC0415

    if recorder == "on":
        import frtop_probe  # noqa: PLC0415 - the other run is without it

        frtop_probe.start()
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(32, 1))
    parameters, batch, total = torch.ones(80_000), torch.ones(4, 32), torch.zeros(1)
    before = _states_made()
    for _ in range(ROUNDS):
        work = dist.broadcast(parameters, 0, async_op=True)
        model(batch).sum().backward()
        assert work is not None
        work.wait()
        dist.all_reduce(total)
    made = _states_made() - before - 1
    dist.destroy_process_group()
    return made


def _states_made() -> int:
    """The number of thread states made so far: the id of a new one."""
    api = ctypes.pythonapi
    api.PyInterpreterState_Get.restype = ctypes.c_void_p
    api.PyThreadState_New.restype = ctypes.c_void_p
    api.PyThreadState_GetID.restype = ctypes.c_uint64
    state = ctypes.c_void_p(api.PyThreadState_New(ctypes.c_void_p(api.PyInterpreterState_Get())))
    number = int(api.PyThreadState_GetID(state))
    api.PyThreadState_Clear(state)
    api.PyThreadState_Delete(state)
    return number


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(train(sys.argv[1]))
    else:
        main()
