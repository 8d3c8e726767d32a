"""Runs every measurement, one after the other, each with its budget beside it."""

from __future__ import annotations

import platform
import sys
from importlib import metadata
from typing import Final

from bench import (
    agent_cost,
    big_job,
    busy_thread,
    diagnosis,
    dumps,
    durations,
    gauges,
    lanes,
    live,
    mark_cost,
    module_cost,
    number_cost,
    profile_cost,
    reach,
    recorder_cost,
    side_by_side,
    startup,
    statistics_accuracy,
    statistics_cost,
    step_shares,
    steps,
    store_round_trip,
    thread_states,
    unprepared,
    watch_cost,
)

PARTS: Final = (
    recorder_cost,
    mark_cost,
    module_cost,
    side_by_side,
    profile_cost,
    number_cost,
    durations,
    steps,
    busy_thread,
    thread_states,
    store_round_trip,
    startup,
    agent_cost,
    gauges,
    statistics_accuracy,
    statistics_cost,
    step_shares,
    live,
    lanes,
    unprepared,
    reach,
    big_job,
    diagnosis,
    dumps,
    watch_cost,
)


def main() -> None:
    only = sys.argv[1:]
    print(f"frtop {metadata.version('frtop')}, torch {metadata.version('torch')}, "
          f"Python {platform.python_version()}, {platform.machine()}\n")  # fmt: skip
    for part in PARTS:
        name = part.__name__.rpartition(".")[2]
        if not only or name in only:
            part.main()
            print(flush=True)


if __name__ == "__main__":
    main()
