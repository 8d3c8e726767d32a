"""Replaces names and data in a capture to be given away; the facts stay.

Pure. Every field with a text has a rule (`redaction_rules`). Pseudonyms are stable within one
capture, so a reader, and the diagnosis itself, still sees which rank is on which host and which
ranks are in the same file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, Final, TypeVar, get_type_hints

from msgspec import Struct, structs

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame
from frtop_tui.files.pseudonyms import Pseudonyms
from frtop_tui.files.redaction_rules import OF_ANY, RULES
from frtop_tui.job.model import CoverageNote, Rank

Value = TypeVar("Value")
REDACTED: Final = "redacted: names of hosts, users and paths, values and data are replaced"
_PLAIN_VALUE: Final = re.compile(
    r"-?\d{1,12}(\.\d{1,6})?|\d{1,4}(,\d{1,4})*"
    r"|true|false|on|off|yes|no|none|null|detail|info|warn|warning|error|debug|trace|version|",
    re.IGNORECASE,
)
"""Values of the environment that cannot contain a name."""
_NUMBER: Final = re.compile(r"-?\d{1,9}|None|True|False")
_GROUP_NAME: Final = re.compile(r"'[\w:.-]{1,64}'|\"[\w:.-]{1,64}\"")
_WORK: Final = re.compile(r"^\[?<[\w.]*\bWork\b")
_ARGUMENTS: Final = frozenset(
    {"src", "dst", "group_src", "group_dst", "tag", "use_local_synchronization", "group"}
)
"""Variables of torch's own functions that the diagnosis reads if only a stack shows the call."""
_LOG_LINE: Final = re.compile(r"(?!ranks? )[^:]{1,255}:(\d{1,12}): ")
_DATA: Final = ("minimum", "maximum", "mean", "norm")
_MIN_NOTED: Final = 4
"""Shortest word to replace in sentences: shorter ones are parts of many words."""


class Redaction:
    """Redacts what belongs together: a name gets the same pseudonym everywhere in it."""

    def __init__(self, frame: Frame, author: str = "") -> None:
        """Notes the names that sentences may repeat; `author` is the capturing `user@host`."""
        self._names = Pseudonyms()
        self._shared: dict[int, tuple[Struct, Struct]] = {}
        self._note_names(frame, author)

    def frame(self, frame: Frame) -> Frame:
        """The frame with the same verdicts, ranks and numbers; without a trace."""
        made: Frame = self._of(structs.replace(frame, trace=None, writings=()), "text")
        return made

    def texts(self, texts: Iterable[str]) -> tuple[str, ...]:
        """Sentences about the frame."""
        return tuple(map(self._names.text, texts))

    def author(self, by: str) -> str:
        """`user-1@host-3`."""
        user, at, host = by.partition("@")
        return f"{self._names.name('user', user)}{at}{self._names.endpoint(host)}"

    def values(self, values: Mapping[int, Value]) -> dict[int, Value]:
        """Structs of a capture by rank, such as a `wire.History`."""
        return {rank: self._of(value, "text") for rank, value in values.items()}

    def _of(self, value: Any, rule: str) -> Any:
        if isinstance(value, str):
            change: Callable[[str], str] | None = getattr(self, f"_{rule}", None)
            return (change or getattr(self._names, rule))(value)
        if isinstance(value, Struct):
            return self._struct(value)
        if isinstance(value, tuple):
            return tuple([self._of(one, rule) for one in value])
        if isinstance(value, Mapping):
            return {key: self._of(one, rule) for key, one in value.items()}
        return value

    def _struct(self, value: Struct) -> Struct:
        shared = self._shared.get(id(value))  # thousands of ops share one line
        if shared is not None and shared[0] is value:
            return shared[1]
        changes: dict[str, Any] = {}
        for name, rule in _plan(type(value)):
            before = getattr(value, name)
            after = (
                getattr(self, f"_{rule}_of")(before)
                if rule in _OF_FIELDS
                else self._of(before, rule)
            )
            if after is not before:
                changes[name] = after
        if isinstance(value, wire.TensorSummary):
            changes |= dict.fromkeys(_DATA)
        made = structs.replace(value, **changes) if changes else value
        if isinstance(value, wire.Site | wire.Signature | wire.Job):
            self._shared[id(value)] = value, made
        return made

    def _note_names(self, frame: Frame, author: str) -> None:
        names = self._names
        views = frame.ranks.values()
        user, _, machine = author.partition("@")
        recorded = frame.recorded.by.partition("@") if frame.recorded is not None else ("", "", "")
        names.hosts(
            [*(host.name for host in frame.hosts), *(view.host for view in views), machine,
             recorded[2]]
        )  # fmt: skip
        for one in (user, recorded[0]):
            names.note(one, names.name("user", one))
        for view in views:
            self._note_names_of(view)
        for job in {job for job in (frame.job, *frame.other_jobs) if job is not None}:
            for name, pseudonym in ((job.name, self._program(job.name)),
                                 (job.run_id, self._run(job.run_id))):  # fmt: skip
                if len(name) >= _MIN_NOTED:
                    names.note(name, pseudonym)
            names.note(job.master_addr, names.endpoint(job.master_addr))

    def _note_names_of(self, view: Rank) -> None:
        names, who = self._names, view.identity
        for folder in (who.cwd, who.record):
            names.note(folder, names.folder(folder))
        for _, value in who.settings:
            if len(value) >= _MIN_NOTED:
                names.note(value, self._setting(value))
        for process in (view.process, *(view.snapshot.processes if view.snapshot else ())):
            # The end of a path is clear without this, unless it contains blanks.
            if process is not None and "/" in process.file:
                pseudonym = names.path(process.file)
                if " " in process.file:
                    names.note(process.file, pseudonym)

    # One method for each rule that `Pseudonyms` does not have.

    def _drop_of(self, value: str | tuple[str, ...]) -> str | tuple[()]:
        return "" if isinstance(value, str) else ()

    def _author(self, text: str) -> str:
        return self.author(text)

    def _line(self, text: str) -> str:
        """A sentence; of a quoted line of a log, only its number: anything may stand in it."""
        quoted = _LOG_LINE.match(text)
        return f"line {quoted[1]} of a log" if quoted is not None else self._names.text(text)

    def _run(self, text: str) -> str:
        return self._names.name("run", text)

    def _gpu(self, text: str) -> str:
        return self._names.name("gpu", text)

    def _device(self, text: str) -> str:
        """Keeps the kind of a file system; its source may name a filer."""
        kind, blank, source = text.partition(" ")
        named = "/" in source or ":" in source
        return f"{kind}{blank}{self._names.name('device', source) if named else source}"

    def _program(self, text: str) -> str:
        return text if text.endswith(".py") and "/" not in text else self._names.name("job", text)

    def _checksum(self, text: str) -> str:
        return self._names.name("sum", text)

    def _setting(self, value: str) -> str:
        return value if _PLAIN_VALUE.fullmatch(value) else self._names.name("value", value)

    def _settings_of(self, settings: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        return tuple((name, self._setting(value)) for name, value in settings)

    def _argv_of(self, words: tuple[str, ...]) -> tuple[str, ...]:
        """The program, and the names of options; values are replaced."""
        return tuple(self._word(place, word) for place, word in enumerate(words))

    def _word(self, place: int, word: str) -> str:
        if not place:
            return self._names.path(word)
        option, equals, value = word.partition("=")
        if option.startswith("-"):
            return f"{option}={self._word(1, value)}" if equals else option
        if word.startswith(("/", "~", "./", "../")):
            return self._names.path(word)
        return self._names.name("arg", word)

    def _variables_of(self, variables: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        made = ((name, _harmless(name, value)) for name, value in variables)
        return tuple(one for one in made if one[1])


_OF_FIELDS: Final = ("argv", "settings", "variables", "drop")
"""Rules that take the whole field."""


def _harmless(name: str, value: str) -> str:
    """What the diagnosis needs from a variable of torch's functions, without names; else ""."""
    if _WORK.match(value):
        return "<Work>"
    if name == "kwargs":
        return _with_group_only(value)
    if name == "args":
        return _counted(value)
    harmless = name in _ARGUMENTS and _NUMBER.fullmatch(value)
    harmless = harmless or (name == "group" and _GROUP_NAME.fullmatch(value))
    return value if harmless else ""


def _with_group_only(text: str) -> str:
    """The arguments by name, reduced to whether a group is among them."""
    if not text or text.endswith("...}"):
        return text and "{...}"
    given = '"group": None' if '"group": None' in text else '"group": …'
    return f"{{{given}}}" if '"group"' in text else "{…}"


def _counted(text: str) -> str:
    """The arguments without names, reduced to their number; "" if that is not clear."""
    depth = count = 0
    if not (text.startswith("(") and text.endswith(")")) or "..." in text or set(text) & {*"'\""}:
        return ""
    inner = text[1:-1].strip()
    for letter in inner:
        depth += (letter in "([{<") - (letter in ")]}>")
        count += letter == "," and depth == 0
    return f"({', '.join('…' * (count + bool(inner)))})" if not inner.endswith(",") else "(…,)"


@cache
def _plan(kind: type) -> tuple[tuple[str, str], ...]:
    """The fields of a struct that may contain texts, and their rules."""
    rules = {**OF_ANY, **next((RULES[one] for one in kind.__mro__ if one in RULES), {})}
    hints = get_type_hints(kind)
    fields = [field.name for field in structs.fields(kind) if has_texts(hints[field.name])]
    plan = [(name, rules.get(name, "text")) for name in fields]
    return tuple(one for one in plan if one[1] != "keep")


def has_texts(kind: Any) -> bool:
    """Whether values of a type may contain texts, other than those to be kept."""
    if isinstance(kind, type) and issubclass(kind, Struct):
        return bool(_plan(kind))
    return kind is str or any(map(has_texts, getattr(kind, "__args__", ())))


def redacted(frame: Frame) -> Frame:
    """The frame with names and data replaced, for any file to be given away."""
    return Redaction(frame).frame(frame)


def for_others(frame: Frame, author: str) -> Frame:
    """The same without `author`'s name (`user@host`), and with a note that says so."""
    made = Redaction(frame, author).frame(frame)
    recorded = made.recorded
    if recorded is not None and REDACTED in recorded.notes:
        return made
    notes = (*made.coverage.notes, CoverageNote(REDACTED))
    return structs.replace(made, coverage=structs.replace(made.coverage, notes=notes))
