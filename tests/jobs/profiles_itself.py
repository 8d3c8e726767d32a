"""Trains while its own torch.profiler writes two traces per rank into a folder. Truth: healthy."""

import sys

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, schedule, tensorboard_trace_handler


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=1, warmup=1, active=4, repeat=2),
        on_trace_ready=tensorboard_trace_handler(sys.argv[1]),
    ) as profiler:
        for _ in range(13):
            net(torch.ones(8, 32)).square().mean().backward()
            works = [dist.all_reduce(one.grad, async_op=True) for one in net.parameters()]
            for work in works:
                work.wait()
            optimizer.step()
            optimizer.zero_grad()
            if dist.get_rank() == 0:
                dist.send(torch.ones(1), 1)
            elif dist.get_rank() == 1:
                dist.recv(torch.ones(1), 0)
            dist.barrier()
            profiler.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
