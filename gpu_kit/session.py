"""Runs the checks one after the other, each under its deadline, and writes after each of them."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gpu_kit import facts, findings, needs, processes
from gpu_kit.checks.context import PATIENCE
from gpu_kit.facts import Fact
from gpu_kit.findings import Finding, Outcome
from gpu_kit.points import CHECKS, Check
from gpu_kit.ranks import BACKEND

RESERVE_S: Final = 12.0
"""Time kept for the end: to kill what is left, and to write."""
SHORTEST_S: Final = 15.0
"""A check with less time is not started."""
LOG_BYTES: Final = 4000


@dataclass(slots=True)
class Session:
    """One run of the kit. It must be over by `until`, in s of the monotonic clock."""

    root: Path
    out: Path
    dry: bool
    until: float
    about: dict[str, Any] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    logs: list[str] = field(default_factory=list)
    work: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="gk-")))

    def run(self, checks: Sequence[Check], report: Callable[[str], None]) -> None:
        """Runs the checks; whatever happens, it kills what is left of them and writes the results.

        An exception here is a mistake in the kit.
        """
        processes.adopt_orphans()
        self.out.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        self.about["date"] = time.strftime("%Y-%m-%d", time.gmtime())
        try:
            problem = self._prepare()
            self.about["frtop"] = problem or "runs in an environment of its own"
            for check in checks:
                started = time.monotonic()
                new = self._one(check)
                self.findings += new
                self.about |= _versions(new)
                self.about[f"{check.name} s"] = round(time.monotonic() - started, 1)
                self.about["seconds"] = round(time.monotonic() - began, 1)
                self.write()
                for one in new:
                    word = findings.word(one, dry=self.dry)
                    report(f"{word:16} {one.point}: {findings.flat(one.text)}")
        finally:
            left = processes.end_all()
            self.about["left behind"] = [f"{one.pid} {one.name} {one.state}" for one in left]
            known = {finding.point for finding in self.findings}
            for check in checks:
                open_points = [point for point in check.points if point not in known]
                self.findings += findings.missing([], open_points, "the kit ended before it")
            self.write()
            shutil.rmtree(self.work, ignore_errors=True)

    def write(self) -> None:
        """Writes each file of results in one step."""
        document = findings.document(self.findings, self.about, dry=self.dry)
        _write(self.out / "results.json", json.dumps(document, indent=1, default=str))
        _write(self.out / "report.txt", findings.text(self.findings, self.about, dry=self.dry))
        _write(self.out / "logs.txt", "\n".join(self.logs))

    def _prepare(self) -> str:
        """Sets the environment of all checks; returns why frtop itself cannot run, or ""."""
        own = needs.provide(self.root, self.work / "frtop")
        paths = [self.root, *(self.root / name for name in ("probe", "tui", "tests"))]
        paths += [own.modules] if own.modules is not None else []
        old = os.environ.get("PYTHONPATH", "")
        for name in [name for name in os.environ if name.startswith(("FRTOP_", "ZOO_"))]:
            del os.environ[name]
        os.environ.update({
            "PYTHONPATH": os.pathsep.join([*map(str, paths), *filter(None, [old])]),
            needs.VARIABLE: own.python,
            "FRTOP_KEY_FILE": str(self.work / "key"),
            "FRTOP_BIND": "127.0.0.1",
            "FRTOP_BOXES": "0",
            BACKEND: "gloo" if self.dry else "nccl",
        })  # fmt: skip
        return own.problem

    def _one(self, check: Check) -> list[Finding]:
        """Runs one check in a process of its own; returns a finding for each of its points."""
        if self.dry and check.needs_gpu:
            return findings.missing([], check.points, "it needs a GPU")
        deadline_s = check.deadline_s * (PATIENCE if self.dry else 1)
        seconds = min(deadline_s, self.until - RESERVE_S - time.monotonic())
        if seconds < SHORTEST_S:
            return findings.missing([], check.points, "no time was left")
        folder = self.work / check.name.replace(" ", "-")
        folder.mkdir()
        file, log = folder / "facts", folder / "log"
        module = f"gpu_kit.checks.{check.module or check.name}"
        command = [
            sys.executable, "-m", "gpu_kit", "--one", module, str(folder), f"{seconds - 3:.1f}",
            *(["--dry"] if self.dry else []), *check.arguments,
        ]  # fmt: skip
        process = processes.start(command, {**os.environ, facts.VARIABLE: str(file)}, log)
        why = "the kit was stopped"
        try:
            status = processes.wait(process, seconds)
            why = _why(status)
        except BaseException:  # it has to end: what was seen so far counts
            self.findings += _judged(check, module, facts.read(file), why, failed=False)
            raise
        left = processes.end_all()
        if left:
            why += f", and {len(left)} of its processes cannot be killed"
        self.logs.append(_log_of(check, folder, log))
        return _judged(check, module, facts.read(file), why, failed=status != 0)


def _why(status: int | None) -> str:
    """Returns why a check has no finding about a point."""
    if status is None:
        return "its deadline passed"
    return f"the check ended with status {status}" if status else "not reached"


def _judged(
    check: Check, module: str, found: list[Fact], why: str, *, failed: bool
) -> list[Finding]:
    """Returns a finding for each point of a check; those without facts get `why`."""
    judge = importlib.import_module(module).judge
    try:
        new: list[Finding] = judge(found, check.arguments)
    except Exception as error:  # noqa: BLE001 - facts that were cut off may be anything
        why, failed = f"its facts make no sense: {type(error).__name__}: {error}", True
        new = []
    outcome: Outcome = "failed" if failed else "not run"
    return new + [
        Finding(one.point, outcome, why) for one in findings.missing(new, check.points, why)
    ]


def chosen(only: Sequence[str]) -> list[Check]:
    """Returns the checks with these names; without names, all checks.

    Raises:
        LookupError: there is no such check.
    """
    known = {check.name: check for check in CHECKS}
    if unknown := [name for name in only if name not in known]:
        raise LookupError(f"no check {unknown[0]!r}; there are: {', '.join(known)}")
    return [check for check in CHECKS if not only or check.name in only]


def _versions(found: Sequence[Finding]) -> dict[str, Any]:
    """Returns the versions of torch and NCCL, once a check has seen them."""
    for one in found:
        if one.point == "functions":
            return {"torch": one.figures["version"], "nccl": one.figures["nccl"]}
    return {}


def _log_of(check: Check, folder: Path, log: Path) -> str:
    parts = [f"=== {check.name}"]
    for path in [log, *sorted(folder.rglob("*.log"))]:
        with suppress(OSError):
            end = path.read_bytes()[-LOG_BYTES:].decode(errors="replace").strip()
            if end:
                parts.append(f"--- {path.relative_to(folder)}\n{end}")
    return "\n".join(parts)


def _write(path: Path, content: str) -> None:
    part = path.with_name(f".{path.name}")
    part.write_text(content)
    part.replace(path)
