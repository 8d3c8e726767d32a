"""What the parsers of all verbs share."""

from __future__ import annotations

import argparse
import difflib
import importlib
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from frtop_tui.cli.host_options import CONNECTION
from frtop_tui.errors import UsageError

if TYPE_CHECKING:
    from _typeshed import SupportsWrite


class Help(argparse.HelpFormatter):
    """Fills paragraphs, and keeps lines that begin with two spaces: rows of a table."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines: list[str] = []
        for as_written, group in groupby(text.splitlines(), lambda row: row[:2] in ("", "  ")):
            rows = list(group)
            if not as_written:
                rows = self._split_lines(" ".join(rows), width)
            lines += [indent + row for row in rows]
        return "\n".join(lines)

    def _split_lines(self, text: str, width: int) -> list[str]:
        """Unlike argparse's own method, does not break `--read-only` at its hyphen."""
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)

    def _format_args(self, action: argparse.Action, default_metavar: str) -> str:
        """`HOST ...`, where argparse says it twice; `-- COMMAND ...`, where it says only dots."""
        if action.nargs == argparse.ONE_OR_MORE:
            return f"{action.metavar} ..."
        if action.nargs == argparse.REMAINDER:
            return str(action.metavar)
        return super()._format_args(action, default_metavar)


class Parser(argparse.ArgumentParser):
    """Raises `UsageError` with a next step, like every other error."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # No abbreviations: `--ranks` would mean `--ranks-from`.
        super().__init__(*args, **{"formatter_class": Help, "allow_abbrev": False, **kwargs})
        self.color = False  # of Python 3.14: nothing is printed that controls a terminal

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Names unknown options without their values, which may be secrets."""
        options, rest = super().parse_known_args(args, namespace)
        if rest:
            unknown = [word.partition("=")[0] for word in rest if word.startswith("-")]
            first = (unknown or rest)[0]
            near = difflib.get_close_matches(first, self._option_string_actions, n=1, cutoff=0.75)
            meant = f"did you mean {near[0]}? " if near else ""
            if first in CONNECTION:
                meant = f"`{self.prog}` does not take {first}: leave it out; "
            raise UsageError(
                f"unrecognized arguments: {' '.join(unknown or rest)}",
                f"{meant}`{self.prog} --help` lists the options",
            )
        return options, rest

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, f"`{self.prog} --help` lists the options")

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        """Unlike argparse's own method, fails if help cannot be written."""
        print(message, end="", file=file)


class Version(argparse.Action):
    """Reads the version only on request: that takes longer than all other parsing."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str) -> None:  # noqa: A002
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from importlib import metadata  # noqa: PLC0415

        print(f"frtop {metadata.version('frtop')}")
        parser.exit()


Verbs = argparse._SubParsersAction  # noqa: SLF001 - argparse has no public name for it


TITLES: Final = {
    1: "look",
    2: "record and keep",
    3: "measure",
    4: "change ranks",
    5: "serve",
    6: "set up",
}
"""The titles of `frtop --help`, by the tens of `Verb.place`."""


class Verb(NamedTuple):
    """A verb. `place` orders `frtop --help`, where verbs of the same tens are under one title."""

    place: int
    add: Callable[[Verbs[Parser]], None]


class BesideRun(NamedTuple):
    """What a feature can start beside the job of `frtop run`.

    `add` adds its options; `start` starts it, and returns what to tell the user, "" for nothing.
    """

    add: Callable[[Parser], None]
    start: Callable[[argparse.Namespace], str]


def command(name: str, function: str = "run") -> Callable[[argparse.Namespace], int]:
    """A function of a module such as `cli.stacks`, which is imported when it is called."""

    def run(options: argparse.Namespace) -> int:
        module = importlib.import_module(f"frtop_tui.{name}")
        status: int = getattr(module, function)(options)
        return status

    return run


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting. `dest` is the attribute of the options that has it.

    `parse` reads the text of a variable, and raises `argparse.ArgumentTypeError`.
    """

    key: str
    dest: str
    default: Any
    variable: str = ""
    parse: Callable[[str], Any] = str
    of_file: Callable[[Any], Any] = lambda value: value
