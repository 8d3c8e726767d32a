"""How often C++ threads take the GIL, with and without the recorder: two ranks on gloo.

Each time, a C++ thread makes a new thread state in the interpreter, under a lock. In CPython
before 3.10.15, 3.11.10 and 3.12, a child that is forked at that moment hangs (gh-112275). The
recorder must not make this more frequent than training itself does.
"""

from __future__ import annotations

import ctypes
import statistics
import sys
from typing import Final

from bench import gloo_job

RANKS: Final = 2
PAIRS: Final = 5
ROUNDS: Final = 1000


def main() -> None:
    """Prints the thread states made in 1,000 steps with and without the recorder, and the ratio."""
    pairs = [(_measure("off"), _measure("on")) for _ in range(PAIRS)]
    print("recorder, thread states that C++ threads make in 1,000 rounds of one step")
    off, on = (statistics.median(column) for column in zip(*pairs, strict=True))
    each = ", ".join(f"{after / max(before, 1):.2f}" for before, after in pairs)
    print(f"off {off:.0f}, on {on:.0f}: ratio {on / max(off, 1):.2f}   per pair of runs: {each}")


def _measure(recorder: str) -> float:
    made = [int(out) for out in gloo_job.run("bench.thread_states", recorder, ranks=RANKS)]
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
    """The number of thread states made so far, which is the id of a new one."""
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
        gloo_job.report(train(sys.argv[1]))
    else:
        main()
