"""The table of settings, and where each value comes from.

The command line comes first, then the environment, then the file, then the default.
"""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final

from frtop_tui.appearance import THEMES
from frtop_tui.cli.config_file import VARIABLE, CoreSettings, config_path, place, read_config
from frtop_tui.cli.verbs.parts import Setting
from frtop_tui.errors import ConfigTrouble
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
"""Settings that verbs read which have no option for them."""


@dataclass(frozen=True, slots=True)
class SettingInUse:
    """A value and where it comes from."""

    value: Any
    origin: str


class Settings:
    """The values of environment and file; `given` puts the command line before them."""

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
    """All settings that these options have or may take, by key, the command line first.

    Hosts of the command line are meant instead of all others, and so are files, a process and a
    user.
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
    """Ways to hosts that no host needs are left out: they would be refused as misplaced.

    The hosts that a nearer place names are meant, not both: those of a variable, not of the file.
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
    """The folder of files without a path; None: the current folder."""
    return Path(options.folder).expanduser() if getattr(options, "folder", "") else None
