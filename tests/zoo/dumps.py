"""What frtop reads from the Flight Recorder dumps of a hung job."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

from zoo.ground_truth import Case
from zoo.wording import NOTHING, blame_text, ranks_text

TIMEOUT_S: Final = 60


def said_of_dumps(folder: Path, case: Case) -> str:
    """Returns in a few words what `frtop diagnose` says of the dumps in `folder`."""
    if not list(folder.glob("nccl_trace_rank_*")):
        return "no dumps"
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
