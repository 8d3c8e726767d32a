"""The recorder and what a program does to its own process do not disturb each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from frtop_probe.ring.layout import State, StatusCell
from recorder.interactive_rank import interactive_ranks
from recorder.rank_runner import on_fake

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    "op", ["dist.all_reduce(tensor)", "dist.all_reduce(tensor, async_op=True).wait()"]
)
def test_exceptions_of_signal_handlers_reach_the_program(op: str, tmp_path: Path) -> None:
    """A signal handler interrupts any Python code, so its exception may surface in the hook."""
    ended = on_fake(
        tmp_path,
        """
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
        OP  # a busy host may interrupt before the next one begins
        try:
            signal.setitimer(signal.ITIMER_REAL, random.uniform(0.00005, 0.0002))
            while watchdog.raised == number:
                OP
            raise AssertionError("lost")
        except TimeoutError as error:
            assert error.args[0] == number + 1
    dist.all_reduce(tensor)
    wait_for_heartbeats(2)  # the recorder's thread tests the interrupted ops
    """.replace("OP", op),
    )
    assert ended.err == ""
    ring = ended.ring
    assert (ring.cell(StatusCell.HOOK_ERRORS), ring.cell(StatusCell.STATE)) == (0, State.STOPPED)
    assert ring.ops() >= 1000
    assert not ring.pending()


def test_a_relative_folder_stays_where_it_was_at_the_start(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    ended = on_fake(
        tmp_path,
        """
    import frtop_probe.recorder.recorder as recorder
    recorder.AGENT_EVERY_S = 0.1
    init()
    os.chdir("elsewhere")
    wait_for_heartbeats(3)
    dist.barrier()
    """,
        cwd=tmp_path,
        FRTOP_DIR="rings",
    )
    assert ended.err == ""
    assert list(elsewhere.iterdir()) == []
    assert [path.suffix for path in (tmp_path / "rings").iterdir()] == [".ring"]


def test_the_recorders_thread_takes_no_signal_that_the_program_blocks(tmp_path: Path) -> None:
    ended = on_fake(
        tmp_path,
        """
    init()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGTERM})
    for _ in range(20):
        os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(0.01)
        assert signal.sigtimedwait({signal.SIGUSR1}, 5).si_signo == signal.SIGUSR1
    os.kill(os.getpid(), signal.SIGTERM)
    assert signal.sigwait({signal.SIGTERM}) == signal.SIGTERM
    """,
    )
    assert ended.err == ""


def test_descriptors_closed_by_the_program_are_not_used_after_their_numbers_are_reused(
    tmp_path: Path,
) -> None:
    with interactive_ranks(tmp_path / "rings", 1, "fake") as (rank,):
        assert rank.request(ask="SummarizeTensors")[0]["error"] == "none"
        rank.wait_for_heartbeats()  # it has closed that connection
        # The program's own sockets get all the numbers that ours had.
        rank.run(
            "import socket\n"
            "os.closerange(3, 64)\n"
            "saved['servers'] = [socket.create_server(('127.0.0.1', 0)) for _ in range(4)]\n"
            "saved['pairs'] = [socket.socketpair() for _ in range(8)]\n"
            "saved['clients'] = [socket.create_connection(server.getsockname())"
            " for server in saved['servers']]\n"
            "for one in saved['servers']: one.settimeout(5)\n"
            "from frtop_probe.ring.layout import StatusCell\n"
            "cells = lifecycle.recorder.ring.cells\n"
            "beats, used = cells[StatusCell.HEARTBEATS], time.process_time()\n"
            "wait_for(lambda: cells[StatusCell.HEARTBEATS] >= beats + 4)\n"
            "assert time.process_time() - used < 0.5\n"  # the recorder does not spin
            "saved['accepted'] = [server.accept()[0] for server in saved['servers']]\n"
        )
        # It closes only its own descriptors, also in a child.
        rank.run(
            "lifecycle.stop()\n"
            "child = os.fork()\n"
            "if not child:\n"
            "    [one.getsockname() for pair in saved['pairs'] for one in pair]\n"
            "    os._exit(0)\n"
            "assert os.waitpid(child, 0)[1] == 0\n"
            "for client, accepted in zip(saved['clients'], saved['accepted']):\n"
            "    client.send(b'x'); assert accepted.recv(9) == b'x'\n"
            "for a, b in saved['pairs']:\n"
            "    a.setblocking(False); b.setblocking(False)\n"
            "    for one in (a, b):\n"
            "        try: raise AssertionError(one.recv(9))\n"
            "        except BlockingIOError: pass\n"
        )
        rank.start("sys.exit()")
        assert rank.process.wait(30) == 0
        assert rank.ring.cell(StatusCell.STATE) == State.STOPPED
