"""The capture: everything that was known of a job at one moment, in one file.

The judged frame as it is, and the history of every rank beside it. A newer frtop may add
fields with defaults: an older one leaves them out. What an older one would misread raises
`FORMAT`.
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
from frtop_probe.ring.fold import unfold
from frtop_tui.diagnosis.histories import with_histories
from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import Unreadable
from frtop_tui.export.histories import inflate
from frtop_tui.job.model import DUMPS, Recorded
from frtop_tui.job.printable import printable

KIND: Final = "capture"
FORMAT: Final = 2
"""1: other names of fields (`_FIRST_NAMES`)."""
GONE: Final = "this is a capture: there is no live job to ask"


class _Content(msgspec.Struct, omit_defaults=True):
    """The file's content. `frame` and `histories` are read only when the rest is ours."""

    format: int
    frame: msgspec.Raw
    histories: dict[int, msgspec.Raw] = {}
    wall_ns: int = 0
    by: str = ""
    version: str = ""
    python: str = ""
    argv: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    job: wire.Job | None = None


_FIRST_NAMES: Final = {
    "state": "posture",
    "state_since_ns": "posture_since_ns",
    "status": "present",
    "group_progress": "fronts",
    "exception": "raised",
    "exit_info": "ending",
    "snapshot": "look",
    "prior_snapshot": "prior_look",
    "stacks_taken_ns": "stacks_ns",
}
_frames: Final = msgspec.msgpack.Decoder(Frame)
_contents: Final = msgspec.msgpack.Decoder(_Content)
_histories: Final = msgspec.msgpack.Decoder(wire.History)
_encoder: Final = msgspec.msgpack.Encoder()
_BROKEN: Final = (
    msgspec.DecodeError,
    KeyError,
    TypeError,
    AttributeError,
    UnicodeDecodeError,
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
) -> int:
    """Puts a capture in place in one step; gives its size on disk in bytes.

    Args:
        path: where to.
        frame: the judged moment.
        histories: by rank, of as many ranks as could be asked.
        missing: what could not be had, in sentences.
        over: whether what is at `path` is replaced.

    Raises:
        FileExistsError: there is something, and it is not to be replaced.
        OSError: it cannot be written; whatever was at `path` is untouched then.
    """
    told = frame.recorded  # of what was recorded before: its time and author, not ours
    content = _Content(
        FORMAT,
        msgspec.Raw(_encoder.encode(replace(frame, recorded=None, writings=(), read_only=""))),
        {r: msgspec.Raw(_encoder.encode(a.history)) for r, a in histories.items()},
        told.wall_ns if told is not None else time.time_ns(),
        told.by if told is not None else author(),
        told.version if told is not None else metadata.version("frtop"),
        platform.python_version(),
        tuple(map(printable, sys.argv)),
        tuple(map(printable, (*(told.notes if told is not None else ()), *missing))),
        frame.job,
    )
    return archive.write(path, KIND, _encoder.encode(content), over=over)


@dataclass(frozen=True, slots=True)
class Head:
    """What a capture is about: enough to choose between several."""

    wall_ns: int
    job: wire.Job | None


def head(path: Path) -> Head:
    """What a capture is about, without its ranks.

    Raises:
        Unreadable: it is no capture, damaged, or in the words of a newer frtop.
    """
    content = _content(path)
    return Head(content.wall_ns, content.job)


def read(path: Path) -> Frame:
    """The frame of a capture, as of its moment, with all histories in its ranks' looks.

    What these tell beyond what was seen then is among its verdicts.

    Raises:
        Unreadable: it is no capture, damaged, or in the words of a newer frtop.
    """
    content = _content(path)
    collecting = gc.isenabled()
    gc.disable()  # half a million values that all stay: nothing to be found by looking
    try:
        frame = _frame(content)
        told = {r: _histories.decode(raw) for r, raw in content.histories.items()}
        ranks = {r: inflate(view, told.get(r), frame.now_ns) for r, view in frame.ranks.items()}
    except _BROKEN as error:
        raise _not_understood(path, content.version, error) from error
    finally:
        if collecting:
            gc.enable()
    if any(rank != view.rank for rank, view in ranks.items()) or frame.wall_ns < 0:
        raise damaged(path, "what it says makes no sense")
    recorded = Recorded(
        "capture", str(path), content.wall_ns, content.by, content.version, content.missing
    )
    return with_histories(replace(frame, ranks=ranks, recorded=recorded, read_only=GONE))


def _frame(content: _Content) -> Frame:
    if content.format > 1:
        return _frames.decode(content.frame)
    plain = msgspec.msgpack.decode(content.frame)
    for rank in plain["ranks"].values():
        for name, first in _FIRST_NAMES.items():
            if first in rank:
                rank[name] = rank.pop(first)
    for verdict in plain.get("verdicts", ()):
        verdict["victims"] = unfold(verdict.get("victims", ""))
    frame = msgspec.convert(plain, Frame)
    dumped = {n: one for n, one in frame.ranks.items() if not one.identity.pid}
    ranks = {n: replace(one, evidence=DUMPS) for n, one in dumped.items()}
    return replace(frame, ranks={**frame.ranks, **ranks})


def _content(path: Path) -> _Content:
    data = content_of(path, KIND)
    try:
        content = _contents.decode(data)
    except _BROKEN as error:
        raise damaged(path, str(error)) from error
    if content.format > FORMAT:
        raise _newer(path, content.version)
    if content.wall_ns < 0:
        raise damaged(path, "what it says makes no sense")
    return content


def content_of(path: Path, kind: str) -> bytes:
    """What is in an archive.

    Raises:
        Unreadable: it cannot be read, or is no such archive.
    """
    try:
        return archive.read(path, kind)
    except archive.ArchiveError as error:
        raise Unreadable(
            str(error), "take the file anew where it was written, or look at another one"
        ) from error
    except OSError as error:
        raise Unreadable(
            f"{path} cannot be read: {error.strerror}", "check the path and its permissions"
        ) from error


def author() -> str:
    """`user@host` of this process."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):  # a user id without a name: containers
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


def damaged(path: Path, why: str) -> Unreadable:
    return Unreadable(
        f"{path.name} is damaged ({why})",
        "take the file anew where it was written, or look at another one",
    )


def _not_understood(path: Path, version: str, error: Exception) -> Unreadable:
    """Why a capture cannot be read: words we do not know yet, or no sense at all."""
    if version not in ("", metadata.version("frtop")):
        return _newer(path, version)
    return damaged(path, str(error))


def _newer(path: Path, version: str) -> Unreadable:
    ours = metadata.version("frtop")
    return Unreadable(
        f"{path.name} was written by another frtop ({version or 'unknown'}; this is {ours}), and"
        " says what this one does not know",
        "pip install --upgrade frtop",
    )
