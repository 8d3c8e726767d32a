"""The child that reads, and what happens when it does not answer."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from frtop_probe.proc import line_child
from frtop_probe.proc.memory import GONE
from frtop_probe.unprepared import torch_layout, worker
from frtop_probe.unprepared.__main__ import Readers
from frtop_probe.unprepared.discovery.facts import SCAN_FAILED, Discovery
from frtop_probe.unprepared.discovery.scanner import Scanner
from frtop_probe.unprepared.model import from_json
from frtop_probe.unprepared.worker import UnpreparedWorker
from unprepared.ranks import default_group, job, only_backend, pending_kinds, program
from waiting import wait_for_async

IDLE = "import os; os.environ['LATER'] = 'set'; print('started', flush=True); input()"
FAKE = """
import json, os, sys, time
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    pid = json.loads(line)["pid"]
    {body}
"""
ANSWER = (
    "print(json.dumps({'pid': pid, 'reason': '', 'environment': {'BY': str(os.getpid())}}),"
    " flush=True)"
)


Fake = Callable[..., UnpreparedWorker]


@pytest.fixture
async def child() -> AsyncIterator[UnpreparedWorker]:
    reader = UnpreparedWorker()
    yield reader
    await reader.close()


@pytest.fixture
async def fake(tmp_path: Path) -> AsyncIterator[Fake]:
    started: list[UnpreparedWorker] = []

    def make(body: str, quarantine_s: float = worker.QUARANTINE_S) -> UnpreparedWorker:
        path = tmp_path / "fake.py"
        path.write_text(FAKE.replace("{body}", body))
        command = [sys.executable, str(path)]
        reader = UnpreparedWorker(deadline_s=0.1, quarantine_s=quarantine_s, command=command)
        started.append(reader)
        return reader

    yield make
    for reader in started:
        await reader.close()


def children() -> list[psutil.Process]:
    return psutil.Process().children()


def is_running(pid: int) -> bool:
    """Tells whether a child runs; one that was killed may wait to be reaped by the next look."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def sockets() -> int:
    found = 0
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the descriptor of this very listing
            found += str(entry.readlink()).startswith("socket:")
    return found


async def test_a_process_without_torch(child: UnpreparedWorker) -> None:
    with program(IDLE) as process:
        look = await child.look(process.pid, environment=["LATER", "NOT_SET"], rings=5)
    assert look.c10d is not None
    assert look.c10d.reason == torch_layout.NO_TORCH
    assert look.environment == {"LATER": "set"}
    assert look.reason == torch_layout.NO_TORCH


async def test_a_process_that_is_gone(child: UnpreparedWorker) -> None:
    with program(IDLE) as process:
        assert (await child.look(process.pid)).c10d is not None
    look = await child.look(process.pid)
    assert (look.c10d, look.reason) == (None, GONE)


@pytest.mark.torch
async def test_state_and_ring_pass_through_the_child(
    child: UnpreparedWorker, tmp_path: Path
) -> None:
    with job("queued", tmp_path) as pids:
        looks = [await child.look(pids[1], rings=10)]

        async def look_again() -> bool:
            looks[0] = await child.look(pids[1], rings=10)
            return looks[0].c10d is not None and len(pending_kinds(looks[0].c10d)) == 6

        while not await look_again():
            await asyncio.sleep(0.05)
    (look,) = looks
    assert not look.reason
    assert look.c10d is not None
    assert only_backend(default_group(look.c10d)).number == 11
    assert pending_kinds(look.c10d) == ["allreduce"] * 6
    assert [ring.kind for ring in look.rings] == ["gloo"]
    if look.rings[0].capacity:
        assert look.rings[0].entries[-1].inputs is not None


async def test_a_child_that_does_not_answer_is_left_behind(fake: Fake) -> None:
    earlier = children()  # of other tests, which may not be reaped yet
    other = os.getppid()
    reader = fake(f"time.sleep(600) if pid == {os.getpid()} else {ANSWER}")
    before = sockets()
    first = (await reader.look(other)).environment["BY"]

    look = await reader.look(os.getpid())
    assert (look.c10d, look.reason) == (None, worker.TOOK_TOO_LONG)
    await wait_for_async(lambda: not is_running(int(first)), "the end of the child")

    again = await reader.look(os.getpid())  # at once: nobody asks
    assert again.reason == worker.TOOK_TOO_LONG
    second = (await reader.look(other)).environment["BY"]
    assert second != first

    await reader.close()
    assert set(children()) <= set(earlier)
    assert sockets() == before


async def test_a_child_that_works_is_waited_for(fake: Fake) -> None:
    """It has no core for itself on a machine that has too much to do."""
    reader = fake(f"end = time.time() + 0.5\n    while time.time() < end: pass\n    {ANSWER}")
    assert (await reader.look(os.getpid())).reason == ""


async def test_after_a_while_a_process_is_asked_again(fake: Fake, tmp_path: Path) -> None:
    marker = tmp_path / "once"
    reader = fake(
        f"path = {str(marker)!r}\n"
        "    if not os.path.exists(path):\n"
        "        open(path, 'w').close(); time.sleep(600)\n"
        f"    {ANSWER}",
        quarantine_s=0.0,
    )
    assert (await reader.look(os.getpid())).reason == worker.TOOK_TOO_LONG
    assert (await reader.look(os.getpid())).reason == ""


async def test_children_that_hang_are_bounded(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "MAX_LEFT", 2)
    reader = fake("time.sleep(600)", quarantine_s=0.0)
    monkeypatch.setattr(reader._lines, "_reap", lambda: None)  # as if a kill did not end them
    reasons = [(await reader.look(os.getpid())).reason for _ in range(3)]
    assert reasons == [worker.TOOK_TOO_LONG, worker.TOOK_TOO_LONG, line_child.TOO_MANY_LEFT]
    monkeypatch.undo()


HANGS_AT = """
import time
from frtop_probe.unprepared import __main__ as child
from frtop_probe.unprepared.discovery import proc_reader
real = proc_reader.read_blocking
def read(pid, names):
    if pid == {pid}:
        time.sleep(600)
    return real(pid, names)
proc_reader.read_blocking = read
child.main()
"""


async def test_a_search_leaves_out_the_process_at_which_one_hung() -> None:
    """Otherwise one process that is stuck in a driver would hide all jobs of its host."""
    seen: list[str] = []

    async def leaves_out() -> bool:
        seen.extend((await reader.scan()).reasons)
        return any("1 process: no answer in time" in one for one in seen)

    with program(IDLE) as stuck:
        command = [sys.executable, "-c", HANGS_AT.replace("{pid}", str(stuck.pid))]
        reader = UnpreparedWorker(deadline_s=0.4, command=command)
        try:
            async with asyncio.timeout(60):
                while not await leaves_out():
                    pass
        finally:
            await reader.close()
    assert seen[0] == worker.SCAN_TOOK_TOO_LONG


def test_a_search_that_fails_keeps_the_addresses_of_the_ranks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def scan(*_: object) -> None:
        raise KeyError("odd")

    monkeypatch.setattr(Scanner, "scan", scan)
    readers = Readers()
    with program(IDLE) as process:
        readers.answer({"pid": process.pid})
        known = readers._readers[process.pid]
        reasons = from_json(Discovery, readers.answer({"scan": []})).reasons
        assert reasons == (f"{SCAN_FAILED}: KeyError('odd')",)
        assert readers._reader(process.pid) is known
    readers.answer({"scan": []})
    assert not readers._readers  # nor is a descriptor of the ended process kept
    assert readers._environment_of(process.pid) is None
    assert not readers._readers


@pytest.mark.parametrize(
    "body", ["sys.exit(1)", "print('nonsense', flush=True)", "print('[]', flush=True)"]
)
async def test_a_child_that_ends_or_babbles_is_replaced(fake: Fake, body: str) -> None:
    reader = fake(body)
    for _ in range(2):
        assert (await reader.look(os.getpid())).reason == line_child.CHILD_ENDED


async def test_a_child_that_cannot_start() -> None:
    for command in (["/nonexistent/program"], [sys.executable, "-c", "raise SystemExit(3)"]):
        reader = UnpreparedWorker(command=command)
        assert (await reader.look(os.getpid())).reason == line_child.NO_CHILD
        await reader.close()


async def test_a_cancelled_look_does_not_answer_the_next(fake: Fake) -> None:
    reader = fake(f"time.sleep(0.2)\n    {ANSWER}")
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(reader.look(os.getpid()), 0.05)
    look = await reader.look(os.getppid())
    assert (look.pid, look.reason) == (os.getppid(), "")


async def test_a_closed_reader_starts_nothing(child: UnpreparedWorker) -> None:
    await child.close()
    assert (await child.look(os.getpid())).reason == line_child.CLOSED


async def test_the_child_ends_with_its_parent() -> None:
    code = (
        "import asyncio, os\n"
        "from frtop_probe.unprepared.worker import UnpreparedWorker\n"
        "async def main():\n"
        "    reader = UnpreparedWorker()\n"
        "    await reader.look(os.getpid())\n"
        "    print(reader._lines._child.process.pid, flush=True)\n"
        "    os._exit(0)\n"
        "asyncio.run(main())\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    await wait_for_async(lambda: not psutil.pid_exists(int(output)), "the end of the child")
