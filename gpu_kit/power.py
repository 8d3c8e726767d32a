"""Utilisation and power of the GPU, five times a second: what a spinning kernel looks like.

They are read as frtop's agent reads them, and judged by the rule of frtop's verdicts. Run as a
program, it writes a fact per sample until it is killed: a read of NVML may hang.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence
from typing import Final

from frtop_probe.gauges.nvml import NvmlReader
from gpu_kit import facts
from gpu_kit.facts import Fact

EVERY_S: Final = 0.2
HALF: Final = 0.5
BUSY_PERCENT: Final = 90
_FIGURES: Final = ("percent", "watts", "mhz")


def main() -> int:
    """Returns 1 if NVML shows no GPU."""
    reader = NvmlReader()
    while True:
        reading = reader.read(processes=True)
        if not reading.gpus:
            facts.say("no power", why=reading.problem or "NVML shows no GPU")
            return 1
        gpu = reading.gpus[0]
        figures = dict(gpu.values)
        facts.say(
            "power",
            at=reading.at_ns / 1e9,
            percent=figures["use"] / 10 if "use" in figures else None,
            watts=figures["power_mw"] / 1000 if "power_mw" in figures else None,
            mhz=figures.get("sm_mhz"),
            limit=figures["power_limit_mw"] / 1000 if "power_limit_mw" in figures else None,
            pids=gpu.pids,
        )
        time.sleep(EVERY_S)


def phases(found: Sequence[Fact]) -> dict[str, dict[str, float]]:
    """Returns the medians of each phase that `phase` facts mark, without its first second.

    NVML's utilisation covers about the last second.
    """
    marks = facts.of(list(found), "phase")
    samples = facts.of(list(found), "power")
    medians = {}
    ends = [mark["at"] for mark in marks[1:]] + [float("inf")]
    for mark, end in zip(marks, ends, strict=False):
        inside = [one for one in samples if mark["at"] + 1 < one["at"] < end]
        known = [one for one in inside if None not in [one[key] for key in _FIGURES]]
        if known:
            medians[str(mark["name"])] = {
                key: round(statistics.median(one[key] for one in known), 1) for key in _FIGURES
            }
    return medians


def by_the_rule(medians: dict[str, dict[str, float]], limit_w: float | None) -> dict[str, bool]:
    """Whether frtop would say of each phase that a kernel spins, with and without idle power.

    The samples are spaced like an agent's, because the rule needs several, and time between them.
    Empty if frtop's own modules cannot be imported; another check reports that.
    """
    try:
        from frtop_probe import wire  # noqa: PLC0415 - needs msgspec
        from frtop_tui.diagnosis.evidence.gpu_activity import spinning  # noqa: PLC0415
        from frtop_tui.diagnosis.thresholds import SPIN_NS, SPIN_SAMPLES  # noqa: PLC0415
    except ImportError:
        return {}
    idle_mw = int(1000 * medians["idle"]["watts"]) if "idle" in medians else None
    found = {}
    for name, one in medians.items():
        step_ns = SPIN_NS // (SPIN_SAMPLES - 1) + 1
        samples = tuple(
            wire.GpuSample(n * step_ns, round(one["percent"]), int(1000 * one["watts"]))
            for n in range(SPIN_SAMPLES)
        )
        limit_mw = None if limit_w is None else int(1000 * limit_w)
        for known, idle in (("", None), (", idle power known", idle_mw)):
            gpu = wire.Gpu(0, power_limit_mw=limit_mw, idle_mw=idle, samples=samples)
            found[name + known] = spinning(gpu) is not None
    return found


def rule_of(found: Sequence[Fact]) -> dict[str, bool]:
    """Returns what frtop's rule said during the run, else what it says now."""
    for fact in facts.of(list(found), "power rule"):
        return dict(fact["says"])
    limits = [one["limit"] for one in facts.of(list(found), "power") if one.get("limit")]
    return by_the_rule(phases(found), limits[0] if limits else None)


def verdict(medians: dict[str, dict[str, float]], rule: dict[str, bool]) -> tuple[bool, str]:
    """Returns whether a hang is busy and nearer to idle power than to work, and a text about it.

    frtop's own rule also has to tell it from work, with or without a known idle power.
    """
    idle, hang, work = (medians[name] for name in ("idle", "hang", "work"))
    share = (hang["watts"] - idle["watts"]) / max(1.0, work["watts"] - idle["watts"])
    text = "; ".join(
        f"{name} {one['percent']:.0f} %, {one['watts']:.0f} W, {one['mhz']:.0f} MHz"
        for name, one in (("idle", idle), ("hang", hang), ("work", work))
    )
    spins = [name for name, says in rule.items() if says]
    told = any(name.startswith("hang") for name in spins)
    right = told and all(name.startswith("hang") for name in spins)
    says = "; ".join(spins) or ("never" if rule else "not asked")
    text += f" (hang at {share:.0%} of work; by frtop's rule a kernel"
    text += f" spins: {says})"
    return hang["percent"] >= BUSY_PERCENT and share < HALF and (right or not rule), text


if __name__ == "__main__":
    sys.exit(main())
