"""Where the data of an op goes, and what is said before it is written."""

from __future__ import annotations

import re
from pathlib import Path

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.export.output_path import unused_path
from frtop_tui.job.naming import job_title
from frtop_tui.widgets.agreement import known_op
from frtop_tui.widgets.wording import kind, number
from frtop_tui.widgets.writings import file_size


def size_of(op: wire.OpTensors) -> int:
    """Bytes of the tensors that can be read."""
    return sum(tensor.size for tensor in op.tensors if not tensor.error)


def free_path(frame: Frame, rank: JudgedRank, sequence: int, folder: Path) -> Path:
    """`frtop-JOB-rankN-opNUMBER.safetensors`, with `-2` and so on behind what is there."""
    title = job_title(frame.job) if frame.job is not None else "job"
    # A job's name comes from another machine: it must not choose the folder.
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", title.rpartition("/")[2]).strip("-.")[:40] or "job"
    op = known_op(rank, sequence)
    name = op.number if op is not None and op.number else sequence
    return unused_path(folder / f"frtop-{safe}-rank{rank.rank}-op{name}.safetensors")


def question(rank: JudgedRank, op: wire.OpTensors, path: Path) -> str:
    """What will be written where, before it is."""
    known = known_op(rank, op.sequence)
    of = " ".join(filter(None, (kind(known), number(known)))) if known is not None else "the op"
    size = size_of(op)
    exact = f" ({size:,} bytes)" if size >= 1024 else ""
    return (
        f"Save the data of {of} of rank {rank.rank}, {file_size(size)}{exact},"
        f" to {path.name} in this folder? enter or y saves, esc does not"
    )
