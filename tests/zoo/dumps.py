"""What Flight Recorder's dumps of a hung job tell: to `torchfrtrace`, and to frtop offline."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from flightrecorder.writer import pickle_like_torch
from frtop_tui.export.flightrecorder.dump_file import read_values
from zoo.truth import Case
from zoo.wording import NOTHING, blame_text, ranks_text

PREFIX: Final = "nccl_trace_rank_"
PATIENCE_S: Final = 60
NO_DUMPS: Final = "no dumps"
_MISSING: Final = re.compile(r"missing ranks: \{([0-9, ]+)\}")
_CULPRIT: Final = re.compile(r"Culprit rank (\d+)")
_CRASHED: Final = re.compile(r"^(\w+(?:Error|Exception|Exit))\b", re.MULTILINE)
_UNPLACED: Final = "Input/output mismatch"


@dataclass(frozen=True, slots=True)
class Told:
    """What each tool says of the same dumps, in a few words.

    `mended` is torchfrtrace's word after each dump was given the true members of its groups,
    which gloo's recorder leaves out.
    """

    torchfrtrace: str = ""
    mended: str = ""
    frtop: str = ""


def told_of(folder: Path, case: Case) -> Told:
    """Asks all of them about the dumps in `folder`, which has its ranks' groups beside it."""
    if not list(folder.glob(f"{PREFIX}*")):
        return Told(NO_DUMPS, NO_DUMPS, NO_DUMPS)
    better = mend(folder)
    as_is, after = _torchfrtrace(folder, better)
    return Told(torchfrtrace_text(as_is, case), torchfrtrace_text(after, case),
                _frtop(folder, case))  # fmt: skip


def mend(folder: Path) -> Path:
    """Copies of the dumps whose `pg_config` has the groups that the ranks really have."""
    better = folder.with_name(f"{folder.name}-mended")
    better.mkdir(exist_ok=True)
    for path in folder.glob(f"{PREFIX}*"):
        rank = path.name.removeprefix(PREFIX)
        values: dict[str, Any] = read_values(path)
        values["pg_config"] = json.loads((folder.parent / f"groups.{rank}").read_text())
        (better / path.name).write_bytes(pickle_like_torch(values))
    return better


def torchfrtrace_text(output: str, case: Case) -> str:
    """Whom its output names, or what ended it."""
    named = {int(rank) for found in _MISSING.findall(output) for rank in found.split(",")}
    named |= {int(rank) for rank in _CULPRIT.findall(output)}
    told = blame_text(named, case)
    if told == NOTHING and _UNPLACED in output:
        told = "a mismatch, no rank"
    if crash := _CRASHED.findall(output):
        told = f"crashes: {crash[-1]}" + (f", {told}" if named else "")
    return told


def _torchfrtrace(*folders: Path) -> list[str]:
    """Its output for each folder; one process, as loading torch is most of the work."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("peer.py")), PREFIX, *map(str, folders)],
        capture_output=True, text=True, timeout=PATIENCE_S, check=True,
    )  # fmt: skip
    outputs: list[str] = json.loads(done.stdout)
    return outputs


def _frtop(folder: Path, case: Case) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "frtop_tui", "diagnose", "--json", str(folder)],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    if not done.stdout.startswith("{"):
        return f"fails: {done.stderr.strip().splitlines()[-1:]}"
    verdicts = json.loads(done.stdout)["verdicts"]
    if named := {rank for verdict in verdicts for rank in verdict["culprits"]}:
        return blame_text(named, case)
    told = [
        f"{v['kind']} {ranks_text((), v['parties'])}" if v["parties"] else str(v["kind"])
        for v in verdicts
    ]
    return " + ".join(told) or NOTHING
