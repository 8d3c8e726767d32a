"""Which threads of a process wait for which others."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from frtop_probe.stacks import stacks
from frtop_probe.stacks.source_lines import SourceLines
from frtop_probe.stacks.thread_waits import AtFrame, waits_of

LIB = "/usr/lib/python3.11"
OWN = 0x100  # of thread 1's own object, 0x200 of thread 2's


def step(file: str, function: str, line: int = 1, **variables: int) -> AtFrame:
    path = file if file.startswith("/") else f"/home/me/{file}"
    return AtFrame.of(path, function, line,
                   [(name, f"<Thing at {at:#x}>") for name, at in variables.items()])  # fmt: skip


def started(ident: int, *steps: AtFrame) -> list[AtFrame]:
    own = OWN * ident
    return [
        *steps,
        step(f"{LIB}/threading.py", "Thread.run", self=own),
        step(f"{LIB}/threading.py", "Thread._bootstrap_inner", self=own),
        step(f"{LIB}/threading.py", "Thread._bootstrap", self=own),
    ]


def condition(at: int = 0x9) -> AtFrame:
    return step(f"{LIB}/threading.py", "Condition.wait", self=at)


JOIN = (
    step(f"{LIB}/threading.py", "Thread._wait_for_tstate_lock", self=2 * OWN),
    step(f"{LIB}/threading.py", "Thread.join", self=2 * OWN),
    step("train.py", "main"),
)
FUTURE = (
    condition(),
    step(f"{LIB}/concurrent/futures/_base.py", "Future.result", self=0x7),
    step("train.py", "main"),
)
GET = (condition(), step(f"{LIB}/queue.py", "Queue.get", self=0x5), step("train.py", "main"))
PUT = (condition(), step(f"{LIB}/queue.py", "Queue.put", self=0x5), step("data.py", "fill"))
EVENT = (condition(), step(f"{LIB}/threading.py", "Event.wait", self=0x5), step("a.py", "f"))
SHUTDOWN = (
    *JOIN[:2],
    step(f"{LIB}/concurrent/futures/thread.py", "shutdown", self=0x8, t=2 * OWN),
    step("train.py", "main"),
)
ITEM = (
    step("ckpt.py", "save"),
    step(f"{LIB}/concurrent/futures/thread.py", "_WorkItem.run", self=0x4),
    step(f"{LIB}/concurrent/futures/thread.py", "_worker", work_queue=0x3),
)
IDLE = ITEM[2:]
CHILD = (
    step(f"{LIB}/multiprocessing/connection.py", "Connection._recv", self=0x6),
    step(f"{LIB}/multiprocessing/queues.py", "Queue.get", self=0x5),
    step("train.py", "main"),
)
POOL = (
    condition(),
    step(f"{LIB}/threading.py", "Event.wait", self=0x9),
    step(f"{LIB}/multiprocessing/pool.py", "ApplyResult.wait", self=0x6),
    step(f"{LIB}/multiprocessing/pool.py", "ApplyResult.get", self=0x6),
    step("train.py", "main"),
)


@pytest.mark.parametrize(
    ("main", "other", "kind", "known"),
    [
        (JOIN, (step("a.py", "f"),), "thread", True),
        (SHUTDOWN, ITEM, "thread", True),
        (FUTURE, ITEM, "future", True),
        (FUTURE, IDLE, "future", False),
        (FUTURE, (step("a.py", "f"),), "future", False),
        (GET, (step("a.py", "f", items=0x5),), "queue", True),
        (GET, (step("a.py", "f", items=0x6),), "queue", False),
        (GET, GET, "queue", False),  # it waits there, too
        (PUT, (step("a.py", "f", items=0x5),), "full queue", True),
        (EVENT, (step("a.py", "f", stop=0x5),), "event", True),
        (EVENT, EVENT, "event", False),
        ((condition(0x5), step("a.py", "f")), (step("b.py", "g", ready=0x5),), "event", True),
        (CHILD, (step("a.py", "f", items=0x5),), "child's queue", True),
        (POOL, (step("a.py", "f"),), "pool", False),
    ],
)
def test_the_object_that_a_thread_waits_for_tells_who_is_meant(
    main: Sequence[AtFrame], other: Sequence[AtFrame], kind: str, known: bool
) -> None:
    found = waits_of({1: main, 2: started(2, *other)}, lambda *_: ())
    assert (found[1].kind, found[1].threads) == (kind, (2,) if known else ())


@pytest.mark.parametrize("main", [
    (step("train.py", "main"),), IDLE, (step(f"{LIB}/selectors.py", "select"),), (),
])  # fmt: skip
def test_who_waits_for_no_thread_has_no_wait(main: Sequence[AtFrame]) -> None:
    assert waits_of({1: main}, lambda *_: ()) == {}


SOURCE = {
    ("/home/me/cache.py", 8): ["with self.lock:", "def get(self):"],
    ("/home/me/cache.py", 3): ["self.link.recv(8)", "if new:", "with self.lock:", "def fill(self)"],
    ("/home/me/cache.py", 5): ["self.link.recv(8)", "with self.other:", "def fill(self):"],
    ("/home/me/other.py", 3): ["read()", "with lock:", "def f():"],
    ("/home/me/cache.py", 20): ["with lock:", "def f():"],
    ("/home/me/cache.py", 22): ["lock.acquire()", "def f():"],
    ("/home/me/cache.py", 24): ["with lock:", "with lock:", "def f():"],
    ("/home/me/cache.py", 23): ["read()", "with lock:", "def f():"],
    ("/home/me/cache.py", 25): ["read()", "lock.acquire()", "def f():"],
    ("/home/me/cache.py", 26): ["read()", "if lock.acquire(timeout=5):", "def f():"],
    ("/home/me/cache.py", 27): ["read()", "if not lock.acquire(timeout=5):", "def f():"],
}


@pytest.mark.parametrize(("mine", "theirs", "known"), [
    (step("cache.py", "get", 8, self=0x1), step("cache.py", "fill", 3, self=0x1), True),
    (step("cache.py", "get", 8, self=0x1), step("cache.py", "fill", 3, self=0x2), False),
    (step("cache.py", "get", 8, self=0x1), step("cache.py", "fill", 5, self=0x1), False),
    (step("cache.py", "get", 8, self=0x1), step("cache.py", "get", 8, self=0x1), False),
    (step("cache.py", "f", 20), step("cache.py", "f", 23), True),
    (step("cache.py", "f", 22), step("cache.py", "f", 23), True),
    (step("cache.py", "f", 22), step("cache.py", "f", 25), True),
    (step("cache.py", "f", 20), step("cache.py", "f", 26), True),
    (step("cache.py", "f", 20), step("cache.py", "f", 27), False),
    (step("cache.py", "f", 22, lock=0x3), step("cache.py", "f", 25, lock=0x4), False),
    (step("cache.py", "f", 22), step("cache.py", "f", 22), False),  # it waits for it, too
    (step("cache.py", "f", 20), step("other.py", "f", 3), False),  # another global of that name
    (step("cache.py", "f", 20, lock=0x3), step("other.py", "f", 3, lock=0x3), True),
    (step("cache.py", "f", 20, lock=0x3), step("cache.py", "f", 23), False),
])  # fmt: skip
def test_who_is_inside_of_with_of_the_same_lock_holds_it(
    mine: AtFrame, theirs: AtFrame, known: bool
) -> None:
    found = waits_of({1: [mine], 2: [theirs]}, lambda file, line: SOURCE.get((file, line), ()))
    assert (found[1].kind, found[1].threads) == ("lock", (2,) if known else ())


def test_a_thread_may_hold_the_lock_that_it_waits_for() -> None:
    mine = step("cache.py", "f", 24)
    found = waits_of({1: [mine]}, lambda file, line: SOURCE.get((file, line), ()))
    assert found[1].threads == (1,)


def test_a_condition_that_waits_has_given_its_lock_back() -> None:
    source = {("/home/me/a.py", 1): ["self.ready.wait()", "with self.ready:", "def f(self):"],
              ("/home/me/a.py", 9): ["with self.ready:", "def g(self):"]}  # fmt: skip
    waiting = [condition(0x5), step("a.py", "f", 1, self=0x1)]
    entering = [
        step(f"{LIB}/threading.py", "Condition.__enter__", self=0x5),
        step("a.py", "g", 9, self=0x1),
    ]
    found = waits_of({1: entering, 2: waiting}, lambda file, line: source.get((file, line), ()))
    assert found[1].threads == ()


PROGRAM = """\
import threading, queue, socket
from concurrent.futures import ThreadPoolExecutor

class Cache:
    def __init__(self):
        self.lock = threading.Lock()
        self.gate = threading.Lock()

    def keep(self, link):
        self.gate.acquire()
        try:
            link.recv(8)
        finally:
            self.gate.release()

    def enter(self):
        self.gate.acquire()

    def fill(self, link):
        with self.lock:
            if link:
                link.recv(
                    8,
                )

    def get(self, held):
        held.wait()
        with self.lock:
            pass

def main():
    cache, (one, other) = Cache(), socket.socketpair()
    filler = threading.Thread(target=cache.fill, args=(one,), name="filler", daemon=True)
    filler.start()
    threading.Thread(target=cache.keep, args=(other,), name="keeper", daemon=True).start()
    while not (cache.lock.locked() and cache.gate.locked()):
        pass
    threading.Thread(target=cache.enter, name="enterer", daemon=True).start()
    held = threading.Event()
    held.set()
    getter = ThreadPoolExecutor(4, thread_name_prefix="getter")
    future = getter.submit(cache.get, held)
    ready = queue.Queue()
    threading.Thread(target=future.result, name="waiter", daemon=True).start()
    threading.Thread(target=lambda: ready.get(), name="reader", daemon=True).start()
    print(flush=True)
    filler.join()

main()
"""


async def test_the_waits_of_a_real_process_are_told(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    process = subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        found: dict[str, tuple[str, str]] = {}
        while len(found) < 5:  # they start one after the other
            dump = await stacks.dump(process.pid, 10, SourceLines())
            names = {thread.ident: thread.name for thread in dump.threads}
            found = {
                thread.name: (thread.wait.kind, ",".join(names[one] for one in thread.wait.threads))
                for thread in dump.threads
                if thread.wait is not None
            }
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
    assert found == {
        "MainThread": ("thread", "filler"),
        "getter_0": ("lock", "filler"),
        "waiter": ("future", "getter_0"),
        "reader": ("queue", ""),
        "enterer": ("lock", "keeper"),
    }
