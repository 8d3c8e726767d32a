"""Writes a frame in one of the formats: complete, or not at all."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from frtop_probe import atomic_file, wire
from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import NotWritten
from frtop_tui.files import capture
from frtop_tui.files.formats.registry import FORMATS, Content
from frtop_tui.files.redaction import for_others

_FULL: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))


def write_collected(
    path: Path,
    frame: Frame,
    histories: Mapping[int, wire.HistoryResponse],
    missing: Sequence[str],
    *,
    over: bool,
    name: str,
    redact: bool = False,
) -> int:
    """Writes what was collected from a live job, like `capture.write`, in the format `name`.

    Raises:
        FileExistsError: the file exists, and `over` is false.
        NotWritten: it cannot be written.
    """
    collected = capture.collected(frame, histories, missing)
    return write_export(path, collected, name, over=over, redact=redact)


def write_export(path: Path, frame: Frame, name: str, *, over: bool, redact: bool = False) -> int:
    """Writes a frame in the format `name`, and returns the size in bytes.

    Some formats write a folder `path`, which must be empty or not exist yet.

    Raises:
        FileExistsError: it exists and `over` is false, or it is a folder that contains files.
        NotWritten: it cannot be written.
    """
    content = encoded(frame, name, redact=redact)
    try:
        if isinstance(content, bytes):
            atomic_file.write(path, content, overwrite=over)
            return len(content)
        _write_folder(path, content)
    except FileExistsError:
        raise
    except OSError as error:
        step = "make room there" if error.errno in _FULL else "name another place with -o"
        raise NotWritten(f"{path} was not written: {error.strerror}", step) from error
    return sum(map(len, content.values()))


def encoded(frame: Frame, name: str, *, redact: bool = False) -> Content:
    """The content in the format `name`; `redact` replaces names and data.

    Raises:
        NotWritten: the format does not fit: the frame has no stacks, or impossible times.
    """
    try:
        return FORMATS[name].encode(for_others(frame, capture.author()) if redact else frame)
    except (OverflowError, ValueError) as error:  # a damaged file may have times of any size
        text = f"the recorded times make no sense ({str(error)[:100]})"
        raise NotWritten(text, "copy the files again from where they were written") from error


def _write_folder(path: Path, files: Mapping[str, bytes]) -> None:
    """Writes a folder that appears with all its files, or not at all.

    Raises:
        FileExistsError: there is a file, or a folder that is not empty.
        OSError: it cannot be written.
    """
    draft = atomic_file.draft_path(path)
    draft.mkdir(mode=0o700)
    try:
        for name, content in files.items():
            atomic_file.create(draft / name, content)
        try:
            os.rename(draft, path)  # noqa: PTH104 - replaces an empty folder, and only that
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise FileExistsError(errno.EEXIST, "it is not empty", str(path)) from error
            raise
    finally:
        with suppress(OSError):
            shutil.rmtree(draft)
