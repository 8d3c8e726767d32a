"""`frtop tensors`: statistics of the tensors of pending ops; of one op, on all its members."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import structs

from frtop_probe import wire
from frtop_probe.features.tensors.messages import SummarizeTensors
from frtop_tui.cli.files import require_writable, wait_for_file
from frtop_tui.cli.live import await_rank, connected
from frtop_tui.cli.output import say, show_progress
from frtop_tui.connect.source import Source
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.errors import FrtopError, UsageError
from frtop_tui.features.tensors.comparison import (
    MembersComparison,
    compare_members,
    find_op,
    members_to_ask,
    op_identity,
)
from frtop_tui.features.tensors.comparison_words import member_words
from frtop_tui.features.tensors.follow import SaveOrder
from frtop_tui.features.tensors.target import tensor_target
from frtop_tui.job.groups import identifier
from frtop_tui.job.naming import listed, printable
from frtop_tui.job.units import counted
from frtop_tui.text.document import aligned
from frtop_tui.text.lines import labelled
from frtop_tui.text.rank_words import op_group

ANSWER_S: Final = 10.0
"""How long to wait for the answer, in seconds. The agent answers within two; the rest is for
the network."""
_COLUMNS: Final[tuple[str, ...]] = (
    "op", "kind", "number", "group", "role", "dtype", "shape", "min", "max", "mean", "norm",
    "nan", "inf", "checksum", "first values",
)  # fmt: skip
_WORDS: Final = frozenset({"kind", "group", "role", "dtype", "shape", "checksum", "first values"})


def run(options: argparse.Namespace) -> int:
    path = Path(options.output) if options.output else None
    if path is not None:
        require_writable(path)
    with connected(options) as source:
        view, answer = ask(source, options.rank)
        ops = _chosen(view, answer.ops, options.op)
        if options.members:
            one = _compared_one(source.frame(), view, ops, answer.ops)
            print(compared(source, view, one.sequence, as_json=options.json))
            return 0
        print(_json(view, ops) if options.json else "\n".join(lines(view, ops)))
        if path is not None:
            _save(source, view, ops, path)
    return 0


def ask(source: Source, rank: int) -> tuple[JudgedRank, wire.TensorsResponse]:
    """The rank and its answer.

    Raises:
        FrtopError: the rank is unknown, may not be asked, or cannot answer.
    """
    before = await_rank(source, rank).tensors
    if refusal := source.frame().read_only:
        raise _error(refusal)
    source.do(SummarizeTensors(devices=True), (rank,))
    begin = time.monotonic()
    while True:
        frame = source.frame()
        view = frame.ranks.get(rank)
        if view is not None and view.tensors is not None and view.tensors is not before:
            break
        if refusal := frame.read_only:
            raise _error(refusal)
        if time.monotonic() - begin > ANSWER_S:
            raise FrtopError(
                f"no answer from rank {rank} in {ANSWER_S:.0f} s",
                "its host may be silent: `frtop diagnose` shows which hosts are reporting",
            )
        show_progress(f"asking rank {rank}")
        time.sleep(0.05)
    show_progress("")
    if view.tensors.error:
        raise _no_tensors(frame, view, view.tensors)
    return view, view.tensors


def _no_tensors(frame: Frame, view: JudgedRank, answer: wire.TensorsResponse) -> FrtopError:
    """What a rank answered instead; its agent knows it by its pid only."""
    process = f"process {view.identity.pid}"
    text = answer.help or f"it cannot answer: {answer.error}"
    if process in text:
        text = text.replace(process, f"rank {view.rank} ({process})", 1)
    elif not text.startswith(f"rank {view.rank} "):
        text = f"rank {view.rank}: {text}"
    other = tensor_target(frame, view.rank)
    if answer.error == "none" and other != view.rank:
        return FrtopError(text, f"rank {other} waits for it: `frtop tensors --rank {other}`")
    return _error(text)


def lines(view: JudgedRank, ops: Sequence[wire.OpTensors]) -> list[str]:
    """A table with one line per tensor, and below it why tensors are missing."""
    rows = [_COLUMNS]
    problems = []
    for found in ops:
        op = find_op(view, found.sequence)
        if found.error:
            problems.append(f"op {found.sequence} {_kind(op)}: {found.error}")
        for tensor in found.tensors:
            rows.append(_row(view, found.sequence, op, tensor))
            if tensor.error:
                problems.append(f"op {found.sequence} {tensor.role}: {tensor.error}")
            elif tensor.seen < tensor.elements:
                problems.append(
                    f"op {found.sequence} {tensor.role}: {tensor.seen:,} of {tensor.elements:,}"
                    " values were read"
                )
    table = aligned(rows, _WORDS) if len(rows) > 1 else []
    return [printable(line) for line in (*table, *problems)]


def _row(
    view: JudgedRank, sequence: int, op: wire.Op | None, tensor: wire.TensorSummary
) -> tuple[str, ...]:
    seen = tensor.seen > 0
    return (
        str(sequence),
        _kind(op),
        f"#{op.number}" if op is not None else "",
        op_group(view, op) if op is not None else "",
        tensor.role,
        tensor.dtype,
        "x".join(map(str, tensor.shape)) or "scalar",
        *(_short(n) for n in (tensor.minimum, tensor.maximum, tensor.mean, tensor.norm)),
        str(tensor.nans) if seen else "",
        str(tensor.infinities) if seen else "",
        tensor.checksum,
        " ".join(tensor.first[:4]),
    )


def _short(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _kind(op: wire.Op | None) -> str:
    return op.signature.kind if op is not None and op.signature is not None else "op"


def _chosen(
    view: JudgedRank, ops: tuple[wire.OpTensors, ...], wanted: int
) -> tuple[wire.OpTensors, ...]:
    """The op with this sequence number, else the only one with this number in its group."""
    if not ops:
        raise FrtopError(f"rank {view.rank} has no pending op", "try again while it waits in one")
    if not wanted:
        return ops
    found = tuple(one for one in ops if one.sequence == wanted)
    if not found:
        found = tuple(one for one in ops if _number(view, one) == wanted)
    if not found:
        text = f"op {wanted} of rank {view.rank} is not pending"
        raise FrtopError(text, f"pending: {_names(view, ops)}")
    if len(found) > 1:
        text = f"several ops of rank {view.rank} have the number {wanted}"
        raise UsageError(text, f"name one with --op: {_names(view, found)}")
    return found


def _number(view: JudgedRank, found: wire.OpTensors) -> int | None:
    op = find_op(view, found.sequence)
    return op.number if op is not None else None


def _names(view: JudgedRank, ops: Sequence[wire.OpTensors]) -> str:
    """`op 22 (#21 all_reduce), op 23`."""
    return ", ".join(_each_name(view, ops))


def _each_name(view: JudgedRank, ops: Sequence[wire.OpTensors]) -> list[str]:
    words = []
    for one in ops:
        op = find_op(view, one.sequence)
        words.append(f"op {one.sequence}" + (f" (#{op.number} {_kind(op)})" if op else ""))
    return words


def blocking(
    frame: Frame, view: JudgedRank, ops: Sequence[wire.OpTensors]
) -> tuple[wire.OpTensors, str]:
    """The op that holds the rank up, and why it is that one, in words.

    It is the one that a verdict is about, else the one that the rank waits in, else the oldest.
    """
    by_sequence = sorted(ops, key=lambda one: one.sequence)
    about = {
        (*identifier(verdict.group), verdict.op.number)
        for verdict in frame.verdicts
        if verdict.group is not None and verdict.op is not None
    }
    for one in by_sequence:
        if op_identity(view, one.sequence) in about:
            return one, "the verdict is about it"
    for one in by_sequence:
        if view.blocked_on is not None and view.blocked_on.sequence == one.sequence:
            return one, f"rank {view.rank} waits in it"
    return by_sequence[0], "it is the oldest"


def _compared_one(
    frame: Frame,
    view: JudgedRank,
    ops: Sequence[wire.OpTensors],
    pending: Sequence[wire.OpTensors],
) -> wire.OpTensors:
    """The op that `--members` compares. If there are several, it prints which one."""
    with_tensors = [one for one in ops if one.tensors]
    if not with_tensors:
        return only_one(view, pending, "--members compares one op")
    one, why = blocking(frame, view, with_tensors)
    others = [other for other in with_tensors if other is not one]
    if others:
        text = f"{_names(view, [one])} is compared: {why}."
        say(printable(f"{text} For --op there are also {listed(_each_name(view, others), 4)}"))
    return one


def only_one(view: JudgedRank, ops: Sequence[wire.OpTensors], why: str) -> wire.OpTensors:
    """The only op with tensors; `why` one is needed is the error if there are several, or none."""
    with_tensors = [one for one in ops if one.tensors]
    if len(with_tensors) != 1:
        there = _names(view, with_tensors) or "none with tensors"
        raise UsageError(why, f"name it with --op: {there}")
    return with_tensors[0]


def _save(source: Source, view: JudgedRank, ops: Sequence[wire.OpTensors], path: Path) -> None:
    chosen = only_one(view, ops, "-o writes the tensors of one op")
    size = sum(tensor.size for tensor in chosen.tensors)
    print(f"writing {size:,} bytes to {path}", file=sys.stderr)
    source.do(SaveOrder(view.rank, chosen.sequence, path))
    writing = wait_for_file(source, "tensors", path, "bytes")
    show_progress("")
    print(f"{writing.path}  {writing.size:,} bytes", file=sys.stderr)
    if writing.problem:
        print(f"missing: {printable(str(writing.problem))}", file=sys.stderr)


def _json(view: JudgedRank, ops: Sequence[wire.OpTensors]) -> str:
    rows: list[dict[str, Any]] = []
    for found in ops:
        op = find_op(view, found.sequence)
        rows.append(
            {
                "sequence": found.sequence,
                "kind": _kind(op),
                "number": op.number if op is not None else None,
                "error": found.error,
                "tensors": [structs.asdict(tensor) for tensor in found.tensors],
            }
        )
    return json.dumps({"schema": "frtop-tensors-1", "rank": view.rank, "host": view.host,
                       "pid": view.identity.pid, "ops": rows}, indent=1)  # fmt: skip


def _error(text: str) -> FrtopError:
    message, _, step = text.partition("; ")
    return FrtopError(message, step or "`frtop diagnose` shows what is known without asking it")


ANSWERS_S: Final = 15.0
"""How long to wait for all members, in seconds: an agent asks four of its ranks at a time."""


def compared(source: Source, view: JudgedRank, sequence: int, *, as_json: bool) -> str:
    """The tensors of this op on all its members, compared; `view` has answered already.

    Raises:
        FrtopError: the op has no number by which it is found on other ranks.
    """
    frame = source.frame()
    others = members_to_ask(frame, frame.ranks.get(view.rank, view), sequence)[1:]
    before = {rank: frame.ranks[rank].tensors for rank in others}
    source.do(SummarizeTensors(devices=True), others)
    begin = time.monotonic()
    while True:
        frame = source.frame()
        due = [rank for rank in others if _tensors(frame, rank) is before[rank]]
        if not due or time.monotonic() - begin > ANSWERS_S:
            break
        show_progress(
            f"{len(others) - len(due) + 1:,} of {counted(len(others) + 1, 'member')} answered"
        )
        time.sleep(0.05)
    show_progress("")
    found = compare_members(frame, frame.ranks.get(view.rank, view), sequence)
    if found is None:
        raise FrtopError(
            f"op {sequence} of rank {view.rank} cannot be found on other ranks by its number",
            "a send or receive has two sides: ask each rank by itself; an op that has ended since"
            " has no tensors",
        )
    if as_json:
        document = {"schema": "frtop-members-1", **msgspec.to_builtins(found, str_keys=True)}
        return msgspec.json.format(msgspec.json.encode(document), indent=1).decode()
    return "\n".join(member_lines(found))


def _tensors(frame: Frame, rank: int) -> object:
    view = frame.ranks.get(rank)
    return view.tensors if view is not None else None


def member_lines(found: MembersComparison) -> list[str]:
    """The comparison as text."""
    head = f"{found.kind} #{found.number} of {found.group}"
    return [printable(row) for row in (head, *labelled(member_words(found), 12, "  "))]
