"""What the parsers of all verbs share."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from frtop_tui.errors import UsageError

if TYPE_CHECKING:
    from _typeshed import SupportsWrite


class Parser(argparse.ArgumentParser):
    """Raises `UsageError` with a next step, like every other error."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.color = False  # of Python 3.14: nothing is printed that controls a terminal

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Names unknown options without their values, which may be secrets."""
        options, rest = self.parse_known_args(args, namespace)
        if rest:
            unknown = [word.partition("=")[0] for word in rest if word.startswith("-")] or rest
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return options

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


class Verb(NamedTuple):
    """A verb, or some that are listed together.

    `place` orders `frtop --help`: 10 show a job or write it, 20 run without a person, 30 ask ranks,
    40 are about frtop itself, 50 start something.
    """

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
