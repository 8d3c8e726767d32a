"""What `torchfrtrace` and frtop read from the Flight Recorder dumps of a hung job."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from flightrecorder.writer import pickle_like_torch
from frtop_tui.files.flightrecorder.dump_file import read_values
from zoo.ground_truth import Case
from zoo.wording import NOTHING, blame_text, ranks_text

PREFIX: Final = "nccl_trace_rank_"
TIMEOUT_S: Final = 60
NO_DUMPS: Final = "no dumps"
_MISSING: Final = re.compile(r"missing ranks: \{([0-9, ]+)\}")
_CULPRIT: Final = re.compile(r"Culprit rank (\d+)")
_CRASHED: Final = re.compile(r"^(\w+(?:Error|Exception|Exit))\b", re.MULTILINE)
_RUNNER: Final = Path(__file__).with_name("run_torchfrtrace.py")
_UNPLACED: Final = "Input/output mismatch"


@dataclass(frozen=True, slots=True)
class ToolResults:
    """The result of each tool on the same dumps, in a few words.

    `repaired` is torchfrtrace's result on copies with the true members of the groups, which
    gloo's recorder leaves out.
    """

    torchfrtrace: str = ""
    repaired: str = ""
    frtop: str = ""


def tool_results(folder: Path, case: Case) -> ToolResults:
    """Runs all tools on the dumps in `folder`; files with the ranks' groups are beside it."""
    if not list(folder.glob(f"{PREFIX}*")):
        return ToolResults(NO_DUMPS, NO_DUMPS, NO_DUMPS)
    repaired = repair_groups(folder)
    as_is, after = _torchfrtrace(folder, repaired)
    return ToolResults(torchfrtrace_text(as_is, case), torchfrtrace_text(after, case),
                _frtop(folder, case))  # fmt: skip


def repair_groups(folder: Path) -> Path:
    """Copies the dumps, and sets `pg_config` in the copies to the real groups of the ranks."""
    repaired = folder.with_name(f"{folder.name}-repaired")
    repaired.mkdir(exist_ok=True)
    for path in folder.glob(f"{PREFIX}*"):
        rank = path.name.removeprefix(PREFIX)
        values: dict[str, Any] = read_values(path)
        values["pg_config"] = json.loads((folder.parent / f"groups.{rank}").read_text())
        (repaired / path.name).write_bytes(pickle_like_torch(values))
    return repaired


def torchfrtrace_text(output: str, case: Case) -> str:
    """Returns which ranks its output blames, or the exception that ended it."""
    named = {int(rank) for found in _MISSING.findall(output) for rank in found.split(",")}
    named |= {int(rank) for rank in _CULPRIT.findall(output)}
    text = blame_text(named, case)
    if text == NOTHING and _UNPLACED in output:
        text = "a mismatch, no rank"
    if crash := _CRASHED.findall(output):
        text = f"crashes: {crash[-1]}" + (f", {text}" if named else "")
    return text


def _torchfrtrace(*folders: Path) -> list[str]:
    """Returns its output for each folder; one process, because loading torch takes longest."""
    done = subprocess.run(
        [sys.executable, str(_RUNNER), PREFIX, *map(str, folders)],
        capture_output=True, text=True, timeout=TIMEOUT_S, check=True,
    )  # fmt: skip
    outputs: list[str] = json.loads(done.stdout)
    return outputs


def _frtop(folder: Path, case: Case) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "frtop_tui", "diagnose", "--json", str(folder)],
        capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    if not done.stdout.startswith("{"):
        return f"fails: {done.stderr.strip().splitlines()[-1:]}"
    verdicts = json.loads(done.stdout)["verdicts"]
    if named := {rank for verdict in verdicts for rank in verdict["culprits"]}:
        return blame_text(named, case)
    kinds = [
        f"{v['kind']} {ranks_text((), v['parties'])}" if v["parties"] else str(v["kind"])
        for v in verdicts
    ]
    return " + ".join(kinds) or NOTHING
