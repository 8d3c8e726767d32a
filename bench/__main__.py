"""Runs every measurement, one after the other, each with its budget beside it."""

from __future__ import annotations

import platform
import sys
from importlib import import_module, metadata
from pathlib import Path
from typing import Final

CORE: Final = (
    "recorder_cost",
    "mark_cost",
    "side_by_side",
    "durations",
    "steps",
    "busy_thread",
    "thread_states",
    "store_round_trip",
    "startup",
    "agent_cost",
    "gauges",
    "statistics_accuracy",
    "statistics_cost",
    "step_shares",
    "live",
    "unprepared",
    "reach",
    "big_job",
    "scale",
    "key_latency",
    "diagnosis",
    "dumps",
    "logs",
    "trace_export",
)
FEATURES: Final = Path(__file__).with_name("features")
"""A measurement for each feature that has one, under its name."""


def main() -> None:
    only = sys.argv[1:]
    print(f"frtop {metadata.version('frtop')}, torch {metadata.version('torch')}, "
          f"Python {platform.python_version()}, {platform.machine()}\n")  # fmt: skip
    parts = {name: f"bench.{name}" for name in CORE}
    parts |= {path.stem: f"bench.features.{path.stem}" for path in sorted(FEATURES.glob("*.py"))}
    for name, module in parts.items():
        if not only or name in only:
            import_module(module).main()
            print(flush=True)


if __name__ == "__main__":
    main()
