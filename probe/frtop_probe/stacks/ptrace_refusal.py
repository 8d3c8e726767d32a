"""Why the kernel refuses to let us trace a process, and which setting causes it, in a sentence."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Final

from frtop_probe.features.doctor import process_rights
from frtop_probe.features.doctor.tier import Change
from frtop_probe.features.doctor.tracing import why_refused

YAMA: Final = process_rights.YAMA
_WORDS: Final = {
    "docker run": "start the container with `{}`",
    "pod spec": "add to the pod's spec `{}`",
    "program": "add to the program `{}`",
    "job script": "add to the job script `{}`",
}


def explain(pid: int, root: Path = Path("/"), our_uid: int | None = None) -> str:
    """The likeliest cause, and what to do about it, in one sentence."""
    ours = process_rights.read_rights("self", root)
    ours = replace(ours, uid=os.geteuid() if our_uid is None else our_uid)
    theirs = replace(process_rights.read_rights(pid, root), pid=pid)
    found = why_refused(ours, theirs, process_rights.read_yama(root))
    return f"{found.text}: {' or '.join(map(_step, found.changes[:2]))}; see `frtop doctor`"


def _step(change: Change) -> str:
    return _WORDS.get(change.where, "`{}`").format(change.line)
