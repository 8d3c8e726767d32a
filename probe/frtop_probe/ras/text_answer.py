"""Parses what RAS answers as text (NCCL before 2.28.7). Pure; nothing of it is trusted.

The text is written for people and changes with releases. What is taken out of it: version, times,
the summary's rows, problems with their lines, and the ranks that these lines name one by one. It
lists no counts of ranks that are alike, so who launched less is known only where it says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from frtop_probe import wire
from frtop_probe.ras.json_answer import AnswerError, printable

MAX_LINES: Final = 20_000
MAX_LINE: Final = 1024
MAX_ROWS: Final = 4096
MAX_PROBLEMS: Final = 1024
MAX_PROBLEM_LINES: Final = 256
_VERSION: Final = re.compile(r"NCCL version (\d{1,2}(?:\.\d{1,3}){1,3})")
_TIME: Final = re.compile(r"Communicators\.\.\. \((\d{1,6}\.\d{1,6})s\)")
_ROW: Final = re.compile(
    r"\s*(\d{1,9})\s+(\d{1,9})\s+(\d{1,9})\s+(\d{1,9}(?:-\d{1,9})?)\s+(\d{1,9})\s+(\d{1,9})"
    r"\s+([A-Z]+)\s+([A-Z,]+)\s*"
)
_OF_COMMUNICATOR: Final = re.compile(r"#\d+-\d+ \(([0-9a-f]{1,16})\) ([A-Z]+)")
_OF_JOB: Final = re.compile(r"(INCOMPLETE|DEAD|TIMEOUT)")
_TIMEOUTS: Final = re.compile(r"\s*Encountered (\d{1,9}) communication timeout")
_KIND: Final = re.compile(r"\s*Communicator ranks have different (\w{1,32}) operation counts")
_GROUP_COUNT: Final = re.compile(r"\s*\d+ ranks have launched up to operation (\d{1,19})")
_GROUP_NONE: Final = re.compile(r"\s*\d+ ranks have not launched any operations")
_GROUP_STATUS: Final = re.compile(r"\s*\d+ ranks have status ([A-Z]+)")
_RANK: Final = re.compile(r"\s*Rank (\d{1,9})(?: (.{1,80}?))? -- (.*)")
_LAUNCHED: Final = re.compile(r"has launched up to operation (\d{1,19})")
_STATUS: Final = re.compile(r"has status ([A-Z]+)")
_PROCESS: Final = re.compile(r"GPU .{1,40} managed by process (\d{1,9}) on node ([0-9a-fA-F.:%]+)")
_SECTIONS: Final = {"Errors": "errors", "Warnings": "warnings"}


def parse_text(data: bytes) -> wire.RasReport:
    """Parses an answer.

    Raises:
        AnswerError: this is no such answer, or not all of it.
    """
    text = data.decode("utf-8", "replace")
    lines = [printable(line.rstrip("\r")[:MAX_LINE]) for line in text.split("\n")]
    if len(lines) > MAX_LINES:
        raise AnswerError(f"{len(lines):,} lines")
    version = next((found[1] for line in lines if (found := _VERSION.match(line))), "")
    if not version:
        raise AnswerError("no line with NCCL's version")
    taken = next((found[1] for line in lines if (found := _TIME.search(line))), None)
    if taken is None or "Warnings" not in lines:
        raise AnswerError("it ends before its last section", cut=True)
    rows = tuple(_row(row) for line in lines if (row := _ROW.fullmatch(line)))
    problems = tuple(_problems(lines))
    timeouts = (_TIMEOUTS.match(line) for one in problems for line in one.lines)
    notes = ["text of an older NCCL: it lists few ranks, by their numbers in the communicator"]
    if len(rows) > MAX_ROWS or len(problems) > MAX_PROBLEMS:
        notes.append("the answer is too large: its end is left out")
    return wire.RasReport(
        "text",
        nccl_version=version,
        collection_s=float(taken),
        timeouts=next((int(found[1]) for found in timeouts if found), 0),
        rows=rows[:MAX_ROWS],
        problems=problems[:MAX_PROBLEMS],
        notes=tuple(notes),
    )


def _row(found: re.Match[str]) -> wire.RasSummaryRow:
    number, communicators, nodes, per_node, size, ranks, status, errors = found.groups()
    return wire.RasSummaryRow(
        int(number),
        int(communicators),
        int(nodes),
        per_node,
        int(size),
        int(ranks),
        status,
        errors,
    )


def _problems(lines: list[str]) -> Iterator[wire.RasProblem]:
    section = kind = communicator = ""
    body: list[str] = []
    for line in [*lines, ""]:
        if kind and not line.strip():
            shown = tuple(body[:MAX_PROBLEM_LINES])
            yield wire.RasProblem(section, kind, communicator, shown, tuple(_named(shown)))
            kind = ""
        elif kind:
            body.append(line.strip())
        elif line in _SECTIONS:
            section = _SECTIONS[line]
        elif section and (found := _OF_COMMUNICATOR.fullmatch(line)):
            communicator, kind, body = found[1], found[2], []
        elif section and (found := _OF_JOB.fullmatch(line)):
            communicator, kind, body = "", found[1], []


def _named(lines: tuple[str, ...]) -> Iterator[wire.RasNamedRank]:
    """The ranks that the lines name; a rank without a word of its own is like those before it."""
    kind = status = ""
    launched: int | None = None
    for line in lines:
        if found := _KIND.match(line):
            kind, status, launched = found[1] if found[1] != "collective" else "", "", None
        elif found := _GROUP_COUNT.match(line):
            launched, status = int(found[1]), ""
        elif _GROUP_NONE.match(line):
            launched, status = 0, ""
        elif found := _GROUP_STATUS.match(line):
            launched, status = None, found[1]
        elif found := _RANK.match(line):
            yield _rank(found, kind, launched, status)


def _rank(found: re.Match[str], kind: str, launched: int | None, status: str) -> wire.RasNamedRank:
    own, process = found[2] or "", _PROCESS.match(found[3])
    if own:
        launched, status = None, ""
        if count := _LAUNCHED.fullmatch(own):
            launched = int(count[1])
        elif own == "has not launched any operations":
            launched = 0
        elif said := _STATUS.fullmatch(own):
            status = said[1]
    host, pid = (process[2], int(process[1])) if process else ("", 0)
    of_kind = kind if launched is not None else ""
    return wire.RasNamedRank(int(found[1]), host, pid, of_kind, launched, status)
