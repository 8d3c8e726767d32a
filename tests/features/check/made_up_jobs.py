"""Jobs whose steps are known: what each rank issues in them, as agents and captures have it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from connect.fakes import JOB, frame_of, rank_view
from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.features.check.facts import JobFacts, facts_of, steps_of_history
from frtop_tui.files import capture
from frtop_tui.job.groups import group_views
from history_rows import HistoryRow, packed

MS = 1_000_000
S = 1_000_000_000
WORLD, TENSOR, DATA = 1, 2, 3


class Issued(NamedTuple):
    """Equal ops of a step, one after the other; `elements` are those of each tensor."""

    group: int
    kind: str = "all_reduce"
    ops: int = 1
    elements: int = 1000
    dtype: str = "float32"


Program = Callable[[int, int], Sequence[Issued]]
"""What a rank issues in a step."""


def usual(rank: int, step: int) -> list[Issued]:
    """Four reductions along the tensor axis, and the gradients in bfloat16 along the other one."""
    return [
        Issued(TENSOR, ops=4),
        Issued(DATA, "reduce_scatter_tensor", 2, 2048, "bfloat16"),
    ]


def group(number: int, name: str, ranks: str) -> wire.Group:
    return wire.Group(number, f"{name} {ranks}", name, "gloo", ranks)


def mesh(rank: int, tensor: int = 2, world: int = 4) -> dict[int, wire.Group]:
    """The groups of a rank: all ranks, those next to it, and those across."""
    first = rank // tensor * tensor
    across = ",".join(map(str, range(rank % tensor, world, tensor)))
    return {
        WORLD: group(WORLD, "default_pg", f"0-{world - 1}"),
        TENSOR: group(TENSOR, "mesh_tp", ",".join(map(str, range(first, first + tensor)))),
        DATA: group(DATA, "mesh_dp", across),
    }


def history(
    rank: int, program: Program = usual, *, steps: int = 12, step_ms: float = 100, pseudo: int = 1
) -> wire.History:
    """Steps 1 to `steps`, and the beginning of the next one; `pseudo` groups are made first."""
    signatures: list[wire.Signature] = []
    rows: list[HistoryRow] = []
    marks = []
    now = 50 * S

    def put(of: int, place: int, *, made: bool = False) -> None:
        nonlocal now
        now += MS // 10
        n = len(rows) + 1
        rows.append(HistoryRow(n, of, n, place, 0, now, MS // 20, 1, pseudo=made))

    for _ in range(pseudo):
        put(WORLD, 0, made=True)
    for step in range(1, steps + 2):
        begun = now
        for one in program(rank, step):
            spec = wire.TensorSpec(one.dtype, (one.elements,))
            signature = wire.Signature(one.kind, inputs=(spec,))
            if signature not in signatures:
                signatures.append(signature)
            for _ in range(one.ops):
                put(one.group, signatures.index(signature) + 1)
        now = begun + round(step_ms * MS)
        if step <= steps:
            marks.append(wire.Mark("step", now, now, step))
    return wire.History(tuple(signatures), (), packed(rows), marks=tuple(marks))


def views(
    ranks: int = 4, groups: Callable[[int], Mapping[int, wire.Group]] = mesh, step: int = 12
) -> list[JudgedRank]:
    status = wire.RankStatus(1, 1, 10 * step, step)
    found = [rank_view(rank, "node0", groups=groups(rank), status=status) for rank in range(ranks)]
    settings = (("NCCL_ALGO", "Ring"), ("NCCL_DEBUG_FILE", "/tmp/x"))
    return [
        replace(view, identity=replace(view.identity, python="3.11.7", settings=settings))
        for view in found
    ]


def frame(some: Sequence[JudgedRank], world: int = 4) -> Frame:
    found = frame_of(*some, now=100 * S, groups=group_views(some))
    return replace(found, job=replace(JOB, world_size=world))


def facts(
    program: Program = usual,
    *,
    groups: Callable[[int], Mapping[int, wire.Group]] = mesh,
    world: int = 4,
    steps: int = 12,
    step_ms: float = 100,
) -> JobFacts:
    some = views(world, groups, steps)
    read = {
        view.rank: steps_of_history(
            history(view.rank, program, steps=steps, step_ms=step_ms), view.groups
        )
        for view in some
    }
    return facts_of(frame(some, world), read)


def write_capture(path: Path, program: Program = usual, *, steps: int = 12) -> None:
    some = views(step=steps)
    histories = {
        view.rank: wire.HistoryResponse(
            1, "node0", view.key, history(view.rank, program, steps=steps)
        )
        for view in some
    }
    capture.write(path, frame(some), histories, ())
