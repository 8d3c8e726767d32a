"""The capture: everything known about a job at one moment, in one file.

It holds the judged frame and the history of every rank (docs/formats.md). A newer frtop may
add fields with defaults, which an older one ignores. A change that an older one would misread
increments `FORMAT`, which `_content` checks.
"""

from __future__ import annotations

import gc
import getpass
import platform
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from frtop_probe import archive, wire
from frtop_tui.diagnosis.histories import with_histories
from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import Unreadable
from frtop_tui.files.histories import with_recorded_ops
from frtop_tui.files.redaction import REDACTED, Redaction
from frtop_tui.job.model import CoverageNote, Recorded
from frtop_tui.job.naming import printable

KIND: Final = "capture"
FORMAT: Final = 1
READ_ONLY_REASON: Final = "this is a capture: there is no live job to ask"


class CaptureContent(msgspec.Struct, omit_defaults=True):
    """A capture's content. `frame` and `histories` are decoded only after the rest is checked."""

    format: int
    frame: msgspec.Raw  # a `Frame`
    histories: dict[int, msgspec.Raw] = {}  # a `History` for each rank that answered
    wall_ns: int = 0  # when it was taken
    by: str = ""  # user@host
    version: str = ""  # of frtop
    python: str = ""
    argv: tuple[str, ...] = ()  # the command that took it, without its options
    missing: tuple[str, ...] = ()  # what could not be collected, in sentences
    job: wire.Job | None = None
    redacted: bool = False  # names and data were replaced when it was taken


_COPY_AGAIN: Final = "copy the file again from where it was written, or open another one"
_OTHER_FRTOP: Final = "pip install --upgrade frtop, or open it with the frtop that wrote it"
_frames: Final = msgspec.msgpack.Decoder(Frame)
_contents: Final = msgspec.msgpack.Decoder(CaptureContent)
_histories: Final = msgspec.msgpack.Decoder(wire.History)
_encoder: Final = msgspec.msgpack.Encoder()
_DECODE_ERRORS: Final = (
    msgspec.DecodeError,
    KeyError,
    TypeError,
    AttributeError,
    ValueError,
    RecursionError,
    OverflowError,
)


def write(
    path: Path,
    frame: Frame,
    histories: Mapping[int, wire.HistoryResponse],
    missing: Sequence[str],
    *,
    over: bool = True,
    redact: bool = False,
) -> int:
    """Writes a capture atomically; returns its size in bytes.

    `missing` says in sentences what could not be collected. `over` replaces an existing file,
    `redact` replaces names and data (`files.redaction`).

    Raises:
        FileExistsError: the file exists, and `over` is false.
        OSError: the file cannot be written; an existing one is unchanged.
    """
    source = frame.recorded  # a recorded frame keeps its time and author
    by = source.by if source is not None else author()
    missing = tuple(map(printable, (*(source.notes if source is not None else ()), *missing)))
    tables = {rank: response.history for rank, response in histories.items()}
    if redact:
        redaction = Redaction(frame, by)
        frame, tables = redaction.frame(frame), redaction.values(tables)
        by, missing = redaction.author(by), redaction.texts(missing)
    content = CaptureContent(
        FORMAT,
        msgspec.Raw(
            _encoder.encode(
                replace(
                    frame,
                    recorded=None,
                    writings=(),
                    read_only="",
                    trace=None,
                    shown_statistics=None,
                    statistics=None if tables else frame.statistics,  # made of them when opened
                )
            )
        ),
        {rank: msgspec.Raw(_encoder.encode(history)) for rank, history in tables.items()},
        source.wall_ns if source is not None else time.time_ns(),
        by,
        source.version if source is not None else metadata.version("frtop"),
        platform.python_version(),
        _verb(),
        missing,
        frame.job,
        redact,
    )
    return archive.write(path, KIND, _encoder.encode(content), overwrite=over)


def _verb() -> tuple[str, ...]:
    """`frtop watch`: its options may hold secrets, as the address of a web hook."""
    verb = sys.argv[1] if len(sys.argv) > 1 else ""
    return ("frtop", verb) if verb.isalpha() else ("frtop",)


def collected(
    frame: Frame, histories: Mapping[int, wire.HistoryResponse], missing: Sequence[str]
) -> Frame:
    """The frame that such a capture would show; arguments as for `write`."""
    notes = (*frame.coverage.notes, *map(CoverageNote, missing))
    frame = replace(frame, coverage=replace(frame.coverage, notes=notes), writings=())
    tables = {rank: response.history for rank, response in histories.items()}
    return with_histories(with_recorded_ops(frame, tables))


@dataclass(frozen=True, slots=True)
class CaptureHead:
    """Time and job of a capture: enough to choose between several."""

    wall_ns: int
    job: wire.Job | None


def read_head(path: Path) -> CaptureHead:
    """Reads time and job of a capture without decoding its ranks.

    Raises:
        Unreadable: the file is no capture, damaged, or of another version.
    """
    content = _content(path)
    return CaptureHead(content.wall_ns, content.job)


def read(path: Path) -> Frame:
    """Reads the frame of a capture, with the histories in the snapshots of its ranks.

    Mismatches that only the histories show are added to its verdicts.

    Raises:
        Unreadable: the file is no capture, damaged, or of another version.
    """
    content = _content(path)
    collecting = gc.isenabled()
    gc.disable()  # half a million values that all stay: garbage collection would find nothing
    try:
        frame = _frames.decode(content.frame)
        histories = {r: _histories.decode(raw) for r, raw in content.histories.items()}
        frame = with_recorded_ops(frame, histories)
    except _DECODE_ERRORS as error:
        raise _not_decoded(path, content.version, error) from error
    finally:
        if collecting:
            gc.enable()
    if any(rank != view.rank for rank, view in frame.ranks.items()) or frame.wall_ns < 0:
        raise damaged(path, "its values are impossible")
    recorded = Recorded(
        "capture",
        str(path),
        content.wall_ns,
        content.by,
        content.version,
        (*content.missing, REDACTED) if content.redacted else content.missing,
    )
    return with_histories(replace(frame, recorded=recorded, read_only=READ_ONLY_REASON))


def _content(path: Path) -> CaptureContent:
    data = content_of(path, KIND)
    try:
        content = _contents.decode(data)
    except _DECODE_ERRORS as error:
        raise damaged(path, str(error)) from error
    if content.format != FORMAT:
        raise _other_version(path, content.version, content.format)
    if content.wall_ns < 0:
        raise damaged(path, "its values are impossible")
    return content


def content_of(path: Path, kind: str) -> bytes:
    """Reads the content of an archive of that kind.

    Raises:
        Unreadable: the file cannot be read, is damaged, or of another kind.
    """
    try:
        return archive.read(path, kind)
    except archive.UnknownVersion as error:
        raise Unreadable(str(error), _OTHER_FRTOP) from error
    except archive.ArchiveError as error:
        raise Unreadable(str(error), _COPY_AGAIN) from error
    except OSError as error:
        raise Unreadable(
            f"{path} cannot be read: {error.strerror}", "check the path and its permissions"
        ) from error


def author() -> str:
    """`user@host` of this process."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):  # in containers a user id may have no name
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


def damaged(path: Path, why: str) -> Unreadable:
    """The error for a file with invalid content."""
    return Unreadable(f"{path.name} is damaged ({why})", _COPY_AGAIN)


def _not_decoded(path: Path, version: str, error: Exception) -> Unreadable:
    """The error for content that cannot be decoded: of another version, or damaged."""
    if version not in ("", metadata.version("frtop")):
        return _other_version(path, version)
    return damaged(path, str(error))


def _other_version(path: Path, version: str, found: int = FORMAT) -> Unreadable:
    which = f"format {found}" if found != FORMAT else "a format"
    return Unreadable(
        f"{path.name} was written by frtop {version or '(version unknown)'} in {which} that this"
        f" frtop ({metadata.version('frtop')}) cannot read",
        _OTHER_FRTOP,
    )
