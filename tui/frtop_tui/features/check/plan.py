"""A plan: what somebody expects of a job, as TOML. `docs/features/check.md` lists the keys.

A key that is absent is not checked. A figure is one number, or a range: `[least, most]`.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from frtop_tui.errors import ConfigTrouble, UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LARGEST: Final = 1_048_576
"""Bytes of a plan."""
PAGE: Final = "docs/features/check.md lists the keys"
PlanKey = tuple[str, ...]
"""The way to a key: `("ops", "mesh_dp", "all_reduce", "count")`."""


class Figures(NamedTuple):
    """The values that a figure may have."""

    least: float
    most: float

    def has(self, value: float) -> bool:
        return self.least <= value <= self.most


Expected = Figures | str | frozenset[str] | bool


class Expectation(NamedTuple):
    """What a key should be."""

    path: PlanKey
    value: Expected

    @property
    def key(self) -> str:
        return dotted(self.path)


@dataclass(frozen=True, slots=True)
class JobPlan:
    """The expectations, in the order of the file.

    `ops` has each set of groups and kind of op with a table, even if the table is empty: these are
    no other ops.
    """

    expectations: tuple[Expectation, ...]
    ops: frozenset[tuple[str, str]] = frozenset()

    @property
    def needs_steps(self) -> bool:
        """Whether only steps decide; a group may be made during the first one."""
        return any(one.path[0] not in ("job", "settings") for one in self.expectations)


class _Wrong(Exception):
    """A value is wrong; says what the key takes."""


def _figures(value: object) -> Figures:
    ends = value if isinstance(value, list) else [value, value]
    numbers = [one for one in ends if isinstance(one, int | float) and not isinstance(one, bool)]
    if len(ends) != 2 or len(numbers) != 2 or not 0 <= numbers[0] <= numbers[1]:
        raise _Wrong("takes a number of at least 0, or a range: [least, most]")
    return Figures(numbers[0], numbers[1])


def _text(value: object) -> str:
    if isinstance(value, str) or (isinstance(value, int | float) and not isinstance(value, bool)):
        return str(value)
    raise _Wrong("takes text in quotes")


def _texts(value: object) -> frozenset[str]:
    several = value if isinstance(value, list) else [value]
    if not several or not all(isinstance(one, str) for one in several):
        raise _Wrong('takes names in quotes: ["bfloat16", "float32"]')
    return frozenset(several)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise _Wrong("takes true or false")
    return value


ANY: Final = "*"
"""A name that the job has chosen."""
_Keys = Mapping[str, Callable[[object], Expected]]
TABLES: Final[Mapping[PlanKey, _Keys]] = {
    ("job",): {"world-size": _figures},
    ("settings",): {ANY: _text},
    ("groups", ANY): {"groups": _figures, "ranks": _figures, "backend": _text},
    ("step",): {"seconds": _figures, "other-ops": _flag},
    ("ops", ANY, ANY): {"count": _figures, "bytes": _figures, "dtypes": _texts},
}
"""The keys of each table, and what reads their values."""
_ROOMS: Final = {path[0]: path for path in TABLES}


def read_plan(path: Path) -> JobPlan:
    """The plan in a file.

    Raises:
        ConfigTrouble: it cannot be read, or has a wrong key or value; names the line.
    """
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except OSError as error:
        step = "`frtop check --write FILE` writes a plan from a good run"
        raise ConfigTrouble(f"{path}: {error.strerror}", step) from None
    try:
        text = content.decode()
        values = tomllib.loads(text)
    except UnicodeDecodeError:
        raise ConfigTrouble(f"{path} is not text", "name the plan first, then files") from None
    except ValueError as error:  # also of a number with thousands of digits
        raise ConfigTrouble(f"{path}: {error}", "names and text need quotes") from None
    except RecursionError:
        raise ConfigTrouble(f"{path} is nested too deeply", PAGE) from None
    if len(content) > LARGEST:
        raise ConfigTrouble(f"{path} is larger than {LARGEST:,} bytes", "is it the right file?")

    def place(key: PlanKey) -> str:
        line = line_of(text, key)
        return f"{path} line {line}" if line else str(path)

    return _plan(values, place)


def plan_of_words(words: Iterable[str]) -> JobPlan:
    """The plan in words such as `job.world-size=8`; a value that is not TOML is text.

    Raises:
        ConfigTrouble: a key or a value is wrong.
        UsageError: a word is not `KEY=VALUE`.
    """
    return joined([_plan(_values(word), partial(_in_words, word)) for word in words])


def _in_words(word: str, _: PlanKey) -> str:
    return f"--expect {word}"


def joined(plans: Iterable[JobPlan]) -> JobPlan:
    """One plan of several: a later one replaces what an earlier one expects of a key."""
    found: dict[PlanKey, Expectation] = {}
    ops: frozenset[tuple[str, str]] = frozenset()
    for plan in plans:
        found |= {one.path: one for one in plan.expectations}
        ops |= plan.ops
    return JobPlan(tuple(found.values()), ops)


def _values(word: str) -> dict[str, Any]:
    key, equals, value = (part.strip() for part in word.partition("="))
    if not equals or not key or not value:
        raise UsageError(f"--expect {word}: no KEY=VALUE", f"job.world-size=8, say; {PAGE}")
    forms = [f"{key} = {value}", f"{key} = {quoted(value)}"]
    if key.startswith("settings.") and value[0] not in "\"'":  # 1.50 is no number there
        forms.reverse()
    for text in forms:
        try:
            return tomllib.loads(text)
        except (ValueError, RecursionError):
            continue
    raise UsageError(f"--expect {word}: {key} is not a key", f"job.world-size, say; {PAGE}")


def _plan(values: Mapping[str, Any], place: Callable[[PlanKey], str]) -> JobPlan:
    found, ops = [], set()
    for room, value in values.items():
        _require_known((), room, _ROOMS, place)
        keys = TABLES[_ROOMS[room]]
        for table, content in _tables((room,), len(_ROOMS[room]) - 1, value, place):
            if room == "ops":
                ops.add((table[1], table[2]))
            for key, written in content.items():
                if ANY not in keys:
                    _require_known(table, key, keys, place)
                path = (*table, key)
                try:
                    expected = keys.get(key, keys.get(ANY, _text))(written)
                except _Wrong as error:
                    raise ConfigTrouble(f"{place(path)}: {dotted(path)} {error}", PAGE) from None
                found.append(Expectation(path, expected))
    return JobPlan(tuple(found), frozenset(ops))


def _tables(
    path: PlanKey, names: int, value: object, place: Callable[[PlanKey], str]
) -> Iterator[tuple[PlanKey, dict[str, Any]]]:
    """The tables below a path, so many names deeper."""
    if not isinstance(value, dict):
        shape = ".".join((path[0], *["NAME"] * (len(path) + names - 1)))
        raise ConfigTrouble(f"{place(path)}: {dotted(path)} is no table", f"write [{shape}]")
    if not names:
        yield path, value
        return
    for name, below in value.items():
        yield from _tables((*path, name), names - 1, below, place)


def _require_known(
    table: PlanKey, key: str, known: Iterable[str], place: Callable[[PlanKey], str]
) -> None:
    known = list(known)
    if key in known:
        return
    near = difflib.get_close_matches(key.replace("_", "-"), known, 1, cutoff=0.5)
    step = f"did you mean {dotted((*table, near[0]))}?" if near else f"known: {', '.join(known)}"
    path = (*table, key)
    raise ConfigTrouble(f"{place(path)}: no key {dotted(path)}", step)


_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_HEADER: Final = re.compile(r"\s*\[([^\[].*)\]\s*(?:#.*)?")


def dotted(path: PlanKey) -> str:
    """The key as TOML writes it: `groups."of 2".ranks`."""
    return ".".join(part if _BARE.fullmatch(part) else quoted(part) for part in path)


def quoted(text: str) -> str:
    """Printable text as TOML writes it."""
    return '"{}"'.format(text.replace("\\", "\\\\").replace('"', '\\"'))


def line_of(text: str, path: PlanKey) -> int:
    """The line of a key or a table, or that of the innermost table around it; 0 if unknown."""
    best, depth = 0, 0
    inside: PlanKey = ()
    for number, line in enumerate(text.splitlines(), 1):
        header = _HEADER.fullmatch(line)
        left, equals, _ = line.partition("=")
        if header:
            inside = here = _path_in(f"[{header[1]}]")
        elif equals:
            here = (*inside, *_path_in(f"{left} = 0"))
        else:
            continue
        if len(here) > depth and here == path[: len(here)]:
            best, depth = number, len(here)
    return best


def _path_in(line: str) -> PlanKey:
    """The way to the only key or table in a line of TOML; empty if it is none."""
    try:
        value = tomllib.loads(line)
    except (ValueError, RecursionError):
        return ()
    path = []
    while isinstance(value, dict) and len(value) == 1:
        key, value = next(iter(value.items()))
        path.append(key)
    return tuple(path)
