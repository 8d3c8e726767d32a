"""Reads a profile by `frtop profile`: each rank's events, ops, modules and allocations.

The file may come from anywhere: its size is bounded, and only a few plain values are read.
"""

from __future__ import annotations

import gzip
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.errors import FrtopError, Unreadable
from frtop_tui.features.profile.content import file_content, opened
from frtop_tui.features.profile.merged import BEGAN_BEFORE
from frtop_tui.features.profile.model import ModelDescription, RankAllocations
from frtop_tui.features.profile.module_ops import OpsAndTimes, TraceEvent, module_ops
from frtop_tui.features.profile.profiled_modules_words import ProfiledModules
from frtop_tui.features.profile.torch_lanes import FIRST_PROCESS, PER_RANK
from frtop_tui.job.naming import folded
from frtop_tui.statistics.module_tree import ModuleKey, ModuleSums, module_rows

FIRST_RANK: Final = 10
"""The process ids of frtop's own lanes begin here."""
_BEGIN: Final = 1 << 16
"""The list of events begins within this many bytes."""
ANNOTATION: Final = "user_annotation"
_OF_HOST: Final = frozenset({"cpu_op", ANNOTATION})
EXACT: Final = "exact"
"""How frtop's own lanes mark an exact end; any other end is an upper bound."""
_SPAN: Final = "Trace"
"""Category of the event that spans torch's profiler from start to end."""
_OF_FRTOP: Final = frozenset({"collective", "message", "pending,collective", "pending,message"})


class _Args(msgspec.Struct):
    sequence: int = msgspec.field(name="Sequence number", default=-1)
    shapes: Any = msgspec.field(name="Input Dims", default=None)
    phase: str = ""
    root: str = msgspec.field(name="module root", default="")
    module: str = ""
    part: str = msgspec.field(name="module part", default="")
    kind: str = ""
    size: int = msgspec.field(name="bytes", default=0)
    end: str = ""
    before: float = msgspec.field(name=BEGAN_BEFORE, default=0.0)


class _Event(msgspec.Struct):
    name: str = ""
    ph: str = ""
    cat: str = ""
    pid: int = -1
    tid: Any = None
    ts: float = 0.0
    dur: float = -1.0
    args: msgspec.Raw = msgspec.Raw(b"{}")


class _RankAbout(msgspec.Struct):
    modules: ModelDescription | None = None
    allocations: list[RankAllocations] = []


class _About(msgspec.Struct):
    ranks: dict[str, _RankAbout] = {}
    missing: list[str] = []


class _Document(msgspec.Struct):
    events: list[msgspec.Raw] = msgspec.field(name="traceEvents")
    about: _About = msgspec.field(name="otherData", default_factory=_About)


class _Issued(NamedTuple):
    """An op in frtop's own lanes, issued by a module."""

    at_us: float
    key: ModuleKey
    size: int
    lasted_ns: int
    is_exact: bool


@dataclass(slots=True)
class _RankContent:
    """One rank: events of torch, and ops of frtop's own lanes.

    The lanes span the profiles of all ranks, which do not start and end together.
    """

    events: list[TraceEvent] = field(default_factory=list)
    issued: list[_Issued] = field(default_factory=list)
    span: tuple[float, float] | None = None

    def profiled_ops(self) -> Iterator[_Issued]:
        """Ops that were issued while this rank was profiled."""
        begin, end = self.span or (0.0, inf)
        return (one for one in self.issued if begin <= one.at_us <= end)


_documents: Final = msgspec.json.Decoder(_Document)
_events: Final = msgspec.json.Decoder(_Event)
_args: Final = msgspec.json.Decoder(_Args)


def is_named_profile(path: Path) -> bool:
    """Whether a file's name is that of a profile."""
    return path.name.endswith((".json.gz", ".json"))


def is_profile(path: Path) -> bool:
    """Whether a file looks like a profile, by its name and start; `read_profile` decides."""
    if not is_named_profile(path):
        return False
    try:
        with opened(path) as file:
            return b'"traceEvents"' in file.read(_BEGIN)
    except (Unreadable, OSError, EOFError, zlib.error):
        return False


def read_profile(path: Path, ranks: Collection[int] = ()) -> ProfiledModules:
    """Reads a whole profile, for these ranks or for all.

    Raises:
        FrtopError: the file is no profile, too large or unreadable, or has no such rank.
    """
    document, found = _read(path, ranks)
    return _by_module(document, {rank: about.modules for rank, about in found.items()})


def read_allocations(path: Path, ranks: Collection[int] = ()) -> list[RankAllocations]:
    """What torch's allocator did in these ranks, or in all; empty if that was not recorded.

    Raises:
        FrtopError: as `read_profile`.
    """
    _, found = _read(path, ranks)
    return [replace(one, rank=rank) for rank, about in found.items() for one in about.allocations]


def _read(path: Path, ranks: Collection[int]) -> tuple[_Document, dict[int, _RankAbout]]:
    """A whole profile, and its information about these ranks, or about all."""
    try:
        document = _documents.decode(file_content(path))
    except (EOFError, zlib.error, gzip.BadGzipFile, msgspec.MsgspecError, RecursionError):
        raise FrtopError(
            f"{path} is no profile", "name a file that `frtop profile` wrote"
        ) from None
    except OSError as error:
        text = f"{path} cannot be read: {error.strerror or error}"
        raise FrtopError(text, "name a file that `frtop profile` wrote") from None
    known = {
        int(rank): about
        for rank, about in document.about.ranks.items()
        if rank.isdecimal() and len(rank) < 10
    }
    if not known:
        text = f"{path} is not a profile of frtop's own, with lanes of the ranks' ops"
        raise FrtopError(text, "`frtop profile -o FILE.json.gz` writes one, without --separate")
    if strange := sorted(set(ranks) - known.keys()):
        raise FrtopError(f"{path} has no rank {strange[0]}", f"it has {folded(known)}")
    return document, {rank: known[rank] for rank in sorted(ranks or known)}


def _by_module(
    document: _Document, models: Mapping[int, ModelDescription | None]
) -> ProfiledModules:
    contents = {rank: _RankContent() for rank in models}
    for raw in document.events:
        _add(raw, contents)
    found = OpsAndTimes()
    known = {rank: model for rank, model in models.items() if model is not None}
    for rank, model in known.items():
        composite = frozenset(model.composite)
        found.add(module_ops(contents[rank].events, composite, dtensors=model.has_dtensors))
    sums: defaultdict[ModuleKey, ModuleSums] = defaultdict(ModuleSums)
    for rank, content in contents.items():
        for one in content.profiled_ops():
            sums[one.key].add(1, one.size, (rank,), one.lasted_ns, exact=one.is_exact)
    missing = tuple(document.about.missing)
    return ProfiledModules(tuple(models), module_rows([sums]), found, known, missing)


def _add(raw: msgspec.Raw, contents: Mapping[int, _RankContent]) -> None:
    try:
        event = _events.decode(raw)
        if event.ph != "X" or event.dur < 0:
            return
        if event.pid >= FIRST_PROCESS:
            known = contents.get((event.pid - FIRST_PROCESS) // PER_RANK)
            if known is None:
                return
            if event.cat == _SPAN:
                known.span = event.ts, event.ts + event.dur
            elif event.cat in _OF_HOST:
                args = _args.decode(event.args)
                shapes = _shapes_text(args.shapes)
                known.events.append(
                    TraceEvent(event.ts, event.ts + event.dur, str(event.tid), event.name,
                               args.sequence, shapes, event.cat == ANNOTATION)
                )  # fmt: skip
        elif event.cat in _OF_FRTOP and event.ts >= 0 and event.pid - FIRST_RANK in contents:
            args = _args.decode(event.args)
            if args.phase and not args.before:
                issuer = wire.Issuer(args.phase, args.module, args.root, args.part)
                is_exact = args.end == EXACT and not event.cat.startswith("pending")
                contents[event.pid - FIRST_RANK].issued.append(
                    _Issued(event.ts, (issuer, args.kind), args.size, round(1e3 * event.dur),
                            is_exact)
                )  # fmt: skip
    except msgspec.MsgspecError:
        return  # frtop writes no event of another shape


def _shapes_text(dims: Any) -> str:
    """`[2,8] [8,16]`: the shapes of the inputs that are tensors."""
    if not isinstance(dims, list):
        return ""
    shapes = [one for one in dims[:16] if isinstance(one, list) and one]
    return " ".join("[" + ",".join(map(str, one[:16])) + "]" for one in shapes)[:200]
