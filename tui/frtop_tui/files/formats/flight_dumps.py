"""Flight Recorder dumps of a frame, one per rank, which torch's own analyzer reads.

If an op is missing, the analyzer concludes that the rank has not entered it. So this writes the ops
of each group from the last gap in any rank's record on, and no op of an unknown kind. It leaves out
sends and receives: the analyzer compares them with all members of their group.
"""

from __future__ import annotations

import pickle  # writes values of built-in types, reads nothing
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame
from frtop_tui.files.formats.rank_ops import RankOp, is_dumped, rank_ops
from frtop_tui.job.groups import Identifier, identifier, members_of
from frtop_tui.job.naming import folded, printable
from frtop_tui.job.units import counted

VERSION: Final = "2.9"
PREFIX: Final = "nccl_trace_rank_"
"""The names begin like torch's own, whatever the backend."""
NOTES: Final = "README.txt"
_KINDS: Final = {
    "all_gather_into_tensor": "_all_gather_base",
    "all_gather_coalesced": "ALLGATHER_coalesced",
    "reduce_scatter_tensor": "_reduce_scatter_base",
    "all_reduce_coalesced": "allreduce_coalesced",
    "all_to_all_single": "all_to_all",
    "monitored_barrier": "barrier",
}
_KNOWN: Final = frozenset({
    "all_reduce", "all_gather", "broadcast", "reduce", "reduce_scatter", "gather", "scatter",
    "all_to_all", "barrier", "_all_gather_base", "_reduce_scatter_base", "allreduce_coalesced",
    "ALLGATHER_coalesced", "all_gather_into_tensor_coalesced", "reduce_scatter_tensor_coalesced",
})  # fmt: skip
"""Kinds that the analyzer accepts; it exits on any other."""
_BACKENDS: Final = ("nccl", "gloo", "xccl", "rccl", "hccl")
_DTYPES: Final = {
    "float32": "Float",
    "float64": "Double",
    "float16": "Half",
    "bfloat16": "BFloat16",
    "int32": "Int",
    "int64": "Long",
    "int16": "Short",
    "uint8": "Byte",
    "int8": "Char",
    "bool": "Bool",
}
_UNKNOWN_SIZES: Final = [[0]]
_Place = tuple[Identifier, int]


def flight_dumps(frame: Frame) -> dict[str, bytes]:
    """The content of each file by its name."""
    ops = {rank: _collectives(rank_ops(frame, view)) for rank, view in frame.ranks.items()}
    written = {r for r, view in frame.ranks.items() if view.groups and view.evidence.has_numbers}
    first, left_out = _comparable(frame, ops)
    sized = _with_sizes(ops)
    files = {}
    for rank in sorted(written):
        mine = [
            one
            for one in ops[rank]
            if _place(one) not in left_out and one.op.number >= first[_place(one)[0]]
        ]
        dump = {
            "version": VERSION,
            "pg_config": _config(frame.ranks[rank].groups.values()),
            "pg_status": _status(mine),
            "entries": list(_entries(mine, sized)),
        }
        files[f"{PREFIX}{rank}"] = pickle.dumps(dump, protocol=2)
    files[NOTES] = _notes(frame, written, len(left_out)).encode()
    return files


def _collectives(ops: Iterable[RankOp]) -> list[RankOp]:
    mine = [one for one in ops if one.group is not None and not (one.op.p2p or one.op.pseudo)]
    return sorted(mine, key=lambda one: one.op.sequence)


def _place(one: RankOp) -> _Place:
    assert one.group is not None
    return identifier(one.group), one.op.number


def _kind(one: RankOp) -> str:
    return _KINDS.get(one.kind, one.kind)


def _comparable(
    frame: Frame, ops: Mapping[int, list[RankOp]]
) -> tuple[Mapping[Identifier, int], set[_Place]]:
    """The first op of each group after which no rank has a gap; and the ops to leave out."""
    first: dict[Identifier, int] = defaultdict(int)
    left_out: set[_Place] = set()
    for rank, mine in ops.items():
        numbers: dict[Identifier, set[int]] = defaultdict(set)
        for one in mine:
            group, number = _place(one)
            # Several ops with one number were coalesced: nobody knows which is which.
            if _kind(one) not in _KNOWN or number in numbers[group] or number <= 0:
                left_out.add((group, number))
            numbers[group].add(number)
        for group, issued in _issued(frame, rank, numbers).items():
            begin = issued + 1
            while begin - 1 in numbers[group]:
                begin -= 1
            first[group] = max(begin, first[group])
    return first, left_out


def _issued(
    frame: Frame, rank: int, numbers: Mapping[Identifier, set[int]]
) -> dict[Identifier, int]:
    """The number of the last op in each group that a rank is known to have issued."""
    found = {group: max(known, default=0) for group, known in numbers.items()}
    view = frame.ranks[rank]
    for number, progress in view.group_progress.items():
        group = view.groups.get(number)
        if group is not None:
            key = identifier(group)
            found[key] = max(progress.number, found.get(key, 0))
    return {group: number for group, number in found.items() if number}


def _with_sizes(ops: Mapping[int, list[RankOp]]) -> set[_Place]:
    """Ops whose sizes every rank knows: the analyzer may compare only their sizes."""
    known: set[_Place] = set()
    unknown: set[_Place] = set()
    for mine in ops.values():
        for one in mine:
            signature = one.op.signature
            bare = signature is None or (signature.inputs is None and signature.outputs is None)
            (unknown if bare and _kind(one) != "barrier" else known).add(_place(one))
    return known - unknown


def _config(groups: Iterable[wire.Group]) -> dict[str, dict[str, str]]:
    return {
        _name(group): {
            "name": _name(group),
            "desc": printable(group.description) or "undefined",
            "ranks": str(list(members_of(group.ranks))),
        }
        for group in groups
    }


def _name(group: wire.Group) -> str:
    return printable(f"{group.name}@{group.epoch}" if group.epoch else group.name)


def _status(mine: Iterable[RankOp]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for one in mine:
        status = found.setdefault(
            str(one.op.group),
            {"last_enqueued_collective": -1, "last_started_collective": -1,
             "last_completed_collective": -1},
        )  # fmt: skip
        status["last_enqueued_collective"] = one.op.number
        if _state(one) == "completed":
            status["last_completed_collective"] = one.op.number
    return found


def _entries(mine: Iterable[RankOp], sized: set[_Place]) -> Iterator[dict[str, Any]]:
    for count, one in enumerate(mine):
        group, op = one.group, one.op
        assert group is not None
        inputs, outputs = _tensors(one) if _place(one) in sized else (None, None)
        state = _state(one)
        yield {
            "record_id": count,
            "pg_id": op.group,
            "process_group": (_name(group), printable(group.description) or "undefined"),
            "collective_seq_id": op.number,
            "p2p_seq_id": 0,
            "op_id": op.number,
            "profiling_name": f"{_backend(group)}:{_kind(one)}",
            "time_created_ns": max(0, one.begin_ns),
            "input_sizes": _sizes(inputs),
            "input_dtypes": _dtypes(inputs),
            "output_sizes": _sizes(outputs),
            "output_dtypes": _dtypes(outputs),
            "state": state,
            "time_discovered_started_ns": None,
            "time_discovered_completed_ns": one.end_ns or None,
            "retired": state == "completed",
            "timeout_ms": op.timeout_ms or int(group.timeout_s * 1000),
            "is_p2p": False,
            "thread_id": str(op.thread),
            "frames": _frames(op.site),
        }


def _state(one: RankOp) -> str:
    """The state as torch calls it. An op not known to be complete is scheduled, as on gloo."""
    if one.end == "pending":
        return "started" if one.op.started_ns else "scheduled"
    # If nobody saw the end, a dump at least says that the op is over.
    over = one.end != "unknown" or one.op.done_ns or is_dumped(one.view)
    return "completed" if over else "scheduled"


def _backend(group: wire.Group) -> str:
    return next((name for name in _BACKENDS if name in group.backend.lower()), "gloo")


_Specs = tuple[wire.TensorSpec, ...]


def _tensors(one: RankOp) -> tuple[_Specs, _Specs]:
    """Inputs and outputs as torch records them: in-place ops have both, lists are one tensor."""
    signature, kind = one.op.signature or wire.Signature(""), _kind(one)
    inputs, outputs = signature.inputs or (), signature.outputs or ()
    if kind == "all_gather":
        outputs = _flat(outputs)
    elif kind == "reduce_scatter":
        inputs = _flat(inputs)
    if kind not in ("gather", "scatter"):
        inputs, outputs = inputs or outputs, outputs or inputs
    return inputs, outputs


def _flat(specs: _Specs) -> _Specs:
    if len(specs) != 1 or specs[0].count == 1:
        return specs
    only = specs[0]
    return (wire.TensorSpec(only.dtype, (only.count, *only.shape), 1, only.device),)


def _sizes(specs: _Specs | None) -> list[list[int]]:
    if specs is None:
        return [list(one) for one in _UNKNOWN_SIZES]
    return [list(one.shape) for one in specs for _ in range(min(one.count, 4096))]


def _dtypes(specs: _Specs | None) -> list[str]:
    if specs is None:
        return []
    return [_DTYPES.get(one.dtype, printable(one.dtype)) for one in specs
            for _ in range(min(one.count, 4096))]  # fmt: skip


def _frames(site: wire.Site | None) -> list[dict[str, Any]]:
    if site is None:
        return []
    return [{
        "name": printable(site.function), "filename": printable(site.file), "line": site.line,
    }]  # fmt: skip


def _notes(frame: Frame, written: set[int], left_out: int) -> str:
    missing = [rank for rank in frame.coverage.unreachable if rank not in written]
    missing += [rank for rank in frame.ranks if rank not in written and rank not in missing]
    lines = [
        "Written by frtop in the format of torch's Flight Recorder: torchfrtrace FOLDER",
        "All times are on one clock; record_id counts the entries of each file.",
        "Left out: sends and receives, and ops that not every rank's record still has.",
    ]
    if left_out:
        lines.append(f"Left out: {counted(left_out, 'op')} of unknown kind, or coalesced.")
    if missing:
        lines.append(f"No file for {folded(missing)}: add --allow-incomplete-ranks.")
    return "\n".join([*lines, ""])
