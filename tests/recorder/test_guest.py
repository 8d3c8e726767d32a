"""What a program does to its own process must not meet us, nor we it."""

from __future__ import annotations

from pathlib import Path

import pytest

from frtop_probe.ring.layout import Cell, State
from recorder.told import told, until
from recorder.world import run

pytestmark = pytest.mark.torch

FAKE = """
    import os, signal, sys, threading, time
    import torch, torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore
    def init():
        dist.init_process_group("fake", rank=0, world_size=8, store=FakeStore())
"""


@pytest.mark.parametrize(
    "op", ["dist.all_reduce(tensor)", "dist.all_reduce(tensor, async_op=True).wait()"]
)
def test_what_a_signal_handler_raises_is_the_programs(op: str, tmp_path: Path) -> None:
    """It interrupts whatever Python runs: a watchdog's timeout may arrive inside the hook."""
    program = (
        FAKE
        + """
    import random
    class Watchdog:
        raised = 0
        def __call__(self, number, frame):
            self.raised += 1
            raise TimeoutError(self.raised)
    init()
    watchdog, tensor = Watchdog(), torch.ones(2)
    signal.signal(signal.SIGALRM, watchdog)
    for number in range(1000):
        try:
            signal.setitimer(signal.ITIMER_REAL, random.uniform(0.00005, 0.0002))
            while watchdog.raised == number:
                OP
            raise AssertionError("lost")
        except TimeoutError as error:
            assert error.args[0] == number + 1
    dist.all_reduce(tensor)
    time.sleep(1)  # a beat goes over what was interrupted
    """.replace("OP", op)
    )
    (ended,) = run(program, tmp_path / "rings")
    assert (ended.code, ended.err) == (0, "")
    ring = ended.ring
    assert (ring.cell(Cell.HOOK_ERRORS), ring.cell(Cell.STATE)) == (0, State.STOPPED)
    assert ring.cell(Cell.OPS) >= 1000
    assert not ring.pending()


def test_a_folder_named_from_where_the_program_began_stays_there(tmp_path: Path) -> None:
    program = (
        FAKE
        + """
    import frtop_probe.recorder.recorder as recorder
    recorder.AGENT_EVERY_S = 0.1
    init()
    os.chdir("elsewhere")
    time.sleep(1)
    dist.barrier()
    """
    )
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (ended,) = run(program, tmp_path / "rings", cwd=tmp_path, FRTOP_DIR="rings")
    assert (ended.code, ended.err) == (0, "")
    assert list(elsewhere.iterdir()) == []
    assert [path.suffix for path in (tmp_path / "rings").iterdir()] == [".ring"]


def test_our_thread_takes_no_signal_that_the_program_keeps_for_itself(tmp_path: Path) -> None:
    program = (
        FAKE
        + """
    init()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGTERM})
    for _ in range(20):
        os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(0.01)
        assert signal.sigtimedwait({signal.SIGUSR1}, 5).si_signo == signal.SIGUSR1
    os.kill(os.getpid(), signal.SIGTERM)
    assert signal.sigwait({signal.SIGTERM}) == signal.SIGTERM
    """
    )
    (ended,) = run(program, tmp_path / "rings")
    assert (ended.code, ended.err) == (0, "")


def test_descriptors_that_the_program_closed_are_left_to_whoever_has_their_numbers(
    tmp_path: Path,
) -> None:
    with told(tmp_path / "rings", 1, "fake") as (rank,):
        assert rank.ask(ask="tensors")[0]["error"] == "none"
        # The program's own things take all the numbers that ours had.
        rank.do(
            "import socket\n"
            "os.closerange(3, 64)\n"
            "kept['doors'] = [socket.create_server(('127.0.0.1', 0)) for _ in range(4)]\n"
            "kept['pairs'] = [socket.socketpair() for _ in range(8)]\n"
            "kept['friends'] = [socket.create_connection(door.getsockname())"
            " for door in kept['doors']]\n"
            "for one in kept['doors']: one.settimeout(5)\n"
            "time.sleep(1)\n"
            "kept['taken'] = [door.accept()[0] for door in kept['doors']]\n"
        )
        until(lambda: rank.ring.cell(Cell.BEATS) >= 4, "beats")
        # It neither spins ...
        rank.do(
            "kept['before'] = time.thread_time(), time.process_time()\n"
            "time.sleep(1)\n"
            "assert time.process_time() - kept['before'][1] < 0.5"
        )
        # ... nor ends what is not its own, here or in a child.
        rank.do(
            "life.stop()\n"
            "child = os.fork()\n"
            "if not child:\n"
            "    [one.getsockname() for pair in kept['pairs'] for one in pair]\n"
            "    os._exit(0)\n"
            "assert os.waitpid(child, 0)[1] == 0\n"
            "for door, friend, taken in zip(kept['doors'], kept['friends'], kept['taken']):\n"
            "    friend.send(b'x'); assert taken.recv(9) == b'x'\n"
            "for a, b in kept['pairs']:\n"
            "    a.setblocking(False); b.setblocking(False)\n"
            "    for one in (a, b):\n"
            "        try: raise AssertionError(one.recv(9))\n"
            "        except BlockingIOError: pass\n"
        )
        rank.begin("sys.exit()")
        assert rank.process.wait(30) == 0
        assert rank.ring.cell(Cell.STATE) == State.STOPPED
