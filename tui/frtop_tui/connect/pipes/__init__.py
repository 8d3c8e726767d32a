"""Agents at the other end of a command that gives a shell: ssh, docker, kubectl, srun."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

LAUNCHERS: Final[Mapping[str, str]] = {
    "slurm:": "slurm:JOBID",
    "k8s:": "k8s:[NAMESPACE/]SELECTOR[:CONTAINER]",
}
"""Prefixes of `--ssh` that ask a launcher for the hosts, and how to write each. Their parsers:
`places`. The table is here because every start lists it in `--help`."""
