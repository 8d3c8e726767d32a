"""The points to prove, and the checks that prove them, the most important first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

FIRST_FAULTS: Final = (
    "not_entered/sleeping",
    "not_entered/stopped",
    "not_entered/gil_asleep",
    "not_entered/dataloader_worker",
    "mismatch/all_gather",
    "dead/killed",
)
MORE_FAULTS: Final = (
    "healthy/slow_but_moving",
    "cycle/opposite_groups",
    "not_entered/op_skipped",
    "not_entered/fifo",
    "dead/exception",
    "mismatch/barrier",
    "several/two_groups",
)
WAYS: Final = ("prepared", "unprepared")
"""Nobody watches an unprepared job before it dies, so programs that die run prepared only."""


def fault_point(name: str, way: str) -> str:
    """Returns the point of a program of the zoo."""
    return f"zoo {name} {way}"


FRONT: Final = "device front"
"""The first fault that runs prepared decides this point."""


def _zoo(names: tuple[str, ...]) -> dict[str, str]:
    return {
        fault_point(name, way): f"{name}, {way}: the verdict of frtop diagnose"
        for name in names
        for way in WAYS
        if way == "prepared" or not name.startswith("dead/")
    }


_STEPS: Final = {
    "ddp": "DDP",
    "fsdp": "FSDP2",
    "tensor_parallel": "tensor parallel",
    "moe": "all_to_all with varying splits",
}


@dataclass(frozen=True, slots=True)
class Check:
    """A module of `gpu_kit.checks`: its name, its deadline in s, its points, what it needs."""

    name: str
    deadline_s: float
    points: dict[str, str]
    needs_gpu: bool = False
    arguments: tuple[str, ...] = ()
    module: str = ""


_HANG: Final = {
    "four ranks": "four NCCL ranks on one GPU, by a NCCL_HOSTID each",
    "status values": "pg_status in a hang: enqueued is ahead of completed where ranks wait",
    "status cost": "a status-only look answers in a hang, and costs microseconds",
    "get_error": "get_error() answers in a hang",
    "dump in a hang": "a full dump on a relaxed thread returns in a hang",
    "read item": "a stuck tensor is read while the main thread is in .item()",
    "read synchronize": "a stuck tensor is read while the main thread is in synchronize()",
    "read pageable": "a stuck tensor is read while the main thread is in a pageable copy",
    "released": "after all that the late rank enters, and the sum is right",
    "watchdog": "from outside: the watchdog thread switches ten times a second in a hang",
    "power": "busy at idle power is a spinning kernel",
}

CHECKS: Final = (
    Check("surroundings", 60, {
        "machine": "what is here: GPU, driver, torch, NCCL, rights",
        "functions": "the functions of torch that the device front needs exist",
    }),
    Check("hang", 110, _HANG),
    Check("capture", 90, {
        "capture alone": "a CUDA graph with captured all_reduces is captured and replayed",
        "capture status": "a global capture survives status-only looks from another thread",
        "capture dump": "a global capture survives full dumps from a relaxed thread",
        "capture dump of unretired": "the same while an op from before it is not over",
        "capture plain dump": "a full dump from a plain thread breaks a global capture",
        "capture recorder": "capture and replay under the recorder: equal results, equal time",
    }, needs_gpu=True),
    Check("zoo", 150, {
        FRONT: "the recorder follows the device: handed over and complete, in a hang",
        **_zoo(FIRST_FAULTS),
    }, arguments=FIRST_FAULTS),
    Check("steps", 180, {
        "cost of an op": "what the recorder adds to an op of one rank",
        "cost of looks": "status-only look and full dump with a full ring",
        **{f"step {k}": f"{v}: the step with the recorder on and off" for k, v in _STEPS.items()},
        **{f"equal {k}": f"{v}: equal results with and without it" for k, v in _STEPS.items()},
    }),
    Check("zoo more", 170, _zoo(MORE_FAULTS), arguments=MORE_FAULTS, module="zoo"),
    Check("nccl2", 80, {
        "nccl2 " + point: "nccl2: " + title
        for point, title in _HANG.items()
        if point not in ("watchdog", "power", "four ranks")
    }, needs_gpu=True, module="hang", arguments=("nccl2",)),
)  # fmt: skip

POINTS: Final = {point: title for check in CHECKS for point, title in check.points.items()}
