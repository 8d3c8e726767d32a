"""Writes the black boxes that agents would write of a scene."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from diagnosis.scenes import SECOND, Actor, Scene
from frtop_probe import archive, wire
from history_rows import HistoryRow, packed

WALL = 1_790_000_000


class BoxRecorder:
    """The agents of a scene's hosts: they record snapshots and states, and make boxes."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.snapshots: dict[int, list[wire.SnapshotResponse]] = {
            n: [] for n in range(len(scene.hosts))
        }
        self.before: dict[int, wire.Update] = {}

    def take_snapshots(self, *ranks: int) -> None:
        """Takes a snapshot of each of these ranks now."""
        for rank in ranks:
            actor = self.scene.actors[rank]
            pids = [child.pid for child in actor.children]
            response = wire.SnapshotResponse(
                1,
                self.scene.hosts[actor.host],
                (self.scene.look_of(actor, pids),),
                self._host_ns(actor.host),
            )
            self.snapshots[actor.host].append(response)

    def record_state_before_death(self, *hosts: int) -> None:
        """Records this tick as the last one before the first bad death."""
        for host in hosts or range(len(self.scene.hosts)):
            self.before[host] = self._state(host)

    def boxes(self, *hosts: int, complete: bool = True) -> list[wire.BlackBox]:
        return [self._box(host, complete) for host in hosts or range(len(self.scene.hosts))]

    def _box(self, host: int, complete: bool) -> wire.BlackBox:
        name = self.scene.hosts[host]
        return wire.BlackBox(
            name,
            f"agent-{name}",
            self.scene.job,
            self._host_ns(host),
            int((WALL + self.scene.now) * SECOND),
            self.before.get(host),
            self._state(host),
            tuple(self.snapshots[host]),
            tuple(_history(name, actor) for actor in self._actors(host)),
            complete,
            "0.1.0",
        )

    def _actors(self, host: int) -> list[Actor]:
        return [actor for actor in self.scene.actors.values() if actor.host == host]

    def _host_ns(self, host: int) -> int:
        return int((self.scene.now + self.scene.skews[host]) * SECOND)

    def _state(self, host: int) -> wire.Update:
        name = self.scene.hosts[host]
        return wire.Update(
            name,
            f"agent-{name}",
            1,
            self._host_ns(host),
            int((WALL + self.scene.now) * SECOND),
            tuple(self.scene.update_of(actor) for actor in self._actors(host)),
        )


def _history(host: str, actor: Actor) -> wire.HistoryResponse:
    ops = actor.recent
    signatures = list(dict.fromkeys(op.signature for op in ops if op.signature is not None))
    sites = list(dict.fromkeys(op.site for op in ops if op.site is not None))
    rows = (
        HistoryRow(
            op.sequence,
            op.group,
            op.number,
            signatures.index(op.signature) + 1 if op.signature is not None else 0,
            sites.index(op.site) + 1 if op.site is not None else 0,
            op.issued_ns,
            op.done_ns - op.issued_ns if op.done_ns else 0,
            op.thread,
            int(op.sync) + 2 * op.p2p + 4 * (not op.tracked),
            op.pseudo,
            op.timeout_ms,
        )
        for op in ops
    )
    history = wire.History(tuple(signatures), tuple(sites), packed(rows))
    return wire.HistoryResponse(1, host, actor.rank + 1, history)


def write_boxes(folder: Path, boxes: Sequence[wire.BlackBox]) -> list[Path]:
    paths = [folder / f"{box.host}.box" for box in boxes]
    for path, box in zip(paths, boxes, strict=True):
        archive.write(path, "blackbox", wire.encode(box))
    return paths
