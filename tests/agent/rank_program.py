"""A rank for tests: makes a ring with a heartbeat, and does what its first argument says."""

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

from agent.ring_builder import RingBuilder


def main() -> None:
    action, *rest = sys.argv[1:]
    builder = RingBuilder(Path(os.environ["FRTOP_DIR"]), rank=int(os.environ.get("RANK", "0")))
    builder.standard_tables()
    builder.op(done=True)
    threading.Thread(target=beat, args=(builder,), name="beats", daemon=True).start()
    print("ready", flush=True)
    if action == "wait":
        for line in sys.stdin:
            execute(builder, *line.split())
            print("done", flush=True)
    elif action == "read":
        read_for_ever(rest[0])
    elif action == "gil":
        hold_the_gil()
    elif action == "child":
        with_a_child()
    elif action == "busy":
        work(builder, int(rest[0]))


def beat(builder: RingBuilder) -> None:
    while True:
        time.sleep(0.05)
        builder.heartbeat()


def execute(builder: RingBuilder, command: str, argument: str = "") -> None:
    if command == "exit":
        os._exit(int(argument))
    if command == "stop":
        builder.cells[StatusCell.STATE] = State.STOPPED
        sys.exit(0)
    if command == "kill":
        os.kill(os.getpid(), int(argument))
    if command == "op":
        builder.op(done=bool(argument))


def with_a_child() -> None:
    child = os.fork()
    if child:
        print(child, flush=True)
    signal.pause()


def work(builder: RingBuilder, ops: int) -> None:
    """Makes ten steps per second, with `ops` ops each."""
    while True:
        for _ in range(ops):
            builder.op(done=True)
        builder.cells[StatusCell.OLDEST] = builder.sequence
        builder.cells[StatusCell.STEP] += 1
        builder.cells[StatusCell.STEP_NS] = time.monotonic_ns()
        time.sleep(0.1)


def read_for_ever(path: str) -> None:
    descriptor = os.open(path, os.O_RDWR)
    os.read(descriptor, 1)


def hold_the_gil() -> None:
    ctypes.PyDLL(None).sleep(600)


if __name__ == "__main__":
    main()
