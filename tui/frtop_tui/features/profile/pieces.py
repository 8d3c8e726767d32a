"""Pieces of ranks' files, as they come in, until they are merged."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from frtop_tui.features.profile.unnamed_file import UnnamedFile

MOST_BYTES: Final = 1 << 30
"""Per file."""


class FetchedFiles:
    """Files of all ranks of one order, in the folder of the result. Belongs to the file worker."""

    def __init__(self, folder: Path) -> None:
        """Creates no file yet; `folder` must have room for all of them."""
        self._folder = folder
        self._files: dict[int, dict[str, UnnamedFile]] = {}

    def append(self, rank: int, name: str, data: bytes, _offset: int = 0) -> None:
        """Puts bytes to the end of a rank's file: they come in order.

        Raises:
            OSError: there is no room for them.
        """
        files = self._files.setdefault(rank, {})
        if name not in files:
            files[name] = UnnamedFile(self._folder)
        files[name].write(data)

    def of_rank(self, rank: int) -> Mapping[str, UnnamedFile]:
        return self._files.get(rank, {})

    def close(self) -> None:
        """Gives their room back."""
        for files in self._files.values():
            for file in files.values():
                file.close()
        self._files.clear()
