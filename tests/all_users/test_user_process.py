"""What root's agent makes of what a user's process sends: it has that user's rights, not root's."""

from __future__ import annotations

import asyncio
import pwd
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from all_users.conftest import PATH
from doctor.surroundings import LIKE_A_RANK
from frtop_probe import wire
from frtop_probe.agent.interfaces import Operator
from frtop_probe.all_users import framing, user_process
from frtop_probe.all_users.framing import Budget, FromUser, packed
from frtop_probe.all_users.subscription import joint_key
from frtop_probe.all_users.user_process import Asker, UserProcess
from waiting import wait_for_async

ASKER = Asker(Operator(b"c", b"k"), may_act=False, is_owner=False)
UPDATE = wire.Update("h", "i", 1, 2, 3, (wire.RankUpdate(7),))


class Scene:
    """A user's process that is a program of the test: it sends the bytes of a file, and waits."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.file = folder / "sent"
        self.updates: list[wire.Update] = []
        self.process = UserProcess(3, 1001, lambda _, update: self.updates.append(update))
        program = (
            "import os, sys, time; sent = open(sys.argv[1], 'rb').read()\n"
            "while sent: sent = sent[os.write(0, sent):]\n"
            "time.sleep(60)"
        )
        monkeypatch.setattr(
            user_process, "command_for",
            lambda uid: [sys.executable, "-S", "-c", program, str(self.file)],
        )  # fmt: skip

    async def send(self, data: bytes) -> None:
        self.file.write_bytes(data)
        await self.process.start()


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(user_process, "_END_S", 0.1)
    return Scene(tmp_path, monkeypatch)


def update_with_key(key: int) -> bytes:
    update = wire.Update("h", "i", 1, 2, 3, (wire.RankUpdate(key),))
    return packed(FromUser(b"", wire.to_frame(update)))


async def test_an_update_gets_keys_that_no_other_process_has(scene: Scene) -> None:
    await scene.send(packed(FromUser(b"", wire.to_frame(UPDATE))))
    await wait_for_async(lambda: scene.updates, "the update")
    assert scene.updates[0].ranks[0].key == joint_key(3, 7)
    await scene.process.end()


@pytest.mark.parametrize("sent", [
    b"\xff" * 100,
    struct.pack(">I", framing.MAX_BYTES + 1),
    struct.pack(">I", 4) + b"nope",
    packed(FromUser(b"", b"nonsense")),
    packed(FromUser(b"", wire.to_frame(wire.TimeResponse(1, 2, 3)))),
    packed(FromUser(b"c", wire.to_frame(UPDATE))),
    update_with_key(0),
    update_with_key(2**24),
    update_with_key(-1),
])  # fmt: skip
async def test_nonsense_ends_that_process_and_nothing_else(scene: Scene, sent: bytes) -> None:
    await scene.send(sent)
    await wait_for_async(lambda: scene.process.problem, "it is given up")
    assert not scene.process.runs
    assert await scene.process.ask(ASKER, wire.StateRequest(0)) is None
    await scene.process.end()


async def test_responses_that_nobody_asked_for_are_ignored(scene: Scene) -> None:
    """Nor do they reach a connection that the process names."""
    response = packed(FromUser(b"another", wire.to_frame(wire.TimeResponse(1, 2, 3))))
    await scene.send(response + packed(FromUser(b"", wire.to_frame(UPDATE))))
    await wait_for_async(lambda: scene.updates, "the update after it")
    assert scene.process.runs
    await scene.process.end()


async def test_one_that_sends_without_end_is_given_up(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(framing, "MAX_MESSAGES", 50)
    await scene.send(packed(FromUser(b"", wire.to_frame(UPDATE))) * 1000)
    await wait_for_async(lambda: scene.process.problem, "it is given up")
    assert len(scene.updates) == 50
    await scene.process.end()


async def test_a_request_that_waits_ends_with_the_process(scene: Scene) -> None:
    await scene.send(b"")
    asked = asyncio.create_task(scene.process.ask(ASKER, wire.StateRequest(0)))
    await asyncio.sleep(0)
    await scene.process.end()
    assert await asked is None


def test_a_budget_is_of_a_window() -> None:
    budget = Budget()
    for _ in range(framing.MAX_MESSAGES):
        budget.spend(1, 100.0)
    with pytest.raises(EOFError):
        budget.spend(1, 101.0)
    budget.spend(1, 200.0)
    with pytest.raises(EOFError):
        budget.spend(framing.MAX_WINDOW_BYTES, 201.0)


async def test_one_that_has_just_started_searches_before_it_is_asked(
    users: tuple[str, str], python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was started because somebody looks: to wait for the first request cost a second."""
    monkeypatch.setenv(user_process.PYTHON, python)
    monkeypatch.setenv("FRTOP_OUTSIDE", "1")
    monkeypatch.setenv("PYTHONPATH", PATH)
    uid = pwd.getpwnam(users[0]).pw_uid
    updates: list[wire.Update] = []
    process = UserProcess(3, uid, lambda _, update: updates.append(update))
    program = LIKE_A_RANK.format(first="", last="")
    rank = subprocess.Popen(
        [python, "-c", program], user=uid, group=uid, extra_groups=[], stdout=subprocess.PIPE,
        env={"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "h", "MASTER_PORT": "1"}, cwd="/",
    )  # fmt: skip
    assert rank.stdout is not None
    try:
        rank.stdout.readline()
        await process.start()
        await wait_for_async(
            lambda: [one for update in updates for one in update.ranks],
            lambda: f"the rank; {process.problem}",
        )
    finally:
        await process.end()
        rank.kill()
        rank.communicate()
