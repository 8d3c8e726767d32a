"""Finds the processes that have an NVIDIA device open, and their GPUs by NVML's list of pids.

Nothing here calls a driver: it reads links in /proc, which never block.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
DEVICES: Final = Path("/dev")
CONTROL: Final = "nvidiactl"
_PREFIX: Final = "nvidia"
_MOST_LINKS: Final = 4096
"""Most descriptors that are read per process: CUDA opens its own early."""
_INITIAL_PIDS: Final = "pid:[4026531836]"
"""The initial pid namespace, whose number is fixed in the kernel (PROC_PID_INIT_INO)."""

OTHER_PIDS: Final = "which GPU is whose is unknown: NVML's pids are not those of this container"
NOT_LISTED: Final = "which GPU it uses is unknown: NVML lists its pid on no GPU"
NO_LIST: Final = "which GPU it uses is unknown: NVML lists no processes"


def has_driver(devices: Path = DEVICES) -> bool:
    """Whether this host has the devices of NVIDIA's driver."""
    return (devices / CONTROL).exists()


def opens_device(pid: int, proc: Path = PROC, devices: Path = DEVICES) -> bool | None:
    """Whether a process has an NVIDIA device open; None if we may not look."""
    folder, prefix = f"{proc}/{pid}/fd", str(devices / _PREFIX)
    try:
        names = os.listdir(folder)  # noqa: PTH208 - names only, of thousands
    except PermissionError:
        return None
    except OSError:
        return False
    for name in names[:_MOST_LINKS]:
        try:
            if os.readlink(f"{folder}/{name}").startswith(prefix):  # noqa: PTH115 - as above
                return True
        except OSError:
            continue  # closed meanwhile
    return False


def sees_all_pids(proc: Path = PROC) -> bool:
    """Whether our pids are the machine's pids, which the driver uses."""
    try:
        return os.readlink(proc / "self/ns/pid") == _INITIAL_PIDS  # noqa: PTH115 - no file
    except OSError:
        return False


def gpus_by_pid(
    listed: Mapping[int, Collection[int] | None],
    ranks: Collection[int],
    *,
    all_pids: bool,
    opens: Callable[[int], bool | None],
) -> tuple[dict[int, tuple[int, ...]], dict[int, str]]:
    """Returns the GPUs of each rank, or why they are unknown. Never guesses.

    In a container NVML may list the machine's pids, translate them, or list none. Equal numbers
    then prove nothing, unless every listed pid is a process here with a device open.

    Args:
        listed: the pids in NVML's list, by index of the GPU; None where there is no list.
        ranks: pids of the ranks, in our pid namespace.
        all_pids: our pids are the machine's.
        opens: whether a process here has a device open; None if unknown.
    """
    pids = {pid for known in listed.values() for pid in known or ()}
    if not all_pids and not all(opens(pid) is True for pid in pids):
        return {}, dict.fromkeys(ranks, OTHER_PIDS)
    found: dict[int, tuple[int, ...]] = {}
    reasons: dict[int, str] = {}
    complete = all(known is not None for known in listed.values())
    for pid in ranks:
        mine = tuple(index for index, known in listed.items() if known and pid in known)
        if mine:
            found[pid] = mine
        elif not all_pids and not pids:
            reasons[pid] = OTHER_PIDS if complete else NO_LIST
        else:
            reasons[pid] = NOT_LISTED if complete else NO_LIST
    return found, reasons
