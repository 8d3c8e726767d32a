"""A small training on gloo in which the ranks `--at` do what `--fault` says: `making` runs it.

It knows nothing of frtop, and neither its output nor its command line says that a fault is made:
options are in `OPTIONS`, and `STRUCK` is a folder for what `making` has to know.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import json
import logging
import mmap
import os
import resource
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed import FileStore  # type: ignore[attr-defined]
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

STEPS: Final = 12
STRIKES: Final = 5
"""The step of the fault."""
STEP_S: Final = 0.15
FORMATS: Final = (
    "%(message)s",
    "%(asctime)s - %(levelname)s - %(name)s - %(message)s",
    "[%(asctime)s][%(name)s][%(levelname)s] - %(message)s",
    "%(levelname)s:%(name)s:%(message)s",
)
log = logging.getLogger("train")


class Net(nn.Module):
    """Two layers; the second one is left out when `short`."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 32)
        self.short = False

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.first(batch)
        if not self.short:
            hidden = self.second(hidden)
        return hidden


class Samples(Dataset[torch.Tensor]):
    """Made of numbers; `strike` is called for the sample with which the fault begins."""

    def __init__(self, strike: Callable[[], None] | None = None) -> None:
        self.strike = strike

    def __len__(self) -> int:
        return STEPS * 4

    def __getitem__(self, at: int) -> torch.Tensor:
        if self.strike is not None and at == STRIKES * 4 + 1:
            self.strike()
        return torch.full((16,), float(at % 7))


class BadGradient(torch.autograd.Function):
    """Raises in the backward pass."""

    @staticmethod
    def forward(ctx: Any, loss: torch.Tensor) -> torch.Tensor:
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise FloatingPointError("gradient is not finite")


def by_signal(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(600)


def read_nowhere() -> None:
    ctypes.string_at(0)


def read_truncated() -> None:
    with tempfile.TemporaryFile() as file:
        file.write(bytes(8192))
        file.flush()
        pages = mmap.mmap(file.fileno(), 8192)
        file.truncate(0)
        log.debug("%d", pages[4096])


def free_twice() -> None:
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    block = libc.malloc(24)
    libc.free(block)
    libc.free(block)


def terminate() -> None:
    ctypes.CDLL("libstdc++.so.6")._ZSt9terminatev()


def fatal() -> None:
    ctypes.pythonapi.Py_FatalError(b"deletion of interned string failed")


def load_batch() -> None:
    raise ValueError("bad sample 17: expected 3 channels, got 1")


def load_shard() -> None:
    try:
        Path("/data/shard-0412.tar").read_bytes()
    except OSError as error:
        raise RuntimeError("cannot read shard 412\nsee the data team's page") from error


def check_loss() -> None:
    assert torch.isfinite(torch.tensor(float("nan")))


def recurse() -> None:
    recurse()


def fetch_config() -> None:
    """Hangs, as a call to another service might."""
    time.sleep(600)


def no_module() -> None:
    import flash_attention  # type: ignore[import-not-found]  # noqa: F401, PLC0415


def full(ask: Callable[[], object]) -> Callable[[], None]:
    """Asks for more memory than the process may have."""

    def strike() -> None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * mmap.PAGESIZE + (64 << 20)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        ask()

    return strike


def end(code: int | str) -> Callable[[], None]:
    return lambda: sys.exit(code)


STARTING: Final[dict[str, Callable[[], None]]] = {
    "exception before init": load_batch,
    "no module": no_module,
    "never joins": fetch_config,
    "killed before init": lambda: by_signal(signal.SIGKILL),
}
"""Faults before the process group is there."""
STEPPING: Final[dict[str, Callable[[], None]]] = {
    "SIGKILL": lambda: by_signal(signal.SIGKILL),
    "SIGTERM": lambda: by_signal(signal.SIGTERM),
    "SIGINT": lambda: by_signal(signal.SIGINT),
    "SIGSTOP": lambda: by_signal(signal.SIGSTOP),
    "SIGSEGV": read_nowhere,
    "SIGSEGV, faulthandler": read_nowhere,
    "SIGBUS": read_truncated,
    "abort": os.abort,
    "double free": free_twice,
    "terminate": terminate,
    "fatal Python error": fatal,
    "exception": load_batch,
    "exception in all": load_shard,
    "exception, chained": load_shard,
    "assertion": check_loss,
    "recursion": recurse,
    "exit 3": end(3),
    "exit with text": end("no GPU is free, giving up"),
    "os._exit": lambda: os._exit(4),
    "exit 0": end(0),
    "MemoryError": full(lambda: bytearray(1 << 31)),
    "allocator": full(lambda: torch.empty(1 << 30)),
    "hang": fetch_config,
    "hang, faulthandler": fetch_config,
    "hang, handled exception elsewhere": fetch_config,
    "hang, py-spy": fetch_config,
    "time limit": fetch_config,
}
"""Faults between two steps."""
LOADING: Final[dict[str, Callable[[], None]]] = {
    "exception in a data worker": load_batch,
    "data worker killed": lambda: by_signal(signal.SIGKILL),
    "data worker exits": lambda: os._exit(1),
    "data worker crashes": read_nowhere,
}


class Job:
    """One rank of the training."""

    def __init__(self, options: argparse.Namespace, rank: int, world: int) -> None:
        self.fault, self.world, self.rank = options.fault, world, rank
        again = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
        self.struck = rank in (options.then if again else options.at)
        self.timeout = timedelta(seconds=options.timeout)
        self.options = options
        self.signs = Path(os.environ["STRUCK"])
        self.extra: Any = None  # a second group

    def strikes(self, fault: str, step: int = STRIKES) -> bool:
        """Whether this rank does it now."""
        if not (self.struck and fault == self.fault and step == STRIKES):
            return False
        self.say(f"struck.{self.rank}")
        return True

    def say(self, name: str) -> None:
        (self.signs / name).write_text(str(os.getpid()))

    def data_fault(self) -> None:
        self.say(f"struck.{self.rank}")
        LOADING[self.fault]()

    def run(self) -> None:
        if self.fault in STARTING and self.strikes(self.fault):
            STARTING[self.fault]()
        store, whom = None, (-1, -1)
        if self.options.then:  # else gloo finds addresses of the first attempt in torchrun's store
            attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
            store = FileStore(f"{self.signs}/store{attempt}", self.world)
            whom = self.world, self.rank
        dist.init_process_group("gloo", None, self.timeout, *whom, store)
        self.say(f"began.{self.rank}")
        if "faulthandler" in self.fault:
            faulthandler.enable()
            if self.fault.startswith("hang"):
                faulthandler.dump_traceback_later(9)
        log.info("rank %d of %d is ready", self.rank, self.world)
        if self.rank == 0:
            warnings.warn("lr_scheduler.step() was called before optimizer.step()", stacklevel=1)
        self.train(Net())
        log.info("rank %d has done all steps", self.rank)
        dist.destroy_process_group()

    def train(self, net: Net) -> None:
        # DDP of torch 2.13 crashes on gloo with TORCH_DISTRIBUTED_DEBUG=DETAIL.
        by_hand = "TORCH_DISTRIBUTED_DEBUG" in os.environ
        model = net if by_hand else DistributedDataParallel(net)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        bad = self.data_fault if self.struck and self.fault in LOADING else None
        workers = 2 if self.fault in LOADING else self.options.workers
        for step, batch in enumerate(DataLoader(Samples(bad), batch_size=4, num_workers=workers)):
            self.show(step)
            if self.strikes("fewer batches", step):
                break
            if self.fault in STEPPING and self.strikes(self.fault, step):
                STEPPING[self.fault]()
            if self.fault.endswith("handled exception elsewhere") and step == STRIKES - 1:
                self.handle()
            net.short = self.strikes("unused parameter", step)
            loss = model(batch).mean()
            if self.strikes("exception in backward", step):
                loss = BadGradient.apply(loss)  # type: ignore[no-untyped-call]
            optimizer.zero_grad()
            loss.backward()
            for gradient in (one.grad for one in net.parameters() if by_hand):
                dist.all_reduce(gradient)
            optimizer.step()
            self.meet(step, loss.detach())
            time.sleep(STEP_S)

    def meet(self, step: int, loss: torch.Tensor) -> None:
        """The collective at the end of a step."""
        if step == STRIKES and self.fault.startswith("barrier"):
            if self.strikes(self.fault, step):
                fetch_config()
            every = self.fault.endswith("all ranks")
            dist.monitored_barrier(timeout=timedelta(seconds=5), wait_all_ranks=every)
        if step == STRIKES and self.fault == "no new_group":
            if self.strikes(self.fault, step):
                fetch_config()
            self.extra = dist.new_group(backend="gloo", timeout=self.timeout)
        if self.strikes("skipped collective", step):
            return
        if self.strikes("other op", step) or self.strikes("other op, DETAIL", step):
            dist.broadcast(loss, self.rank)
            return
        if self.strikes("other shape", step) or self.strikes("other shape, DETAIL", step):
            loss = torch.ones(1000)
        if self.strikes("other dtype", step) or self.strikes("other dtype, DETAIL", step):
            loss = loss.double()
        dist.all_reduce(loss)

    def handle(self) -> None:
        """An exception in one of the other ranks, which goes on."""
        if self.rank == (min(self.options.at) + 1) % self.world:
            try:
                load_shard()
            except RuntimeError:
                log.exception("upload of metrics failed, trying again later")

    def show(self, step: int) -> None:
        if self.options.bars and self.rank == 0:
            done = step * 20 // STEPS
            bar = f"{'█' * done}{' ' * (20 - done)}"
            text = f"{step * 100 // STEPS:3d}%|{bar}| {step}/{STEPS} [00:0{step % 10}<00:09]"
            print(f"\rEpoch 0: {text}", end="", file=sys.stderr, flush=True)
        elif step % 2 == 0:
            log.info("epoch 0 step %d loss %.4f", step, 2.5 / (step + 1))
        if step == 1:
            print(f"rank {self.rank}: first batch has shape (4, 16)")


def first_of(*names: str) -> int:
    """The first of these variables: launchers differ."""
    return next(int(os.environ[name]) for name in names if name in os.environ)


def start(local: int, options: argparse.Namespace) -> None:
    """One rank; `local` is its number if this program has started all ranks itself."""
    world = options.spawn or first_of("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE")
    names = "RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"
    rank = local if options.spawn else first_of(*names)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world)}
    logging.basicConfig(level=logging.INFO, format=FORMATS[options.format])
    torch.manual_seed(rank)
    Job(options, rank, world).run()


def ranks(text: str) -> list[int]:
    return [int(one) for one in text.split(",") if one]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="none")
    parser.add_argument("--at", type=ranks, default=[])
    parser.add_argument("--then", type=ranks, default=[], help="after a restart")
    parser.add_argument("--timeout", type=int, default=60)
    parser.add_argument("--format", type=int, default=0)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--bars", action="store_true")
    parser.add_argument("--record", action="store_true", help="torchrun's table gets exceptions")
    parser.add_argument("--spawn", type=int, default=0, metavar="N", help="start N ranks itself")
    options = parser.parse_args(json.loads(os.environ["OPTIONS"]))
    if options.spawn:
        mp.spawn(start, (options,), options.spawn)  # type: ignore[attr-defined, no-untyped-call]
    else:
        (record(start) if options.record else start)(-1, options)


if __name__ == "__main__":
    main()
