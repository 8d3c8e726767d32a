"""A rank for tests: makes a ring, beats, and does what its argument says."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from pathlib import Path

from frtop_probe.ring.layout import State, StatusCell

sys.path.insert(0, str(Path(__file__).parents[1]))

from agent.ringmaker import RingMaker


def main() -> None:
    doing, *rest = sys.argv[1:]
    maker = RingMaker(Path(os.environ["FRTOP_DIR"]), rank=int(os.environ.get("RANK", "0")))
    maker.usual()
    maker.op(done=True)
    threading.Thread(target=beat, args=(maker,), name="beats", daemon=True).start()
    print("ready", flush=True)
    if doing == "wait":
        for line in sys.stdin:
            obey(maker, *line.split())
            print("done", flush=True)
    elif doing == "read":
        read_for_ever(rest[0])
    elif doing == "gil":
        hold_the_gil()
    elif doing == "child":
        with_a_child()
    elif doing == "busy":
        work(maker, int(rest[0]))


def beat(maker: RingMaker) -> None:
    while True:
        time.sleep(0.05)
        maker.beat()


def obey(maker: RingMaker, order: str, argument: str = "") -> None:
    if order == "exit":
        os._exit(int(argument))
    if order == "stop":
        maker.cells[StatusCell.STATE] = State.STOPPED
        sys.exit(0)
    if order == "kill":
        os.kill(os.getpid(), int(argument))
    if order == "op":
        maker.op(done=bool(argument))


def with_a_child() -> None:
    child = os.fork()
    if child:
        print(child, flush=True)
    signal.pause()


def work(maker: RingMaker, ops: int) -> None:
    """Ten steps a second, of so many ops each."""
    while True:
        for _ in range(ops):
            maker.op(done=True)
        maker.cells[StatusCell.OLDEST] = maker.sequence
        maker.cells[StatusCell.STEP] += 1
        maker.cells[StatusCell.STEP_NS] = time.monotonic_ns()
        time.sleep(0.1)


def read_for_ever(path: str) -> None:
    descriptor = os.open(path, os.O_RDWR)
    os.read(descriptor, 1)


def hold_the_gil() -> None:
    ctypes.PyDLL(None).sleep(600)


if __name__ == "__main__":
    main()
