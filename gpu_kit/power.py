"""Utilisation and power of the GPU, five times a second: what a spinning kernel looks like.

Run as a program it says a fact per sample, until it is killed: a read of NVML may hang.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence
from typing import Final

from gpu_kit import facts
from gpu_kit.facts import Fact

EVERY_S: Final = 0.2
HALF: Final = 0.5
BUSY_PERCENT: Final = 90


def main() -> int:
    """Returns 1 where there is no NVML."""
    try:
        import pynvml  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415

        pynvml.nvmlInit()
        device = pynvml.nvmlDeviceGetHandleByIndex(0)
    except Exception as error:  # noqa: BLE001 - whatever is missing, it is said
        facts.say("no power", why=f"{type(error).__name__}: {error}")
        return 1
    while True:
        facts.say(
            "power",
            at=time.monotonic(),
            percent=pynvml.nvmlDeviceGetUtilizationRates(device).gpu,
            watts=pynvml.nvmlDeviceGetPowerUsage(device) / 1000,
            mhz=pynvml.nvmlDeviceGetClockInfo(device, pynvml.NVML_CLOCK_SM),
        )
        time.sleep(EVERY_S)


def phases(found: Sequence[Fact]) -> dict[str, dict[str, float]]:
    """Returns the medians of each phase that was marked with `phase` facts, its first s left out.

    NVML's utilisation is that of the last second or so.
    """
    marks = facts.of(list(found), "phase")
    samples = facts.of(list(found), "power")
    medians = {}
    ends = [mark["at"] for mark in marks[1:]] + [float("inf")]
    for mark, end in zip(marks, ends, strict=False):
        inside = [one for one in samples if mark["at"] + 1 < one["at"] < end]
        if inside:
            medians[str(mark["name"])] = {
                key: round(statistics.median(one[key] for one in inside), 1)
                for key in ("percent", "watts", "mhz")
            }
    return medians


def verdict(medians: dict[str, dict[str, float]]) -> tuple[bool, str]:
    """Returns whether a hang is busy and nearer to idle power than to work, in words, too."""
    idle, hang, work = (medians[name] for name in ("idle", "hang", "work"))
    share = (hang["watts"] - idle["watts"]) / max(1.0, work["watts"] - idle["watts"])
    text = "; ".join(
        f"{name} {one['percent']:.0f} %, {one['watts']:.0f} W, {one['mhz']:.0f} MHz"
        for name, one in (("idle", idle), ("hang", hang), ("work", work))
    )
    return hang["percent"] >= BUSY_PERCENT and share < HALF, f"{text} (hang at {share:.0%} of work)"


if __name__ == "__main__":
    sys.exit(main())
