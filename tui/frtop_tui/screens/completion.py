"""The command line, without drawing: what a line means, and how Tab completes it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from typing import Final

from textual.binding import Binding
from textual.message import Message

from frtop_tui.diagnosis.model import Frame
from frtop_tui.screens.base import DEFAULTS, FrameScreen, Preferences

MOST: Final = 200
"""Candidates to look at: a job may have ten thousand ranks."""


class CommandError(ValueError):
    """A line is not a command; the message names the wrong word and the nearest valid one."""


@dataclass(frozen=True, slots=True)
class CommandScope:
    """What commands may read: the frame on the screen, the marked ranks, the preferences."""

    frame: Frame
    marked: set[int]
    preferences: Preferences = DEFAULTS


@dataclass(frozen=True, slots=True)
class Action:
    """Runs an action of the application, as its key does."""

    name: str


Outcome = FrameScreen | Message | Action
"""What a command does: open a screen, send a message, or run an action."""


def nothing_to_name(_: CommandScope) -> Iterable[str]:
    """For a command whose argument has no list of values."""
    return ()


@dataclass(frozen=True, slots=True)
class TypedCommand:
    """One command. `run` gets the text after its name, and raises `CommandError`.

    `argument` names what may follow, in brackets if it is optional; `values` lists it. `key` does
    the same without an argument. `needs` is the action that may be unavailable.
    """

    name: str
    summary: str
    run: Callable[[str, CommandScope], Outcome]
    argument: str = ""
    values: Callable[[CommandScope], Iterable[str]] = nothing_to_name
    key: str = ""
    needs: str = ""

    @property
    def binding(self) -> Binding:
        """The key that does the same."""
        key = "question_mark" if self.key == "?" else self.key
        return Binding(key, self.name, self.name, tooltip=self.summary, id=self.name)

    @property
    def usage(self) -> str:
        return f"{self.name} {self.argument}".strip()


@dataclass(frozen=True, slots=True)
class Completion:
    """The completed line, the `candidates` for its last part, and what it means."""

    text: str
    candidates: tuple[str, ...] = ()
    hint: str = ""
    head: str = ""
    """The line before the candidates."""


def nearest(word: str, words: Collection[str]) -> str:
    """`; did you mean rank?`, or some of the valid words."""
    near = get_close_matches(word, words, 1, cutoff=0.5)
    if near:
        return f"; did you mean {near[0]}?"
    some = list(islice(words, 8))
    more = ", ..." if len(words) > len(some) else ""
    return f"; known are {', '.join(some)}{more}" if some else ""


def find(word: str, commands: Sequence[TypedCommand]) -> TypedCommand:
    """The command with this name, this key, or this unique beginning.

    Raises:
        CommandError: there is none, or there are several.
    """
    names = [command.name for command in commands]
    by_key = {command.key: command.name for command in commands if command.key.isalpha()}
    word = by_key.get(word, word)
    if word not in names:
        begins = [name for name in names if word and name.startswith(word)]
        if len(begins) > 1:
            raise CommandError(f"{word} is the beginning of {', '.join(begins)}")
        if not begins:
            raise CommandError(f"no command {word}{nearest(word, names)}")
        word = begins[0]
    return next(command for command in commands if command.name == word)


def interpret(line: str, commands: Sequence[TypedCommand], situation: CommandScope) -> Outcome:
    """What a line does.

    Raises:
        CommandError: it is not a command; the message is for the user.
    """
    word, _, rest = line.strip().partition(" ")
    command = find(word, commands)
    rest = rest.strip()
    if rest and not command.argument:
        raise CommandError(f"{command.name} takes nothing after it")
    if not rest and command.argument and not command.argument.startswith("["):
        raise CommandError(f"this needs an argument: {command.usage}")
    return command.run(rest, situation)


def complete(line: str, commands: Sequence[TypedCommand], situation: CommandScope) -> Completion:
    """The line, completed as far as all candidates agree."""
    name, space, rest = line.lstrip().partition(" ")
    if not space:
        found = [command for command in commands if command.name.startswith(name)]
        names = tuple(command.name for command in found)
        only = found[0] if len(found) == 1 else None
        exact = next((c for c in found if c.name == name), only)
        hint = f"{exact.usage}: {exact.summary}" if exact is not None else ""
        if not found:
            hint = f"no command {name}{nearest(name, [c.name for c in commands])}"
        after = " " if only is not None and only.argument else ""
        return Completion(_common(name, names) + after, names, hint)
    try:
        command = find(name, commands)
    except CommandError as error:
        return Completion(line, (), str(error))
    word = rest.lstrip()
    values = (value for value in command.values(situation) if value.startswith(word))
    candidates = tuple(islice(values, MOST))
    hint = f"{command.usage}: {command.summary}"
    head = f"{name} "
    return Completion(head + _common(word, candidates), candidates, hint, head)


def _common(typed: str, candidates: Sequence[str]) -> str:
    if not candidates:
        return typed
    least, most = min(candidates), max(candidates)
    same = next((n for n, (a, b) in enumerate(zip(least, most, strict=False)) if a != b), None)
    return least[:same]


def rank_numbers(situation: CommandScope) -> Iterable[str]:
    return map(str, sorted(situation.frame.ranks))


def rank_of(text: str, situation: CommandScope) -> int:
    """A rank of the job.

    Raises:
        CommandError: it is not one.
    """
    frame = situation.frame
    world = frame.job.world_size if frame.job is not None else 0
    if text.isdecimal() and len(text) < 10 and (int(text) in frame.ranks or int(text) < world):
        return int(text)
    most = max((world - 1, *frame.ranks))
    raise CommandError(
        f"{text} is not a rank; the job has 0 to {most}" if most >= 0 else "no ranks"
    )
