"""The table of settings, and the source of each value.

The command line has priority, then the environment, then the file, then the default.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import shlex
import stat
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from frtop_tui.appearance import THEMES
from frtop_tui.cli.verbs.parts import Setting
from frtop_tui.errors import ConfigTrouble
from frtop_tui.job.naming import printable
from frtop_tui.registry import contributions

OPTION: Final = "command line"
DEFAULT: Final = "default"


def _words(text: str) -> list[str]:
    return text.split()


def _theme(text: str) -> str:
    if text not in THEMES:
        raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(THEMES)}")
    return text


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds") from None


SETTINGS: Final[tuple[Setting, ...]] = (
    Setting("connect", "connect", None, "FRTOP_CONNECT", _words,
            lambda value: [value] if isinstance(value, str) else value),
    Setting("ssh", "ssh", [], of_file=lambda value: [value] if isinstance(value, str) else value),
    Setting("via", "via", "", "FRTOP_VIA"),
    Setting("through", "through", "", "FRTOP_THROUGH"),
    Setting("python", "python", ""),
    Setting("ssh-program", "ssh_program", "ssh", "FRTOP_SSH"),
    Setting("read-only", "read_only", False),
    Setting("theme", "theme", "auto", "FRTOP_THEME", _theme),
    Setting("window", "window", 60.0, "FRTOP_WINDOW", _seconds),
    Setting("folder", "folder", "", "FRTOP_FOLDER"),
    Setting("auto-capture", "auto_capture", True),
    *chain.from_iterable(contributions("settings", "SETTINGS")),
)  # fmt: skip
HOSTS: Final = ("connect", "ssh")
EVERYWHERE: Final = ("theme", "window", "folder", "auto-capture")
"""Settings that verbs read even without an option for them."""


@dataclass(frozen=True, slots=True)
class SettingInUse:
    """A value and its source."""

    value: Any
    origin: str


class Settings:
    """The values in environment and file."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.path = config_path(environment)
        found = None
        if self.path is not None:
            found = read_config(self.path, required=bool(environment.get(VARIABLE)))
        self.found = found is not None
        self._file: CoreSettings | None = found[0] if found is not None else None
        self._text = found[1] if found is not None else ""

    def value(self, setting: Setting) -> SettingInUse:
        """The value without the command line.

        Raises:
            ConfigTrouble: the variable, or the file, has one that cannot be used.
        """
        text = self._environment.get(setting.variable, "") if setting.variable else ""
        if text:
            try:
                return SettingInUse(setting.parse(text), setting.variable)
            except argparse.ArgumentTypeError as error:
                raise ConfigTrouble(f"{setting.variable}: {error}", "unset or mend it") from None
        if setting.key == "theme" and self._environment.get("NO_COLOR"):
            return SettingInUse("plain", "NO_COLOR")
        table, _, name = setting.key.rpartition(".")
        written = getattr(
            getattr(self._file, table, None) if table else self._file, _attribute(name), None
        )
        if written is None:
            return SettingInUse(setting.default, DEFAULT)
        assert self.path is not None
        where = place(self.path, self._text, setting.key)
        try:
            return SettingInUse(setting.of_file(written), where)
        except argparse.ArgumentTypeError as error:
            raise ConfigTrouble(
                f"{where}: {setting.key}: {error}", "docs/configuration.md lists the settings"
            ) from None


def _attribute(name: str) -> str:
    return name.replace("-", "_")


def in_use(options: argparse.Namespace, settings: Settings) -> dict[str, SettingInUse]:
    """All settings by key, the command line first.

    Hosts, files, a process or a user on the command line replace hosts from elsewhere.
    """
    found: dict[str, SettingInUse] = {}
    named = any(getattr(options, dest, None) for dest in (*HOSTS, "paths", "pid", "user"))
    named = named or not hasattr(options, "connect")  # `frtop doctor` means this host
    for setting in SETTINGS:
        given = getattr(options, setting.dest, None)
        if given is not None:
            found[setting.key] = SettingInUse(given, OPTION)
        elif setting.key in HOSTS and named:
            found[setting.key] = SettingInUse(setting.default, DEFAULT)
        else:
            found[setting.key] = settings.value(setting)
    _settle(found)
    return found


def _settle(found: dict[str, SettingInUse]) -> None:
    """Leaves out ways to hosts that no host needs: they would be refused as misplaced.

    If a variable and the file both name hosts, the variable wins.
    """
    connect, ssh = found["connect"], found["ssh"]
    if connect.value and ssh.value and OPTION not in (connect.origin, ssh.origin):
        nearer = "connect" if connect.origin == "FRTOP_CONNECT" else "ssh"
        other = "connect" if nearer == "ssh" else "ssh"
        found[other] = SettingInUse(None if other == "connect" else [], DEFAULT)
    by_shell = bool(found["ssh"].value)
    for key, needed in (
        ("via", by_shell),
        ("through", by_shell),
        ("python", by_shell),
    ):
        if not needed and found[key].origin != OPTION:
            found[key] = SettingInUse("", DEFAULT)


def fill(options: argparse.Namespace, environment: Mapping[str, str]) -> None:
    """Fills in what the command line leaves open.

    Raises:
        ConfigTrouble: a setting cannot be used.
    """
    settings = Settings(environment)
    found = in_use(options, settings)
    for setting in SETTINGS:
        wanted = hasattr(options, setting.dest) or setting.key in EVERYWHERE
        if wanted and getattr(options, setting.dest, None) is None:
            setattr(options, setting.dest, found[setting.key].value)
    options.in_use, options.config = found, settings
    if found["ssh-program"].origin not in ("FRTOP_SSH", DEFAULT):
        words = shlex.join(shlex.split(found["ssh-program"].value))
        os.environ["FRTOP_SSH"] = words


def folder_of(options: argparse.Namespace) -> Path | None:
    """The folder for files without a path; None: the current one."""
    return Path(options.folder).expanduser() if getattr(options, "folder", "") else None


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
"""The tables of features by name, such as `[watch]`."""
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
    if not folder or not folder.startswith("/"):  # the standard says to ignore relative ones
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
    if sys.version_info >= (3, 11):  # only where there is a file
        import tomllib  # noqa: PLC0415
    else:
        import tomli as tomllib  # noqa: PLC0415
    try:
        values = tomllib.loads(text)
    except ValueError as error:  # also of a number with thousands of digits
        raise ConfigTrouble(
            f"{path}: {error}", "docs/configuration.md has an example; strings need quotes"
        ) from None
    except RecursionError:
        raise ConfigTrouble(f"{path} is nested too deeply", "is it the right file?") from None
    _require_known(path, text, values)
    try:
        return msgspec.convert(values, _FILE), text
    except msgspec.ValidationError as error:
        raise _wrong_value(path, text, str(error)) from None


def _text_of(path: Path) -> str:
    """Its text. Only its owner and root may be able to write it, as it can name commands."""
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


def run(options: argparse.Namespace) -> int:
    """Prints the table; returns 0."""
    settings, found = options.config, options.in_use
    if options.json:
        print(json.dumps(document(found, str(settings.path or ""), there=settings.found), indent=2))
        return 0
    there = "" if settings.found else " (not there)"
    print(f"file  {settings.path}{there}" if settings.path else "file  none: there is no home")
    rows = [
        (setting.key, value_text(found[setting.key].value), found[setting.key].origin)
        for setting in SETTINGS
    ]
    key_width = max(len(key) for key, _, _ in rows)
    value_width = min(40, max(len(value) for _, value, _ in rows))
    for key, value, origin in rows:
        print(printable(f"{key:{key_width}}  {value:{value_width}}  {origin}"))
    return 0


def document(found: dict[str, SettingInUse], path: str, *, there: bool) -> dict[str, Any]:
    """The same as JSON."""
    return {
        "schema": "frtop-config-1",
        "file": path,
        "there": there,
        "settings": {key: {"value": one.value, "from": one.origin} for key, one in found.items()},
    }


def value_text(value: object) -> str:
    """The value as a person types it; `-` for nothing."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return " ".join(map(str, value)) or "-"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value) if value not in (None, "") else "-"
