"""Issues many ops at once in every way that is hard on a recorder: `python native_stress.py COUNT`.

Threads with groups of their own, groups that come and go, messages, handles that are dropped or
waited for elsewhere, code that is made and dropped, generators, forked children, and with
`--switch` a recorder that stops and resumes; `--no-forks` leaves the children out. The backend
communicates nothing.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from frtop_probe.recorder.process.lifecycle import lifecycle
from frtop_probe.ring.layout import StatusCell

THREADS: Final = 4
SWITCHED: Final = "--switch" in sys.argv
MOST_FORKS: Final = 0 if "--no-forks" in sys.argv else 20
FORK_EVERY: Final = 5000


def made_code(number: int) -> Callable[[Any], Any]:
    """A function of its own code, as of generated programs."""
    place: dict[str, Any] = {"dist": dist}
    text = "\n" * (number % 50) + "def made(group):\n  return dist.all_reduce(one, group=group)\n"
    exec(compile(text, f"made-{number % 20}.py", "exec"), place | {"one": torch.ones(2)}, place)
    place["made"].__globals__["one"] = torch.ones(2)
    return place["made"]  # type: ignore[no-any-return]


def issued(group: Any, tensor: Any) -> Iterator[Any]:
    """Ops from inside a generator."""
    while True:
        yield dist.all_reduce(tensor, group=group, async_op=True)


class Issuer(threading.Thread):
    """Issues ops in a group of its own, and counts them."""

    def __init__(self, group: Any, count: int) -> None:
        super().__init__(daemon=True)
        self.group, self.left = group, count
        self.collectives = self.messages = 0
        self.made = made_code(0)
        self.works: list[Any] = []
        self.generator = issued(group, torch.ones(3))

    def run(self) -> None:
        step = 0
        while self.left > 0:
            step += 1
            self.one_step(step)
            self.left -= 1

    def one_step(self, step: int) -> None:  # noqa: C901, PLR0912 - a line for each kind
        group, kind = self.group, step % 10
        self.collectives += kind not in (3, 4)
        if kind == 0:
            dist.all_reduce(torch.ones(step % 7 + 1), group=group)
        elif kind == 1:
            next(self.generator).wait()
        elif kind == 2:
            self.works.append(dist.all_reduce(torch.ones(2), group=group, async_op=True))
            if len(self.works) > 20:
                waiter = threading.Thread(target=self.works.pop(0).wait)
                waiter.start()
                waiter.join()
                self.works.clear()
        elif kind in (3, 4):
            self.messages += 1
            dist.isend(torch.ones(2), 1, group=group, tag=step % 3)  # nobody waits for it
        elif kind == 5:
            sizes = [step % 5 + 1] * dist.get_world_size(group)
            tensor = torch.ones(sum(sizes))
            dist.all_to_all_single(tensor, tensor.clone(), sizes, sizes, group=group)
        elif kind == 6:
            if step % 100 == 6:
                self.made = made_code(step)
            self.made(group)
        elif kind == 7:
            dist.barrier(group=group)
        elif kind == 8:
            dist.all_gather([torch.ones(2) for _ in range(8)], torch.ones(2), group=group)
        elif step % 20 == 9:
            dist.reduce_scatter_tensor(torch.ones(2), torch.ones(16), group=group)
        else:  # waited for in C++, in half of the cases as a view
            name, of = group.group_name, torch.ops._c10d_functional
            result = of.reduce_scatter_tensor(torch.ones(16), "sum", 8, name)
            of.wait_tensor(result if step % 40 == 19 else result[:1])
        if step % 2000 == 0:
            gc.collect()


def fork() -> None:
    """A child issues ops too, which nobody records, and ends at once or with its interpreter."""
    pid = os.fork()
    if not pid:
        signal.alarm(60)
        for _ in range(20):
            dist.all_reduce(torch.ones(2))
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def brief_group() -> None:
    """A group of one op."""
    group = dist.new_group(list(range(8)))
    dist.all_reduce(torch.ones(2), group=group)
    dist.destroy_process_group(group)


def main() -> None:
    """Runs it, and checks all counts at the end."""
    dist.init_process_group("fake", rank=0, world_size=8, store=FakeStore())
    count = int(sys.argv[1]) // THREADS
    groups = [dist.new_group(list(range(8))) for _ in range(THREADS)]
    threads = [Issuer(group, count) for group in groups]
    for one in threads:
        one.start()
    forked = brief = 0
    recorder = lifecycle.recorder
    assert recorder is not None
    while any(one.is_alive() for one in threads):
        done = THREADS * count - sum(max(one.left, 0) for one in threads)
        if done // FORK_EVERY > forked and forked < MOST_FORKS:
            forked += 1
            fork()
        if SWITCHED:
            recorder.stop()
            recorder.resume()
        recorder.pending.tensor_refs()
        brief_group()
        brief += 1
        time.sleep(0.01)
    assert forked or not MOST_FORKS or count * THREADS < FORK_EVERY
    check(recorder, threads, brief)


def check(recorder: Any, threads: list[Issuer], brief: int) -> None:
    cells = recorder.ring.cells
    assert not cells[StatusCell.HOOK_ERRORS]
    assert recorder.enabled[0]
    if SWITCHED:
        return
    total = sum(one.collectives + one.messages for one in threads) + 3 * brief
    assert cells[StatusCell.HEAD] - THREADS - 1 == total, (cells[StatusCell.HEAD], total, brief)
    for one in threads:
        group = recorder.groups.known[id(one.group)]
        assert group.issued[1:] == (one.collectives, one.messages)
        assert not one.left


if __name__ == "__main__":
    main()
