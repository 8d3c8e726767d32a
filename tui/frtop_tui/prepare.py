"""The environment in which every Python process below becomes a rank that frtop can see."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import frtop_probe
from frtop_probe.ring.recording import RECORD

ZERO_CODE_START = Path(frtop_probe.__file__).parent / "recorder" / "zero"
"""Holds a `sitecustomize` that chains to the job's own."""


def prepare(environ: Mapping[str, str], record: Path | None = None) -> dict[str, str]:
    """`environ` with the recorder's start in front of PYTHONPATH.

    The agent, which the first rank of each host starts, needs what the job's environment
    need not have (pyzmq, py-spy); so it runs on this interpreter. Black boxes go to
    `record`, else where `environ` says.
    """
    prepared = dict(environ)
    path = [part for part in environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    start = str(ZERO_CODE_START)
    prepared["PYTHONPATH"] = os.pathsep.join([start, *(part for part in path if part != start)])
    prepared.setdefault("FRTOP_AGENT_PYTHON", sys.executable)
    if record is not None:
        prepared[RECORD] = str(record)
    return prepared
