"""The live source that the command line asks for; imported only then: files need no network."""

from __future__ import annotations

import argparse

from frtop_tui.sources.base import Source


def connect(options: argparse.Namespace) -> Source:
    """Raises what `LiveSource` does."""
    from frtop_tui.sources.live import LiveSource  # noqa: PLC0415

    return LiveSource(options.connect, options.job, read_only=options.read_only)
