"""Sampled stacks as files: folded, for flamegraph.pl and the like, and for speedscope."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from frtop_probe import atomic_file
from frtop_tui.diagnosis.model import Frame
from frtop_tui.features.flame.model import RankSamples
from frtop_tui.features.flame.words import folded_stacks, speedscope
from frtop_tui.files.output_path import default_path, write_unused
from frtop_tui.job.naming import job_title

FOLDED: Final = ".folded"
SPEEDSCOPE: Final = ".speedscope.json"


def write_samples(
    ranks: Sequence[RankSamples], frame: Frame, folder: Path | None
) -> tuple[Path, Path]:
    """Writes both files into a folder, or the current one; returns their paths.

    Raises:
        OSError: one of them cannot be written.
    """
    name = job_title(frame.job) if frame.job is not None else "job"
    lines = "".join(f"{line}\n" for line in folded_stacks(ranks))
    return (
        _write(lines.encode(errors="replace"), frame, folder, FOLDED),
        _write(speedscope(ranks, name), frame, folder, SPEEDSCOPE),
    )


def _write(content: bytes, frame: Frame, folder: Path | None, suffix: str) -> Path:
    def write(path: Path) -> None:
        atomic_file.write(path, content, overwrite=False)

    path = default_path(frame, frame.wall_ns, suffix, folder=folder)
    return write_unused(path, write)[0]
