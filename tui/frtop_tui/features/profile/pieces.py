"""Collects pieces of the ranks' files until they are merged."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from frtop_tui.features.profile.unnamed_file import UnnamedFile

MOST_BYTES: Final = 1 << 30
"""The most bytes per file."""


class FetchedFiles:
    """Files of all ranks of one order, in the result's folder. Used by the file worker only."""

    def __init__(self, folder: Path) -> None:
        """Creates no file yet; `folder` must have space for all files."""
        self._folder = folder
        self._files: dict[int, dict[str, UnnamedFile]] = {}

    def append(self, rank: int, name: str, data: bytes, _offset: int = 0) -> None:
        """Appends bytes to a rank's file: they come in order.

        Raises:
            OSError: there is no space for them.
        """
        files = self._files.setdefault(rank, {})
        if name not in files:
            files[name] = UnnamedFile(self._folder)
        files[name].write(data)

    def of_rank(self, rank: int) -> Mapping[str, UnnamedFile]:
        return self._files.get(rank, {})

    def close(self) -> None:
        """Frees the space of all files."""
        for files in self._files.values():
            for file in files.values():
                file.close()
        self._files.clear()
