"""PyTorch's own distributed tests, without and with the recorder: `make torch-suite`.

Results are appended to a file as they come, so that a later call goes on where this one ended.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from torch_suite import report
from torch_suite.pairs import Pairs, Setting
from torch_suite.results import Result
from torch_suite.shipped import SUITES

RESULTS: Final = Path(__file__).parents[2] / ".torch-suite"


def main() -> int:
    options = _parser().parse_args()
    options.results.mkdir(exist_ok=True, parents=True)
    end = time.monotonic() + options.minutes * 60
    broken = False
    for name, suite in _suites(options.suite, options.name):
        setting = Setting(suite, options.python, options.start, options.limit_s)
        run = _Run(name, setting, options, end)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, run.interrupt)
        results = run.run()
        print("\n".join(report.text(name, results)))
        broken |= any(result.judgement in ("different", "finding") for result in results)
        if run.interrupted:
            return 130
    return int(broken)


def _suites(given: list[str], name: str) -> list[tuple[str, str]]:
    """Returns name and contents of each suite to run; all files together are one."""
    files = [suite for suite in given if suite not in SUITES]
    found = [(suite, suite) for suite in SUITES if suite in given or not given]
    return [*found, (name, os.pathsep.join(files))] if files else found


def _results(file: Path) -> dict[str, Result]:
    """Returns the last result of each test."""
    lines = file.read_text().splitlines()
    found = (msgspec.json.decode(line, type=Result) for line in lines)
    return {result.test: result for result in found}


class _Run:
    """One suite: several pairs of servers take tests off one list until it or the time ends."""

    def __init__(
        self, name: str, setting: Setting, options: argparse.Namespace, end: float
    ) -> None:
        self.interrupted = False
        self._end = end
        self._name, self._setting, self._options = name, setting, options
        self._lock = threading.Lock()
        self._todo: Iterator[str] | None = None
        self._results: dict[str, Result] = {}
        self._errors: list[BaseException] = []

    def run(self) -> list[Result]:
        workers = [threading.Thread(target=self._work) for _ in range(self._options.jobs)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        if self._errors:
            raise self._errors[0]
        return list(self._results.values())

    def interrupt(self, *_: object) -> None:
        """Handles a signal. Raises nothing: an interrupted `join` takes its thread for ended."""
        self.interrupted = True
        print("ends after the tests that run now", file=sys.stderr)

    def _work(self) -> None:
        try:
            with Pairs(self._setting) as pairs:
                file = self._file(pairs)
                while (test := self._next(pairs, file)) is not None:
                    self._add(pairs.run(test, self._options.pairs), file)
        except Exception as error:  # noqa: BLE001 - raised again where all are joined
            self._errors.append(error)

    def _file(self, pairs: Pairs) -> Path:
        name = f"{pairs.torch}-{self._name}-{self._setting.start}.jsonl"
        results: Path = self._options.results
        return results / name

    def _next(self, pairs: Pairs, file: Path) -> str | None:
        with self._lock:
            if self._todo is None:
                if file.exists() and not self._options.again:
                    self._results = _results(file)
                self._todo = iter(self._wanted(pairs.tests))
            if self.interrupted or self._errors or time.monotonic() > self._end:
                return None
            return next(self._todo, None)

    def _wanted(self, tests: list[str]) -> list[str]:
        pattern = re.compile(self._options.filter)
        return [test for test in tests if pattern.search(test) and test not in self._results]

    def _add(self, result: Result, file: Path) -> None:
        with self._lock:
            self._results[result.test] = result
            with file.open("ab") as results:
                results.write(msgspec.json.encode(result) + b"\n")
            print(report.line(result), flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="torch_suite", description=__doc__)
    add = parser.add_argument
    add("suite", nargs="*", help="distributed, rpc, or test files of torch's kind (default: what "
        "the wheel ships)")  # fmt: skip
    add("--name", default="files", help="what to call the files' results")
    add("--filter", default="", metavar="REGEX", help="only tests whose Class.name has this")
    add("--minutes", type=float, default=600.0, help="start no test after so many")
    add("--limit-s", type=float, default=150.0, help="longest run of one test")
    add("--pairs", type=int, default=1, help="run each test so often, without and with")
    add("--jobs", type=int, default=2, help="tests at a time")
    add("--start", choices=["fork", "spawn"], default="fork", help="how ranks are made")
    add("--python", type=Path, default=Path(sys.executable), help="one that has torch, numpy "
        "and expecttest; the recorder needs nothing there")  # fmt: skip
    add("--results", type=Path, default=RESULTS, help="folder for results")
    add("--again", action="store_true", help="also run what has a result")
    return parser


if __name__ == "__main__":
    sys.exit(main())
