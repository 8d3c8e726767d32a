"""The environment in which every Python process starts the recorder."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import frtop_probe
from frtop_probe.ring.box_lock import RECORD

DEVICE_TENSORS = "FRTOP_DEVICE_TENSORS"
"""The variable of `recorder.device_tensors`."""
PHASES = "FRTOP_PHASES"
"""The variable of `recorder.phases`."""
MODULES = "FRTOP_MODULES"
"""The variable of `recorder.issuers`."""
REPORT = "FRTOP_REPORT"
"""The variable of `features.report`."""
LONGER_RING = "FRTOP_LONGER_RING"
"""The variable of `recorder.own_ring`."""
ZERO_CODE_START = Path(frtop_probe.__file__).parent / "recorder" / "zero"
"""A folder with a `sitecustomize` that also runs the job's own."""


def prepare(
    environ: Mapping[str, str],
    record: Path | None = None,
    *,
    device_tensors: bool = False,
    phases: bool = False,
    modules: bool = False,
    longer_ring: bool = False,
    report: bool = False,
) -> dict[str, str]:
    """Returns `environ` with the recorder's `sitecustomize` first in PYTHONPATH.

    The first rank of each host starts the agent on this interpreter: the job's own may lack
    pyzmq and py-spy. `record` is the folder for black boxes; None keeps that of `environ`.
    `device_tensors`: tensors on GPUs can be read. `phases`: forwards and backwards are recorded.
    `modules`: the module that issued each op is recorded. `longer_ring`: eight times as many ops
    are kept. `report`: what training libraries log is recorded. `environ` may request these, too.
    """
    prepared = dict(environ)
    path = [part for part in environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    start = str(ZERO_CODE_START)
    prepared["PYTHONPATH"] = os.pathsep.join([start, *(part for part in path if part != start)])
    prepared.setdefault("FRTOP_AGENT_PYTHON", sys.executable)
    if record is not None:
        prepared[RECORD] = str(record)
    if device_tensors:
        prepared[DEVICE_TENSORS] = "1"
    if phases:
        prepared[PHASES] = "1"
    if modules:
        prepared[MODULES] = "1"
    if report:
        prepared[REPORT] = "1"
    if longer_ring:
        prepared[LONGER_RING] = "1"
    return prepared
