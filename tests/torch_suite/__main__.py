"""PyTorch's own distributed tests, without and with the recorder: `make torch-suite`.

Results are appended to a file as they come, so that a later call goes on where this one ended.
"""

from __future__ import annotations

import argparse
import re
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
    folder: Path = options.results
    folder.mkdir(exist_ok=True, parents=True)
    broken = False
    for suite in options.suite or SUITES:
        setting = Setting(
            suite, options.python, options.start, options.limit_s, dict(options.variable)
        )
        results = _Run(setting, options, folder).run()
        if not results:
            continue
        print("\n".join(report.text(suite, results)))
        broken |= any(result.judgement in ("different", "finding") for result in results)
    return int(broken)


class _Run:
    """One suite: several pairs of servers take tests off one list until it or the time ends."""

    def __init__(self, setting: Setting, options: argparse.Namespace, folder: Path) -> None:
        self._setting, self._options, self._folder = setting, options, folder
        self._lock = threading.Lock()
        self._end = time.monotonic() + options.minutes * 60
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

    def _work(self) -> None:
        try:
            with Pairs(self._setting) as pairs:
                file = self._file(pairs)
                while (test := self._next(pairs, file)) is not None:
                    self._add(pairs.run(test, self._options.pairs), file)
        except Exception as error:  # noqa: BLE001 - raised again where all are joined
            self._errors.append(error)

    def _file(self, pairs: Pairs) -> Path:
        suite = Path(self._setting.suite).stem
        return self._folder / f"{pairs.torch}-{suite}-{self._setting.start}.jsonl"

    def _next(self, pairs: Pairs, file: Path) -> str | None:
        with self._lock:
            if self._todo is None:
                if file.exists() and not self._options.again:
                    lines = file.read_text().splitlines()
                    found = (msgspec.json.decode(line, type=Result) for line in lines)
                    self._results = {result.test: result for result in found}
                self._todo = iter(self._wanted(pairs.tests))
            if time.monotonic() > self._end or self._errors:
                return None
            return next(self._todo, None)

    def _wanted(self, tests: list[str]) -> list[str]:
        part, parts = (int(number) for number in self._options.shard.split("/"))
        pattern = re.compile(self._options.filter)
        return [
            test
            for index, test in enumerate(tests)
            if index % parts == part - 1 and pattern.search(test) and test not in self._results
        ]

    def _add(self, result: Result, file: Path) -> None:
        with self._lock:
            self._results[result.test] = result
            with file.open("ab") as results:
                results.write(msgspec.json.encode(result) + b"\n")
            print(report.line(result), flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="torch_suite", description=__doc__)
    add = parser.add_argument
    add("suite", nargs="*", help="distributed, rpc, or files of torch's test/ folder (default: "
        "what the wheel ships)")  # fmt: skip
    add("--filter", default="", metavar="REGEX", help="only tests whose Class.name has this")
    add("--shard", default="1/1", metavar="N/OF", help="only every OF-th test, from the N-th")
    add("--minutes", type=float, default=600.0, help="start no test after so many")
    add("--limit-s", type=float, default=150.0, help="longest run of one test")
    add("--pairs", type=int, default=1, help="run each test so often, without and with")
    add("--jobs", type=int, default=2, help="tests at a time")
    add("--start", choices=["fork", "spawn"], default="fork", help="how ranks are made")
    add("--python", type=Path, default=Path(sys.executable), help="one that has torch, numpy "
        "and expecttest; the recorder needs nothing there")  # fmt: skip
    add("--results", type=Path, default=RESULTS, help="folder for results")
    add("--again", action="store_true", help="also run what has a result")
    add("--variable", action="append", default=[], metavar="NAME=VALUE", type=_variable,
        help="set in the tests' environment")  # fmt: skip
    return parser


def _variable(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value


if __name__ == "__main__":
    sys.exit(main())
