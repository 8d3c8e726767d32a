"""Engines of servers that wait at a queue: idle when another thread waits for requests."""

from __future__ import annotations

import pytest
from msgspec import structs

from diagnosis.scenes import LOCK, MAIN, Actor, Scene, frame, only
from frtop_probe import wire

SERVER = (
    frame("/usr/lib/python3.11/selectors.py:415", "select"),
    frame("/usr/lib/python3.11/socketserver.py:233", "serve_forever"),
)
LOOP = (
    frame("/usr/lib/python3.11/selectors.py:468", "select"),
    frame("/usr/lib/python3.11/asyncio/base_events.py:1884", "_run_once"),
)
PREFETCH = (frame("data.py:9", "fill", "batch = self.file.read(size)"),)
SIMPLE = (frame("engine.py:9", "next", "request = self.requests.get()"),)


class Engine(Scene):
    """Rank 0 has other threads beside the main one."""

    others: tuple[tuple[wire.TraceFrame, ...], ...] = ()

    def look_of(self, actor: Actor, *args: object, **kwargs: object) -> wire.Snapshot:
        look = super().look_of(actor, *args, **kwargs)  # type: ignore[arg-type]
        if actor.rank != 0 or not look.dumps:
            return look
        threads = tuple(
            wire.ThreadStack(MAIN + n, 2000 + n, f"Thread-{n}", False, False, frames)
            for n, frames in enumerate(self.others, 1)
        )
        own = structs.replace(look.dumps[0], threads=(*look.dumps[0].threads, *threads))
        return structs.replace(look, dumps=(own, *look.dumps[1:]))


@pytest.mark.parametrize(
    ("main", "others", "cause"),
    [
        (LOCK, (SERVER,), "idle"),
        (LOCK, (LOOP, LOCK), "idle"),
        (SIMPLE, (SERVER,), "idle"),
        (LOCK, (), "lock"),
        (LOCK, (PREFETCH,), "lock"),
        (LOCK, (SERVER, PREFETCH), "lock"),  # a trainer with a page of metrics
        (LOCK[:1], (SERVER,), "lock"),  # some lock, not a queue
    ],
)
def test_who_waits_at_a_queue_is_idle_if_a_thread_serves_and_none_works(
    main: tuple[wire.TraceFrame, ...], others: tuple[tuple[wire.TraceFrame, ...], ...], cause: str
) -> None:
    scene = Engine()
    scene.others = others
    scene.waits([1, 2, 3], "broadcast", for_s=10)
    scene.at(0, *main)
    scene.kernel(0, syscall="futex", wchan="futex_do_wait")
    found = scene.settle()
    verdict = only(found)
    assert (verdict.culprits, verdict.why.cause) == ((0,), cause)
    assert found.health == ("held up" if cause == "idle" else "hung")
