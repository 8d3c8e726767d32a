"""Writes files that others see complete or not at all, readable by this user only.

The content goes to a draft beside the target and is synced; then the draft takes the
target's name in one step.
"""

from __future__ import annotations

import errno
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

_NO_LINKS: Final = frozenset(
    (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EACCES)
)
"""Errors of link(2) on file systems without hard links (EACCES: a policy forbids them)."""
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def write(path: Path, content: bytes, *, overwrite: bool = True, draft: Path | None = None) -> None:
    """Writes a file in one step, with mode 0600.

    Args:
        path: the target; its folder must exist.
        content: the whole content.
        overwrite: whether to replace an existing file.
        draft: the draft's name, on the same file system; by default `draft_path(path)`.

    Raises:
        FileExistsError: the target exists, and `overwrite` is false.
        OSError: the file cannot be written; the target is unchanged.
    """
    draft = draft or draft_path(path)
    try:
        create(draft, content)
        publish(draft, path, overwrite=overwrite)
    finally:
        with suppress(OSError):
            draft.unlink()


def draft_path(path: Path) -> Path:
    """A hidden name beside `path` that no other writer uses."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}")


def create(path: Path, content: bytes = b"") -> None:
    """Writes and syncs a new file; removes it again when writing fails.

    Raises:
        FileExistsError: the file exists.
        OSError: it cannot be written.
    """
    descriptor = os.open(path, _NEW, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
    except OSError:
        with suppress(OSError):
            path.unlink()
        raise


def publish(draft: Path, path: Path, *, overwrite: bool) -> None:
    """Renames a finished draft to `path` in one step.

    Raises:
        FileExistsError: `path` exists, even as a dangling link, and `overwrite` is false.
        OSError: it cannot be renamed; the draft is still there.
    """
    if overwrite:
        draft.replace(path)
        return
    try:
        os.link(draft, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        create(path)  # reserves the name; readers see an empty file for a moment
        try:
            draft.replace(path)
        except OSError:
            path.unlink()
            raise
    else:
        draft.unlink()
