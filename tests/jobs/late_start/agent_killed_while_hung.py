"""Rank 1 sleeps, and while the others wait for it their agent is killed and started anew."""

import os
import signal
import time

import torch
import torch.distributed as dist

from frtop_probe.agent import announcement
from frtop_probe.ring.folder import candidates
from zoo.rank import STEP_S, join
from zoo.truth import Case, Truth

CASE = Case((Truth(("not_entered",), culprits=(1,), causes=("sleeping",)),))


def main() -> None:
    job = join()
    gradient = torch.ones(1000)
    for step in range(100):
        time.sleep(STEP_S)
        if step == 40 and job.rank == 1:
            job.frozen()
            time.sleep(1)
            kill_agent()
            time.sleep(3600)
        job.keep(dist.all_reduce(gradient, async_op=job.late))
        job.wait()


def kill_agent() -> None:
    agent = announcement.read(candidates()[0])
    assert agent is not None
    os.kill(agent.pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
