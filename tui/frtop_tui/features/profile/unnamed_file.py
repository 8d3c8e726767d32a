"""Files that have no name until they are complete.

If the program is killed nothing is left: the kernel removes them.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from frtop_probe import atomic_file

_NO_UNNAMED: Final = frozenset((errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT))
"""Errors of file systems and kernels that do not support files without a name."""
_NO_LINK: Final = frozenset((errno.ENOENT, errno.EPERM, errno.EXDEV, errno.EOPNOTSUPP))
"""Errors if a file cannot be given a name: then it is copied."""


class UnnamedFile:
    """A file in a folder's file system, readable by this user only, until `close`."""

    def __init__(self, folder: Path) -> None:
        """Creates it.

        Raises:
            OSError: it cannot be created.
        """
        self._folder = folder
        try:
            flags = os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC
            self._descriptor = os.open(folder, flags, 0o600)
        except OSError as error:
            if error.errno not in _NO_UNNAMED:
                raise
            self._descriptor, name = tempfile.mkstemp(dir=folder, prefix=".frtop-")
            Path(name).unlink()
        self.size = 0

    def write(self, data: bytes) -> int:
        """Appends all bytes; returns how many.

        Raises:
            OSError: there is no space, for instance.
        """
        left = memoryview(data)
        try:
            while left:
                written = os.pwrite(self._descriptor, left, self.size)
                self.size += written
                left = left[written:]
        except OSError as error:
            error.filename = str(self._folder)  # a descriptor does not tell it
            raise
        return len(data)

    def flush(self) -> None:
        """Does nothing: writes are not buffered."""

    def fileno(self) -> int:
        return self._descriptor

    def publish(self, path: Path) -> None:
        """Gives it a name.

        Raises:
            FileExistsError: something has that name.
            OSError: it cannot be written.
        """
        try:
            os.fsync(self._descriptor)
            folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                # With a folder Python calls linkat, which follows the link to the open file.
                os.link(f"/proc/self/fd/{self._descriptor}", path.name, dst_dir_fd=folder)
            finally:
                os.close(folder)
        except OSError as error:
            if error.errno not in _NO_LINK:
                error.filename = str(path)
                raise
            self._copy(path)

    def _copy(self, path: Path) -> None:
        draft = atomic_file.draft_path(path)
        try:
            atomic_file.create(draft)
            with open(self._descriptor, "rb", closefd=False) as source, draft.open("wb") as target:
                source.seek(0)
                shutil.copyfileobj(source, target)
            atomic_file.publish(draft, path, overwrite=False)
        finally:
            with suppress(OSError):
                draft.unlink()

    def close(self) -> None:
        """Frees the file's space, unless it was published."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
