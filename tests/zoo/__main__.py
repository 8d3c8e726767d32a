"""Runs all programs of the zoo in all modes, several at a time: `make zoo`.

With `--unprepared` they run without the recorder, and each run is right, less exact, undecided
or wrong; only a wrong one fails.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from zoo import table
from zoo.ground_truth import Mode
from zoo.runner import case_of, names
from zoo.worker import Run

_CLEANUP_S: Final = 40
_STATES: Final = {"less exact": "less", "undecided": "undec."}


def main() -> int:
    """Returns the exit status: 1 if any verdict is wrong or missing."""
    options = _options()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    wanted = _wanted(options.only)
    if not wanted:
        print(f"no program matches {options.only!r}")
        return 2
    prepared = not options.unprepared
    workers = [_Worker(prepared=prepared) for _ in range(min(options.jobs, len(wanted)))]
    try:
        runs = _all(workers, wanted, dumps=prepared and not options.no_dumps)
    except KeyboardInterrupt:
        print("stopped; cleaning up")
        return 130
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.wait()
    if options.table:
        (table.write if prepared else table.write_unprepared)(runs)
    print((table.summary if prepared else table.summary_unprepared)(runs))
    return 1 if any(run.failure for run in runs) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="zoo", description=__doc__)
    parser.add_argument("--unprepared", action="store_true", help="run without the recorder")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="not_entered/*, say")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N")
    parser.add_argument("--table", action="store_true", help="write it into dist/docs/")
    parser.add_argument("--no-dumps", action="store_true", help="do not run frtop on dumps")
    options = parser.parse_args()
    if options.table and options.only != "*":
        parser.error("the table is of all programs: leave --only out")
    return options


def _wanted(pattern: str) -> list[tuple[str, Mode]]:
    """Returns the longest programs first, so that none of them starts last."""
    found = [
        (name, mode) for name in names() if _fits(name, pattern) for mode in case_of(name).modes
    ]
    return sorted(found, key=lambda one: -_expected_s(one[0]))


def _fits(name: str, pattern: str) -> bool:
    return fnmatch(name, pattern) or pattern in name


def _expected_s(name: str) -> float:
    case = case_of(name)
    return case.lasts_s if case.healthy else case.within_s / 3


def _all(workers: list[_Worker], wanted: list[tuple[str, Mode]], *, dumps: bool) -> list[Run]:
    began, runs, total = time.monotonic(), list[Run](), len(wanted)
    left = wanted[::-1]
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            worker.start(*left.pop(), dumps=dumps)
            selector.register(worker.output, selectors.EVENT_READ, worker)
        while len(runs) < total:
            for key, _ in selector.select():
                worker = key.data
                run = worker.result()
                runs.append(run)
                if worker.output is not key.fileobj:
                    selector.unregister(key.fileobj)
                    selector.register(worker.output, selectors.EVENT_READ, worker)
                if left:
                    worker.start(*left.pop(), dumps=dumps)
                _print_result(run, len(runs), total)
    print(f"{time.monotonic() - began:.0f} s")
    return runs


def _print_result(run: Run, done: int, total: int) -> None:
    times = f"who {_s(run.who_s)} confirmed {_s(run.confirmed_s)}" if run.who_s else run.health
    state = "skip" if run.skipped else "FAIL" if run.failure else _STATES.get(run.reached, "ok")
    print(
        f"{done:3}/{total} {state:6} {run.seconds:5.1f} s  {run.name} {run.mode}"
        f"  {run.skipped or times}",
        flush=True,
    )
    if why := run.failure or run.reason:
        lines = [*run.details.splitlines(), *run.log.splitlines()]
        print(f"    {why}\n" + "".join(f"    > {line}\n" for line in lines), flush=True)


def _s(value: float | None) -> str:
    return "never" if value is None else f"{value:.1f} s"


class _Worker:
    """A process with its own zoo. If it ends by itself, the program that it ran has failed."""

    def __init__(self, *, prepared: bool = True) -> None:
        self._options = [] if prepared else ["--unprepared"]
        self._request: tuple[str, Mode] = ("", "sync")
        self._begin()

    def _begin(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "zoo.worker", *self._options], cwd=Path(__file__).parents[1],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        self.output = self._process.stdout

    def start(self, name: str, mode: Mode, *, dumps: bool) -> None:
        assert self._process.stdin is not None
        self._request = name, mode
        request = json.dumps({"name": name, "mode": mode, "dumps": dumps})
        with suppress(BrokenPipeError):  # it has ended, and so has its output
            os.write(self._process.stdin.fileno(), f"{request}\n".encode())

    def result(self) -> Run:
        """Returns the result of the program, and restarts a worker that has ended."""
        if line := self.output.readline():
            return Run(**json.loads(line))
        with self._process as ended:
            status = ended.wait()
        self._begin()
        return Run(*self._request, failure=f"its worker ended with status {status}")

    def terminate(self) -> None:
        """Makes it clean up and exit, at any time."""
        self._process.terminate()

    def wait(self) -> None:
        with self._process as process:
            process.wait(_CLEANUP_S)


if __name__ == "__main__":
    sys.exit(main())
