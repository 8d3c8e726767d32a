"""Pieces of ranks' files, as they come in, until they are merged."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from frtop_probe import wire
from frtop_probe.features.profile.messages import ProfileFile
from frtop_tui.files.unnamed_file import UnnamedFile

PIECE: Final = 2 * 1024 * 1024
MOST_BYTES: Final = 1 << 30
"""Of one file."""


class FetchedFiles:
    """Files of all ranks of one order, in the folder of the result. Belongs to the file worker."""

    def __init__(self, folder: Path) -> None:
        """Creates no file yet; `folder` must have room for all of them."""
        self._folder = folder
        self._files: dict[int, dict[str, UnnamedFile]] = {}

    def append(self, rank: int, name: str, data: bytes) -> None:
        """Puts bytes to the end of a rank's file.

        Raises:
            OSError: there is no room for them.
        """
        files = self._files.setdefault(rank, {})
        if name not in files:
            files[name] = UnnamedFile(self._folder)
        files[name].write(data)

    def of_rank(self, rank: int) -> Mapping[str, UnnamedFile]:
        """Its files by name."""
        return self._files.get(rank, {})

    def close(self) -> None:
        """Gives their room back."""
        for files in self._files.values():
            for file in files.values():
                file.close()
        self._files.clear()


def inflated(response: wire.Piece, file: ProfileFile, offset: int) -> bytes:
    """The bytes of a piece; none if it is not what was asked for."""
    asked = (offset, file.size)
    if (response.offset, response.total) != asked or not 0 < response.size <= PIECE:
        return b""
    try:
        data = zlib.decompressobj().decompress(response.data, PIECE + 1)
    except zlib.error:
        return b""
    return data if len(data) == response.size else b""
