"""The agent is killed and started anew while the job is well; then rank 1 sleeps."""

import os
import signal
import time

import torch
import torch.distributed as dist

from frtop_probe.agent import announcement
from frtop_probe.ring.folder import candidates
from zoo.rank import join
from zoo.truth import Case, Truth

CASE = Case((Truth(("not_entered",), culprits=(1,), causes=("sleeping",)),))
STEPS = 150


def main() -> None:
    job = join()
    gradient = torch.ones(1000)
    for step in range(STEPS):
        time.sleep(0.1)
        if step == 20 and job.rank == 0:
            kill_agent()
        if step == STEPS - 10 and job.rank == 1:
            job.frozen()
            time.sleep(3600)
        job.keep(dist.all_reduce(gradient, async_op=job.late))
        job.wait()


def kill_agent() -> None:
    agent = announcement.read(candidates()[0])
    assert agent is not None
    os.kill(agent.pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
