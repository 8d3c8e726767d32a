"""Scenes of ranks without a recorder."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from diagnosis.scenes import Actor, Scene, frame
from frtop_probe import wire
from frtop_tui.job.model import ObservedRank

C10D = "/opt/lib/torch/distributed/distributed_c10d.py"
Variables = tuple[tuple[str, str], ...]


class Unprepared(Scene):
    """The same ranks without a recorder: no heartbeat, and lists of collectives in progress."""

    def __init__(self, world: int, *, begun: int = 7, ago: float = 20.0) -> None:
        self.notes: dict[int, tuple[str, ...]] = {}
        self.readable = True
        self.unreadable: set[int] = set()
        self.recorded: dict[int, list[wire.Op]] = {}
        self.prepared: set[int] = set()  # ranks that have a recorder all the same
        self.read_at: dict[int, float] = {}  # of ranks that could not be read again since
        super().__init__(world, begun=begun, ago=ago)

    def update_of(self, actor: Actor) -> wire.RankUpdate:
        update = super().update_of(actor)
        if actor.rank in self.prepared:
            return update
        assert update.identity is not None
        started_ns = self.started_ns(actor)
        identity = replace(
            update.identity,
            prepared=False,
            main_ident=0,
            started_ns=started_ns,
            c10d_readable=self.readable and actor.rank not in self.unreadable,
        )
        notes = self.notes.get(actor.rank, ())
        progress = update.group_progress
        if (at := self.read_at.get(actor.rank)) is not None:
            as_of_ns = self._ns(actor, self.now - at)
            progress = tuple(replace(one, as_of_ns=as_of_ns) for one in progress)
        return replace(update, identity=identity, status=None, notes=notes, group_progress=progress)

    def look_of(
        self, actor: Actor, pids: Sequence[int] = (), *, stacks: bool = True
    ) -> wire.Snapshot:
        ops = tuple(self.recorded.get(actor.rank, ()))
        return replace(super().look_of(actor, pids, stacks=stacks), ops=ops, status=None)

    def in_call(self, rank: int, function: str, variables: Variables = (), line: int = 20) -> None:
        inner = wire.TraceFrame(function, C10D, 2000, variables=variables)
        self.at(rank, inner, frame(f"train.py:{line}"))

    def computes(self, rank: int) -> None:
        self.at(rank, frame("train.py:33", source="loss = step(batch)"), active=True)

    def rank(self, rank: int) -> ObservedRank:
        return self.frame().ranks[rank]
