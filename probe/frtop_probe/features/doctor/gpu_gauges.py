"""GPU gauges: NVML and its binding, where NVIDIA's driver is. Pure."""

from __future__ import annotations

from shlex import quote
from typing import Final

from frtop_probe.features.doctor.facts import HostFacts
from frtop_probe.features.doctor.tier import Tier, counted, judged
from frtop_probe.proc.ptrace_refusal import Change, Obstacle

_HANGS: Final = "a call of NVML does not return: the driver hangs"
_DRIVER: Final = "nvidia-smi; sudo dmesg | grep -i -e nvrm -e xid"
_PIP: Final = "{python} -m pip install 'nvidia-ml-py>=12.535'"


def gauges(host: HostFacts) -> Tier | None:
    """Whether utilization and power of GPUs can be read; None on a host without the driver."""
    trial = host.nvml
    if trial is None:
        return None
    obstacles = []
    if trial.result == "missing":
        install = Change("type", _PIP.format(python=quote(host.program)))
        where = "through a shell nothing but Python is used there" if host.by_shell else (
            "there is no nvidia-ml-py beside frtop"
        )  # fmt: skip
        obstacles.append(Obstacle("no nvidia-ml-py", where, () if host.by_shell else (install,)))
    elif trial.result == "killed":
        obstacles.append(Obstacle("NVML hangs", _HANGS, (Change("type", _DRIVER),)))
    elif trial.result != "ok":
        obstacles.append(Obstacle("NVML fails", trial.detail, (Change("type", _DRIVER),)))
    count = int(trial.detail) if trial.result == "ok" else 0
    return judged(
        "gauges",
        "GPU gauges",
        tells="utilization, power, memory and clocks of each rank's GPU; a kernel that spins",
        lost="a line beside *stuck*: whether a GPU is busy at idle power",
        obstacles=obstacles,
        basis=f"NVML tells of {counted(count, 'GPU')}",
        is_evidence=False,
    )
