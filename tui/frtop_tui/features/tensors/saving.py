"""Which files screens write: tensors on request."""

from __future__ import annotations

import re
from pathlib import Path

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.features.tensors.op_members import find_op
from frtop_tui.files.output_path import unused_path
from frtop_tui.job.naming import job_title
from frtop_tui.job.units import byte_size
from frtop_tui.text.rank_words import op_kind, op_number


def readable_bytes(op: wire.OpTensors) -> int:
    """Bytes of the tensors that can be read."""
    return sum(tensor.size for tensor in op.tensors if not tensor.error)


def tensor_path(frame: Frame, rank: JudgedRank, sequence: int, folder: Path) -> Path:
    """`frtop-JOB-rankN-opNUMBER.safetensors`, with `-2` and so on where the file exists."""
    title = job_title(frame.job) if frame.job is not None else "job"
    # The job's name comes from another machine: it must not choose the folder.
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", title.rpartition("/")[2]).strip("-.")[:40] or "job"
    op = find_op(rank, sequence)
    number = op.number if op is not None and op.number else sequence
    return unused_path(folder / f"frtop-{safe}-rank{rank.rank}-op{number}.safetensors")


def save_question(rank: JudgedRank, op: wire.OpTensors, path: Path) -> str:
    """Asks whether to write the op's tensors: what, how much and where."""
    known = find_op(rank, op.sequence)
    name = "the op"
    if known is not None:
        name = " ".join(filter(None, (op_kind(known), op_number(known))))
    size = readable_bytes(op)
    exact = f" ({size:,} bytes)" if size >= 1000 else ""
    return (
        f"Save the tensors of {name} of rank {rank.rank}, {byte_size(size)}{exact},"
        f" to {path.name} in this folder? enter or y saves, esc cancels"
    )
