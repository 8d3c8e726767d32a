"""Hostile traces and profiles."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from features.profile import script_traces
from frtop_tui.errors import FrtopError
from frtop_tui.features.profile.reader import is_profile, read_allocations, read_profile
from frtop_tui.features.profile.script_merge import read_script_traces, write_script_merge
from frtop_tui.files.bounded_read import quietly
from frtop_tui.files.flightrecorder.file_names import RankPattern
from fuzz.mutations import as_json
from fuzz.target import Take, refused, target


def _traces(_: Path) -> Iterable[bytes]:
    for events in (script_traces.gloo(0), script_traces.nccl(0, numbers=True)):
        yield json.dumps(script_traces.document(0, events[:12])).encode()


@target("traces of torch's profiler, merged", as_json, _traces, most=80_000, quick=150)
def traces(folder: Path, _: ExitStack) -> Take:
    names = ("rank0.pt.trace.json", "rank1.pt.trace.json.gz")
    events = script_traces.gloo(1)
    script_traces.write(folder / names[1], script_traces.document(1, events))
    paths = [folder / name for name in names]

    def take(data: bytes) -> bool:
        paths[0].write_bytes(data)
        try:
            merge = read_script_traces(paths, RankPattern("rank{rank}.pt.trace.json*"))
            path, _ = write_script_merge(folder / "merged.json.gz", merge, quietly)
        except FrtopError as error:
            return refused(error)
        json.loads(gzip.decompress(path.read_bytes()), parse_constant=_refuse)
        path.unlink()
        return not merge.missing

    return take


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} in JSON")


def _merged(folder: Path) -> Iterable[bytes]:
    events = script_traces.gloo(1)
    path = script_traces.write(folder / "t.pt.trace.json", script_traces.document(1, events[:9]))
    merge = read_script_traces([path])
    made, _ = write_script_merge(folder / "m.json.gz", merge, quietly)
    yield gzip.decompress(made.read_bytes())
    made.unlink()


@target("a profile of frtop, opened again", as_json, _merged, most=80_000, quick=150)
def profiles(folder: Path, _: ExitStack) -> Take:
    path = folder / "p.json"

    def take(data: bytes) -> bool:
        path.write_bytes(data)
        taken = 0
        is_profile(path)
        for read in (read_profile, read_allocations):
            try:
                read(path)
                taken += 1
            except FrtopError as error:
                refused(error)
        return taken > 0

    return take
