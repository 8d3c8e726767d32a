"""Devices: which settings hide NCCL ops on them, and whether GPUs have gauges. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from shlex import quote
from typing import Final

from frtop_probe.device_settings import DeviceSetting, settings_in_the_way, uses_nccl
from frtop_probe.features.doctor.facts import HostFacts, RankFacts, SearchFacts, TorchFiles
from frtop_probe.features.doctor.history import NCCL, as_obstacle
from frtop_probe.features.doctor.tier import Tier, counted, folded, judged
from frtop_probe.proc.ptrace_refusal import Change, Obstacle

_CPU_BUILD: Final = "+cpu"
_HANGS: Final = "an NVML call does not return: the driver hangs"
_DRIVER: Final = "nvidia-smi; sudo dmesg | grep -i -e nvrm -e xid"
_PIP: Final = "{python} -m pip install 'nvidia-ml-py>=12.535'"


def devices(host: HostFacts, search: SearchFacts) -> Tier:
    """What prepared ranks can tell about an issued op. Judged by settings only, so never ok."""
    ranks = [rank for rank in search.ranks if not rank.no_return and not rank.settings_unread]
    concerned = [rank for rank in ranks if uses_nccl(rank.backends or NCCL)]
    asked = bool(concerned) if search.ranks else _has_nccl(host.job_torch)
    obstacles: list[Obstacle] = []
    notes: dict[str, list[str]] = {}
    if search.ranks:
        for rank in concerned:
            version = rank.torch.version if rank.torch is not None else ""
            found = settings_in_the_way(NCCL, rank.settings, version, records=_records(rank))
            obstacles += [replace(as_obstacle(one), of=(rank.name,)) for one in found if one.blinds]
            for one in found:
                if _is_note(one):
                    notes.setdefault(one.sentence, []).append(rank.name)
    elif host.job_torch is not None and asked:
        obstacles, notes = _of_next_job(host.job_torch.version, host.settings)
    return judged(
        "devices",
        "ops on devices",
        tells="in prepared ranks: whether an NCCL op has reached its device, and has ended",
        lost="an op that hangs on a device looks like an op that the program has not waited for",
        obstacles=obstacles,
        basis=_basis(host, search, asked=asked),
        known=False,
        ranks=len(concerned),
        notes=(
            text if len(names) in (0, len(concerned)) else f"{folded(names)}: {text}"
            for text, names in notes.items()
        ),
    )


def _has_nccl(torch: TorchFiles | None) -> bool:
    """Whether an installation may contain NCCL."""
    return torch is not None and not torch.version.endswith(_CPU_BUILD)


def _of_next_job(
    version: str, settings: Mapping[str, str]
) -> tuple[list[Obstacle], dict[str, list[str]]]:
    found = settings_in_the_way(NCCL, settings, version)
    obstacles = [as_obstacle(one) for one in found if one.blinds]
    return obstacles, {one.sentence: [] for one in found if _is_note(one)}


def _is_note(setting: DeviceSetting) -> bool:
    """Whether the setting is only worth a note; dump settings belong to the dump tier."""
    return not setting.blinds and not setting.dumps


def _records(rank: RankFacts) -> bool | None:
    """Whether the rank has NCCL's ring; None where that is unknown."""
    return True if any(ring.capacity for ring in rank.rings if ring.kind == "nccl") else None


def _basis(host: HostFacts, search: SearchFacts, *, asked: bool) -> str:
    if asked:
        return "no setting hides them"
    if not search.ranks:
        return "no torch was found" if host.job_torch is None else "a torch without NCCL"
    unread = any(rank.settings_unread for rank in search.ranks)
    return "settings not readable" if unread else "no NCCL group"


def gauges(host: HostFacts) -> Tier | None:
    """Whether GPU utilization and power can be read; None on a host without the driver."""
    trial = host.nvml
    if trial is None:
        return None
    obstacles = []
    if trial.result == "missing":
        install = Change("type", _PIP.format(python=quote(host.program)))
        where = "through a shell, frtop uses only Python there" if host.by_shell else (
            "nvidia-ml-py is not installed beside frtop"
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
        basis=f"NVML reports {counted(count, 'GPU')}",
        is_evidence=False,
    )
