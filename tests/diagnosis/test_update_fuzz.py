"""Nothing that an agent sends ends an operator's tick, or puts a NaN into what is shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import pytest

from diagnosis.scenes import Scene
from frtop_probe import wire
from frtop_tui.diagnosis.engine import Engine
from frtop_tui.diagnosis.model import Frame
from frtop_tui.files import capture
from frtop_tui.text.explain import explain_lines
from frtop_tui.text.incident import incident_of
from frtop_tui.text.json_document import document
from frtop_tui.text.plain import text
from mutations import Mutator, inputs

LONG: Final = (pytest.mark.long, pytest.mark.timeout(3600))


def hang() -> Scene:
    scene = Scene(4, hosts=2)
    scene.group("1", [0, 1], "tp")
    scene.does([0, 1], "all_reduce", group="1")
    scene.waits([0, 1, 3], "all_reduce", for_s=30)
    scene.sleeps(2)
    return scene


def mismatch() -> Scene:
    scene = Scene(4, hosts=2)
    scene.waits([0, 1, 2], "all_reduce", for_s=30)
    scene.waits([3], "barrier", for_s=20)
    scene.in_pseudo([1], "new_group", 20, "0-3")
    return scene


def ends() -> Scene:
    scene = Scene(4, hosts=2)
    scene.waits([0, 1], "broadcast", for_s=30, root=3)
    scene.raises(2, "ValueError", "no")
    scene.fetches(3, pid=77)
    scene.worker(3, 77, "D", "read", "/data/x")
    return scene


SCENES: Final[tuple[Callable[[], Scene], ...]] = (hang, mismatch, ends)


def _changed(message: wire.Update | wire.SnapshotResponse, mutator: Mutator) -> bytes:
    """A message with some values changed, as an agent could send it."""
    data = msgspec.msgpack.decode(wire.encode(message))
    for _ in range(mutator.random.choice((1, 1, 2, 3))):
        data = mutator.value(data)
    return msgspec.msgpack.encode(data)


def _follow(scene: Scene, mutator: Mutator, path: Path) -> None:
    """Some ticks of an operator; the second host sends what is wrong."""
    engine = Engine(explain=True)
    reported = scene.state.apply

    def hear(host: str, update: wire.Update, now_ns: int) -> bool:
        try:
            update = wire.decode_update(_changed(update, mutator)) if host == "node1" else update
        except wire.WireError:
            return True  # is left out
        reported(host, update, now_ns)
        return True

    scene.state.apply = hear  # type: ignore[method-assign]
    for _ in range(4):
        scene.hear()
        judgement = engine.judge(scene.frame())
        for wanted in judgement.look_requests:
            actor = scene.actors.get(wanted.key - 1)
            if actor is None:
                continue
            look = scene.look_of(actor, wanted.pids[:4], stacks=wanted.stacks)
            answer = wire.SnapshotResponse(1, wanted.host, (look,))
            if wanted.host == "node1":
                try:
                    found = wire.decode_response(_changed(answer, mutator))
                except wire.WireError:
                    continue
                if not isinstance(found, wire.SnapshotResponse):
                    continue
                answer = found
            scene.state.apply_snapshots(wanted.host, answer)
        scene.pass_time(2.0)
    show(judgement.frame, path)


def show(frame: Frame, path: Path) -> None:
    """All that is made of a frame, but the screens."""
    shown = json.dumps(document(frame), allow_nan=False)
    explained = explain_lines(frame.trace) if frame.trace is not None else ()
    lines = [*text(frame), *explained, shown]
    assert not [line for line in lines if "nan" in line.split() or "NaN" in line]
    incident_of(frame, "1")
    capture.write(path, frame, {}, ())
    capture.read(path)


@pytest.mark.parametrize("count", [30, pytest.param(20_000, marks=LONG)])
def test_no_update_ends_a_tick(tmp_path: Path, count: int) -> None:
    for number, mutator in inputs(count):
        _follow(SCENES[number % len(SCENES)](), mutator, tmp_path / "fuzz.frtop")
