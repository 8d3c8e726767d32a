"""The configuration file: found, read and checked. Every error names file, line and key."""

from __future__ import annotations

import difflib
import os
import re
import shlex
import stat
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from frtop_tui.appearance import THEMES
from frtop_tui.errors import ConfigTrouble
from frtop_tui.registry import contributions

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

VARIABLE: Final = "FRTOP_CONFIG"
LARGEST: Final = 65_536
"""Bytes of the file."""
Names = str | list[str]
_TYPES: Final = {
    "bool": "true or false",
    "int": "a number",
    "float": "a number",
    "str": "text in quotes",
    "array": "a list",
    "object": "a table",
}
"""Types of TOML in msgspec's words and ours."""


class CoreSettings(Struct, frozen=True, rename="kebab", forbid_unknown_fields=True):
    """Keys of the file that belong to no feature; None where the file says nothing."""

    connect: Names | None = None
    ssh: Names | None = None
    via: str | None = None
    through: str | None = None
    python: str | None = None
    ssh_program: str | None = None
    read_only: bool | None = None
    theme: Literal["auto", "dark", "contrast", "ansi", "plain"] | None = None
    window: Annotated[float, Meta(ge=0, le=86_400)] | None = None
    folder: str | None = None
    auto_capture: bool | None = None


TABLES: Final[dict[str, type[Struct]]] = {
    name: kind for tables in contributions("settings", "TABLES") for name, kind in tables.items()
}
"""By name the tables of features, such as `[watch]`."""
_FILE: Final[type[CoreSettings]] = msgspec.defstruct(
    "ConfigFile",
    [(name, kind, kind()) for name, kind in TABLES.items()],
    bases=(CoreSettings,),
    frozen=True,
    rename="kebab",
    forbid_unknown_fields=True,
)  # type: ignore[assignment]
"""All keys of the file."""


def config_path(environment: Mapping[str, str]) -> Path | None:
    """Where the file is: `FRTOP_CONFIG`, or below `XDG_CONFIG_HOME`; None without a home."""
    named = environment.get(VARIABLE)
    if named:
        return Path(named).expanduser()
    folder = environment.get("XDG_CONFIG_HOME")
    if not folder or not folder.startswith("/"):  # relative ones are to be ignored
        home = environment.get("HOME")
        if not home:
            return None
        folder = f"{home}/.config"
    return Path(folder) / "frtop" / "config.toml"


def read_config(path: Path, *, required: bool) -> tuple[CoreSettings, str] | None:
    """The file and its text; None if there is no file and it is not `required`.

    Raises:
        ConfigTrouble: it cannot be read, others may write it, or it has a wrong setting.
    """
    try:
        text = _text_of(path)
    except FileNotFoundError:
        if not required:
            return None
        raise ConfigTrouble(f"{path}: there is no such file", f"unset {VARIABLE}") from None
    except OSError as error:
        raise ConfigTrouble(f"{path}: {error.strerror}", f"{VARIABLE} names another") from None
    except UnicodeDecodeError:
        raise ConfigTrouble(f"{path} is not UTF-8", "write it again as text") from None
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigTrouble(
            f"{path}: {error}", "docs/configuration.md has an example; strings need quotes"
        ) from None
    _require_known(path, text, values)
    try:
        return msgspec.convert(values, _FILE), text
    except msgspec.ValidationError as error:
        raise _wrong_value(path, text, str(error)) from None


def _text_of(path: Path) -> str:
    """Its text, if only its owner and root may write it: it can name commands."""
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        if stat.S_ISREG(status.st_mode):
            if status.st_uid not in (0, os.geteuid()):
                raise ConfigTrouble(f"{path} is another user's", f"{VARIABLE} names one of yours")
            if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise ConfigTrouble(
                    f"others may write {path}", f"chmod go-w {shlex.quote(str(path))}"
                )
        text = file.read(LARGEST + 1)
    if len(text) > LARGEST:
        raise ConfigTrouble(f"{path} is larger than {LARGEST} bytes", "is it the right file?")
    return text.decode()


def line_of(text: str, key: str) -> int:
    """The line of a key such as `theme` or `watch.every`; 0 if it is not found."""
    table, _, name = key.rpartition(".")
    inside = ""
    pattern = re.compile(rf"""\s*["']?{re.escape(name)}["']?\s*=""")
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[\s*([^\]]+?)\s*\]", line):
            inside = header[1]
            if key == inside:
                return number
        elif inside == table and pattern.match(line):
            return number
    return 0


def place(path: Path, text: str, key: str) -> str:
    """`config.toml line 3`."""
    line = line_of(text, key)
    return f"{path} line {line}" if line else str(path)


def keys_of(kind: type[Struct]) -> tuple[str, ...]:
    """The keys of a table."""
    return kind.__struct_encode_fields__


def _require_known(path: Path, text: str, values: Mapping[str, object]) -> None:
    tables: list[tuple[str, Iterable[str], tuple[str, ...]]] = [("", values, keys_of(_FILE))]
    for name, kind in TABLES.items():
        table = values.get(name)
        if isinstance(table, dict):
            tables.append((f"{name}.", table, keys_of(kind)))
    for prefix, present, known in tables:
        for key in present:
            if key not in known:
                near = difflib.get_close_matches(key.replace("_", "-"), known, 1, cutoff=0.5)
                step = f"did you mean {prefix}{near[0]}?" if near else f"known: {', '.join(known)}"
                raise ConfigTrouble(
                    f"{place(path, text, prefix + key)}: no setting {prefix}{key}", step
                )


def _wrong_value(path: Path, text: str, problem: str) -> ConfigTrouble:
    """Words msgspec's error: `Expected `bool`, got `str` - at `$.watch.shell``."""
    what, _, where = problem.partition(" - at ")
    key = where.strip("`").removeprefix("$.").partition("[")[0]
    if key == "theme":
        wrong = re.search(r"'([^']*)'", what)
        near = difflib.get_close_matches(wrong[1], THEMES, 1) if wrong else []
        step = f"did you mean {near[0]}?" if near else f"one of {', '.join(THEMES)}"
        what = f"there is no {wrong[1]}" if wrong else _expected(what)
        return ConfigTrouble(f"{place(path, text, key)}: {key}: {what}", step)
    return ConfigTrouble(
        f"{place(path, text, key)}: {key} {_expected(what)}",
        "docs/configuration.md lists what each setting takes",
    )


def _expected(what: str) -> str:
    """`takes a number, not text`, of msgspec's ``Expected `float | null`, got `str` ``."""
    found = re.fullmatch(r"Expected `([^`]*)`([^,]*)(?:, got `([^`]*)`)?", what)
    if found is None:
        return f"is wrong: {what.replace('`', '')}"
    kinds = [_TYPES.get(one, one) for one in found[1].split(" | ") if one != "null"]
    bound = found[2].replace(">=", "of at least").replace("<=", "of at most").replace(".0", "")
    got = f", not {_TYPES.get(found[3], found[3])}" if found[3] else ""
    return f"takes {' or '.join(kinds)}{bound}{got}"
