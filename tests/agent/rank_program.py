"""A rank for tests: makes a ring, beats, and does what its argument says."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from pathlib import Path

from frtop_probe.ring.layout import Cell, State

sys.path.insert(0, str(Path(__file__).parents[1]))

from agent.ringmaker import RingMaker  # noqa: E402


def main() -> None:
    doing, *rest = sys.argv[1:]
    maker = RingMaker(Path(os.environ["FRTOP_DIR"]), rank=int(os.environ.get("RANK", "0")))
    maker.usual()
    maker.op(done=True)
    leaving = threading.Event()

    def beats() -> None:
        while not leaving.wait(0.05):
            maker.beat()

    threading.Thread(target=beats, name="beats", daemon=True).start()
    print("ready", flush=True)
    if doing == "wait":  # for orders
        for line in sys.stdin:
            order = line.split()
            if order[0] == "exit":
                os._exit(int(order[1]))
            if order[0] == "stop":
                maker.cells[Cell.STATE] = State.STOPPED
                sys.exit(0)
            if order[0] == "kill":
                os.kill(os.getpid(), int(order[1]))
            if order[0] == "op":
                maker.op(done=len(order) > 1)
            print("done", flush=True)
    elif doing == "read":  # for ever, of a FIFO nobody writes to
        read_for_ever(rest[0])
    elif doing == "gil":  # sleeps in C and keeps the GIL
        hold_the_gil()
    elif doing == "child":
        child = os.fork()
        if not child:
            signal.pause()
        print(child, flush=True)
        signal.pause()
    elif doing == "busy":
        while True:
            for _ in range(int(rest[0])):
                maker.op(done=True)
            maker.cells[Cell.STEP] += 1
            maker.cells[Cell.STEP_NS] = time.monotonic_ns()
            time.sleep(0.1)


def read_for_ever(path: str) -> None:
    descriptor = os.open(path, os.O_RDWR)
    os.read(descriptor, 1)


def hold_the_gil() -> None:
    ctypes.PyDLL(None).sleep(600)


if __name__ == "__main__":
    main()
