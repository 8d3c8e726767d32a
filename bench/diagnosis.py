"""The time of a verdict over 16,384 ranks: from nothing, and when one rank in 100 has changed."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import structs

from frtop_probe import wire
from frtop_tui.diagnosis.engine import Engine

if TYPE_CHECKING:
    from diagnosis.scenes import Actor, Scene
    from frtop_tui.job.model import ObservedFrame

WORLD: Final = 16_384
HOSTS: Final = 64
BLOCK: Final = 8
LATE: Final = 9_999
TOUCHED: Final = 164
UPDATES: Final = 100
"""Every rank reports once in this many updates, which take one second of the job."""
REPEATS: Final = 3
SCATTER: Final = 7919
SECOND: Final = 1_000_000_000


def main() -> None:
    """Judges in one process, without sockets; updates are spread over all hosts."""
    print(f"{WORLD:,} ranks on {HOSTS} hosts in groups of {BLOCK}, {WORLD // BLOCK:,} and all")
    for name, begin, news in (("hung", _hung, _beats), ("healthy", _healthy, _steps)):
        scene = begin()
        scene.hear()
        frame = scene.frame()
        gc.freeze()
        judge_anew = partial(_judge_anew, frame)
        whole = [_seconds(judge_anew) for _ in range(REPEATS)]
        scene.judge()
        gc.collect()
        gc.freeze()  # the scene has many objects of its own, which are not measured
        # Scattered over hosts and groups; each rank reports once in a hundred updates.
        order = [rank * SCATTER % WORLD for rank in range(TOUCHED * UPDATES)]
        some = [order[n : n + TOUCHED] for n in range(0, len(order), TOUCHED)]
        took = [_update(scene, ranks, news) for ranks in some]
        beats = [sum(_update(scene, range(WORLD), _beats)) for _ in range(REPEATS)]
        parts = [statistics.median(part) * 1e3 for part in zip(*took, strict=True)]
        every = sorted(sum(parts) * 1e3 for parts in took)
        print(
            f"  {name:7}  full judgement                  {statistics.median(whole):5.2f} s"
            "     (budget 0.5)\n"
            f"           update touching {TOUCHED} ranks      {statistics.median(every):5.1f} ms"
            f"    (budget 20); p95 {every[int(len(every) * 0.95)]:.1f} ms\n"
            f"           of it state {parts[0]:.1f}, frame {parts[1]:.1f},"
            f" judgement {parts[2]:.1f} ms\n"
            f"           heartbeats, nothing else   {statistics.median(beats):5.2f} s"
        )


def _judge_anew(frame: ObservedFrame) -> None:
    Engine().judge(frame)


def _update(
    scene: Scene, ranks: Iterable[int], news: Callable[[Scene, Actor], wire.RankUpdate]
) -> tuple[float, float, float]:
    """Seconds to take in one update, to make a frame of it, and to judge the frame."""
    scene.pass_time(1 / UPDATES)
    scene.number += 1
    told: list[list[wire.RankUpdate]] = [[] for _ in scene.hosts]
    for rank in ranks:
        actor = scene.actors[rank]
        told[actor.host].append(news(scene, actor))
    updates = [
        wire.Update(
            host, f"agent-{host}", scene.number, int((scene.now + skew) * SECOND), 0, tuple(ones)
        )
        for host, skew, ones in zip(scene.hosts, scene.skews, told, strict=True)
    ]
    begin = time.perf_counter()
    for update in updates:
        assert scene.state.apply(update.host, update, scene.now_ns)
    taken = time.perf_counter()
    frame = scene.frame()
    framed = time.perf_counter()
    judgement = scene.engine.judge(frame)
    judged = time.perf_counter()
    scene.look(judgement)
    return taken - begin, framed - taken, judged - framed


def _beats(scene: Scene, actor: Actor) -> wire.RankUpdate:
    """A rank that only waits: its heartbeat goes on, and it uses a little CPU time."""
    process = wire.Process(actor.pid, "S", "python", "futex_do_wait", "futex", cpu_ns=scene.now_ns)
    update = scene.update_of(actor)
    return wire.RankUpdate(update.key, status=update.status, process=process)


def _steps(scene: Scene, actor: Actor) -> wire.RankUpdate:
    """A rank that trains: it has completed its op, and is in the next one."""
    actor.pending.clear()
    actor.recent.clear()
    block = f"tp{actor.rank // BLOCK * BLOCK}"
    scene.does([actor.rank], "all_gather", group=block, ago=0.05)
    scene.waits([actor.rank], "all_reduce", for_s=0.01)
    return structs.replace(scene.update_of(actor), identity=None, groups=(), process=None)


def _scene() -> Scene:
    from diagnosis.scenes import Scene  # noqa: PLC0415 - beside the tests it is for

    made = Scene(WORLD, hosts=HOSTS)
    for first in range(0, WORLD, BLOCK):
        made.group(f"tp{first}", range(first, first + BLOCK), "tp")
    for column in range(BLOCK):
        made.group(f"dp{column}", range(column, WORLD, BLOCK), "dp")
    return made


def _hung() -> Scene:
    """One rank sleeps: its column waits for it, and all others wait for their own columns."""
    made = _scene()
    column = LATE % BLOCK
    waiting = [rank for rank in range(column, WORLD, BLOCK) if rank != LATE]
    made.waits(waiting, "all_reduce", for_s=10, group=f"dp{column}")
    for first, others in _blocks_without(column):
        made.waits(others, "all_gather", for_s=9, group=f"tp{first}")
    made.sleeps(LATE)
    return made


def _healthy() -> Scene:
    """Half of the ranks wait for the others, as always in a healthy job."""
    made = _scene()
    made.waits(range(0, WORLD, 2), "all_reduce", for_s=0.3)
    return made


def _blocks_without(column: int) -> Iterator[tuple[int, list[int]]]:
    for first in range(0, WORLD, BLOCK):
        yield first, [rank for rank in range(first, first + BLOCK) if rank % BLOCK != column]


def _seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
