"""The key and the command of sampled stacks, and the files that they are saved to."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from frtop_probe import atomic_file
from frtop_probe.proc import daemon_thread
from frtop_tui.diagnosis.model import Frame
from frtop_tui.features.flame.view import FlameScreen, SaveSamples
from frtop_tui.features.flame.words import RankSamples, folded_stacks, speedscope
from frtop_tui.files.output_path import default_path, write_unused
from frtop_tui.job.naming import job_title
from frtop_tui.screens.base import FrameScreen
from frtop_tui.screens.completion import Action, TypedCommand
from frtop_tui.screens.contributed import (
    FeatureApp,
    FeatureKey,
    PlacedCommand,
    Screens,
    chosen_ranks,
)

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


async def _press(app: FeatureApp, screen: FrameScreen) -> None:
    """Samples the stacks of the marked ranks, or of the one under the cursor."""
    if not isinstance(screen, FlameScreen) and (ranks := chosen_ranks(app, screen)):
        await app.open(FlameScreen(app.marked, ranks))


async def _save(app: FeatureApp, event: SaveSamples) -> None:
    """Writes both files."""
    write = partial(write_samples, event.samples.ranks, app.source.frame(), app.preferences.folder)
    try:
        paths = await daemon_thread.run(write, "frtop samples")
    except OSError as error:
        app.notify(f"Not written: {error.strerror}", severity="warning")
    else:
        app.notify(f"Written: {', '.join(map(str, paths))}", timeout=8)


SCREENS: Final = Screens(
    commands=(
        PlacedCommand(40, TypedCommand("flame", "sampled stacks of the marked ranks",
                                       lambda *_: Action("feature('flame')"), key="r")),
    ),
    keys=(
        FeatureKey("r", "flame", "sampled stacks",
                   "of the marked ranks: ten seconds as a flame tree, from outside", _press),
    ),
    handlers={SaveSamples: _save},
)  # fmt: skip
