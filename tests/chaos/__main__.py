"""Hurts real jobs and frtop at random, round after round: `make chaos ROUNDS=200`.

A round follows from its seed, and the next round has the next one. A failure says what was done
when, and with which seed it comes again.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Final

from chaos.plan import Able, Way, plan_of
from chaos.round import Chaos, Result
from hosts import network, shells
from zoo import cgroup

HURTS: Final = 8
"""Most in a round."""
LATE_S: Final = 30.0
"""Of what was wrong for longer, it is told what it was."""


def main() -> int:
    """Returns the exit status: 1 if any round failed."""
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100, metavar="N")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="of the first round")
    parser.add_argument("--hurts", type=int, default=HURTS, metavar="N", help="most in a round")
    parser.add_argument("--hosts", type=float, default=0.35, metavar="SHARE",
                        help="of rounds whose ranks are on two hosts")  # fmt: skip
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell lets what it runs behind it ignore ^C
        signal.signal(number, signal.default_int_handler)
    ways, able, results = possible_ways(), abilities(), list[Result]()
    try:
        with Chaos() as chaos:
            for seed in range(options.seed, options.seed + options.rounds):
                plan = plan_of(seed, ways, options.hurts, able, hosts=options.hosts)
                result = chaos.run(plan)
                results.append(result)
                _print(result)
    except KeyboardInterrupt:
        print("stopped")
    print(summary(results))
    return 1 if any(result.failure for result in results) else 0


def possible_ways() -> tuple[Way, ...]:
    """Returns how jobs can be run here: native kernels may not have been built."""
    import torch  # noqa: PLC0415 - takes a second, and is for these two

    from frtop_probe.recorder.native.library import Library, NotUsableError  # noqa: PLC0415

    try:
        Library(torch)
    except NotUsableError:
        return "python", "python", "unprepared"
    return "python", "native", "unprepared"


def abilities() -> frozenset[Able]:
    """Returns what this machine can do besides."""
    root = os.geteuid() == 0
    able: dict[Able, bool] = {
        "freezer": cgroup.possible("freezer"),
        "pids": cgroup.possible("pids"),
        "small": root,
        "clock": shutil.which("cc") is not None,
        "tmux": shutil.which("tmux") is not None,
        "hosts": not network.obstacle(),
        "ssh": not shells.obstacle(),
    }
    return frozenset(name for name, there in able.items() if there)


def _print(result: Result) -> None:
    state = "FAIL" if result.failure else "ok"
    print(
        f"{state:4} seed {result.plan.seed}  {result.seconds:5.1f} s  {result.plan.way}"
        f" {result.plan.reach} {result.plan.ranks} ranks, {result.steps} steps,"
        f" longest {result.longest_s:.2f} s, true after {result.truth_s:.1f} s",
        flush=True,
    )
    if result.failure:
        print(failure(result), flush=True)
    elif result.truth_s > LATE_S:
        print(f"     until then: {result.last_wrong[:300]!r}", flush=True)


def failure(result: Result) -> str:
    """Returns what happened, and how to see it again."""
    again = f"{Path(sys.executable).name} -m chaos --rounds 1 --seed {result.plan.seed}"
    return f"{result.failure}\n{result.plan}\nagain, from tests/: {again}"


def summary(results: list[Result]) -> str:
    """Returns the table: hurts by kind and how many of their rounds went well."""
    done, well = Counter[str](), Counter[str]()
    for result in results:
        names = [deed.name for deed in result.plan.deeds]
        names += [f"{result.plan.kills} killed at the end"] * bool(result.plan.kills)
        names += ["job started again"] * result.plan.restarts
        names += [f"({result.plan.way}, {result.plan.reach})"]
        done.update(names)
        well.update(names if not result.failure else [])
    failed = [result for result in results if result.failure]
    seeds = ", ".join(str(result.plan.seed) for result in failed)
    longest = max((result.longest_s for result in results), default=0)
    truth = max((result.truth_s for result in results), default=0)
    lines = [
        f"{len(results)} rounds, {len(failed)} failed{': seeds ' * bool(failed)}{seeds}",
        f"{sum(result.steps for result in results)} steps with every result checked",
        f"longest step while nobody stopped a rank: {longest:.2f} s",
        f"screens right at most {truth:.1f} s after the last hurt",
        *(f"  {well[name]:5} of {count:5}  {name}" for name, count in sorted(done.items())),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
