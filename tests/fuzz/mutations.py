"""Hostile data: real bytes, text, JSON and messages with something wrong in them, by seed.

Change number `n` of a seed depends on nothing else.
"""

from __future__ import annotations

import pickle  # noqa: TID251 - writes what a dump of torch never holds
import random
import re
import string
import sys
from typing import Any, Final

import msgspec

WORDS: Final = (
    0, 1, 2, 63, 64, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53, 2**62 - 1, 2**62,
    2**63 - 1, 2**63, 2**63 + 1, 2**64 - 2, 2**64 - 1, 0x7F7F7F7F7F7F7F7F, 0xFFFFFFFF00000000,
)  # fmt: skip
_JSON: Final = (
    "NaN", "Infinity", "1e999", "9" * 400, '"\\ud800"', "-1", "9" * 20, "[]", "-Infinity", "-1e999",
    "1e308", "0", "1.5", "null", "true", "false", '""', "{}", "[[]]", '{"":0}', '"\\udfff\\ud800"',
    '"\\u0000"', '"\\u001b[2J\\u202e"', "-" + "9" * 4000, "[" * 3000, "[" * 200 + "]" * 200,
    '"' + "x" * 70_000 + '"', '"0-99999999999"', '"4294967295"', '"5-1,,"', '[["a","b"],["c"]]',
)  # fmt: skip
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?|true|false|null')
_FAR: Final = 3000
_WORD: Final = re.compile(rb"\w+|[^\w\s]")
_TEXTS: Final = (
    "0", "1", "-1", "2", "4294967296", "9" * 20, "9" * 5000, "0x10", "1e999", "nan", "\u0662", "-",
    ",", "[", "]", "[0-9]", "[0-999999999]", "[0-9][0-9][0-9]", "(", "{", "}", ":", "::", "@", "!",
    "=", "'", '"', "%", "%s", "{0}", "*", "../", "/", "~", "#", ";", "\n", "\n\n", "\r", "\t", " ",
    "\0", "\x1b[2J", "\u202e", "\udfff", "\u00b2", "rank", "0-3", "0-99999999", "x" * 70_000,
    "<pre>", "&quot;", "--", "--help", "\\", "$HOME", "`", "|",
)  # fmt: skip
"""What replaces a word of a text, or comes between two."""


class Mutator:
    """Changes data; `done` says in words what it did."""

    def __init__(self, seed: str, number: int) -> None:
        self.random = random.Random(f"{seed}/{number}")
        self.done: list[str] = []
        self.fits_msgpack = True
        """Whether `value` leaves out what msgpack cannot hold."""

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def note(self, text: str) -> None:
        self.done.append(text)

    def word(self) -> int:
        """An unsigned number of 64 bits, of those at which something ends."""
        return self.random.choice(WORDS) if self.chance(0.8) else self.random.getrandbits(64)

    def change(self, data: bytearray, begin: int = 0, end: int | None = None) -> None:
        """Changes some bytes from `begin` to `end` in place; the length stays."""
        end = len(data) if end is None else end
        if end <= begin:
            return
        at = self.random.randrange(begin, end)
        kind = self.random.choice(("flip", "run", "word", "half", "swap", "noise"))
        self.note(f"{kind} at {at}")
        if kind == "flip":
            data[at] ^= 1 << self.random.randrange(8)
        elif kind == "run":
            length = min(self.random.choice((1, 8, 64, 256, 4096, 1 << 30)), end - at)
            data[at : at + length] = self.random.choice((b"\0", b"\x7f", b"\xff")) * length
        elif kind == "noise":
            length = min(64, end - at)
            data[at : at + length] = self.random.randbytes(length)
        else:
            size = 4 if kind == "half" else 8
            at -= (at - begin) % size
            if at + size > end:
                return
            if kind == "swap":
                other = begin + self.random.randrange((end - begin) // size) * size
                first, second = data[at : at + size], data[other : other + size]
                data[at : at + size], data[other : other + size] = second, first
            else:
                data[at : at + size] = self.word().to_bytes(8, sys.byteorder)[:size]

    def json(self, text: bytes) -> bytes:
        """JSON, or what is nearly that, with one value replaced, or cut."""
        token = self._match(_TOKEN, text)
        if token is None or self.chance(0.05):
            cut = self.random.randrange(len(text) + 1)
            self.note(f"JSON cut at {cut}")
            return text[:cut]
        value = self.random.choice(_JSON[: 8 if self.chance(0.5) else None]).encode()
        self.note(f"JSON {token[0][:40]!r} -> {value[:40]!r}")
        return text[: token.start()] + value + text[token.end() :]

    def _match(self, pattern: re.Pattern[bytes], text: bytes) -> re.Match[bytes] | None:
        """Any match of the pattern; in a long text, of those within a few kilobytes."""
        at = self.random.randrange(len(text) - _FAR) if len(text) > _FAR else 0
        found = list(pattern.finditer(text, at, at + _FAR))
        return self.random.choice(found) if found else None

    def value(self, value: Any) -> Any:
        """A message or file as lists, maps and scalars, with one value in it replaced."""
        if isinstance(value, dict) and value and self.chance(0.97):
            key = self.random.choice(list(value))
            self.note(f"[{key!r}]")
            return {**value, key: self.value(value[key])}
        if isinstance(value, tuple):
            value = list(value)
        if isinstance(value, list) and value and self.chance(0.93):
            place = self.random.randrange(len(value))
            kind = self.random.random()
            copy = list(value)
            if kind < 0.03:
                self.note(f"[{place}] left out")
                del copy[place]
            elif kind < 0.06:
                self.note(f"[{place}] repeated")
                copy[place:place] = [value[place]] * self.random.choice((1, 2, 300))
            else:
                self.note(f"[{place}]")
                copy[place] = self.value(value[place])
            return copy
        made = self._other(value)
        self.note(f"{str(value)[:40]!r} -> {str(made)[:40]!r}")
        return made

    def _other(self, value: Any) -> Any:
        alike = self.chance(0.85)  # another type is refused at once
        if isinstance(value, bool) and alike:
            return not value
        if isinstance(value, int) and alike:
            return self.word() - (2**63 if self.chance(0.3) else 0)
        if isinstance(value, float) and alike:
            numbers = (float("nan"), float("inf"), -float("inf"), 1e308, -1e308, -1.0, 5e-324)
            return self.random.choice(numbers)
        if isinstance(value, str) and alike:
            texts = ("", "\0", "\x1b[2J", "\u202e", "x" * 5000, "0-3", "4294967295", "all_reduce",
                     "0-99999999", "n[0-999999999]", "[bold]", "[/]", "a\nb", "%s{}")  # fmt: skip
            return self.random.choice(texts)
        if isinstance(value, bytes) and alike:
            return self.random.randbytes(self.random.choice((0, 1, 3, 4, 400)))
        others: tuple[Any, ...] = (None, 0, -1, "", "x", [], [None], [0], {}, 0.5, True, b"\0")
        others += (float("nan"), float("inf"), 10**30)
        return self.random.choice(others[:-1] if self.fits_msgpack else others)

    def any_bytes(self, data: bytes) -> bytes:
        """Any data, with a few bytes changed, inserted, left out or repeated."""
        changed = bytearray(data)
        for _ in range(self.random.choice((1, 1, 2, 4))):
            at = self.random.randrange(len(changed) + 1)
            size = min(self.random.choice((1, 2, 8, 64, 512)), len(changed) - at)
            kind = self.random.choice(("change", "change", "insert", "delete", "repeat", "cut"))
            if kind == "change":
                self.change(changed)
                continue
            self.note(f"{kind} {size} at {at}")
            if kind == "insert":
                changed[at:at] = self.random.randbytes(self.random.choice((1, 2, 8, 40)))
            elif kind == "delete":
                del changed[at : at + size]
            elif kind == "repeat":
                changed[at:at] = changed[at : at + size] * self.random.choice((1, 2, 200))
            elif self.chance(0.3):
                del changed[at:]
        return bytes(changed)

    def text(self, data: bytes) -> bytes:
        """A text with some words or lines replaced, inserted, left out, repeated, or swapped."""
        for _ in range(self.random.choice((1, 1, 2, 3))):
            if self.chance(0.25) and b"\n" in data:
                data = self._lines(data)
                continue
            new, word = self._word(), self._match(_WORD, data)
            if word is None:
                return new
            kind = self.random.choice(("replace", "insert", "delete", "repeat"))
            self.note(f"{kind} {word[0][:40]!r} {new[:40]!r}")
            end = word.start() if kind == "insert" else word.end()
            new = {"delete": b"", "repeat": word[0] * 2}.get(kind, new)
            data = data[: word.start()] + new + data[end:]
        return data

    def _word(self) -> bytes:
        if self.chance(0.3):
            letters = string.digits if self.chance(0.5) else string.printable
            word = "".join(self.random.choices(letters, k=self.random.choice((1, 2, 3, 12))))
        else:
            word = self.random.choice(_TEXTS)
        return word.encode(errors="surrogatepass")

    def _lines(self, data: bytes) -> bytes:
        lines = data.split(b"\n")
        one, other = (self.random.randrange(len(lines)) for _ in range(2))
        kind = self.random.choice(("left out", "repeated", "swapped", "moved"))
        self.note(f"line {one} {kind}, {other}")
        if kind == "left out":
            del lines[one]
        elif kind == "repeated":
            lines[one:one] = [lines[one]] * self.random.choice((1, 2, 50))
        elif kind == "swapped":
            lines[one], lines[other] = lines[other], lines[one]
        else:
            lines.insert(other, lines.pop(one))
        return b"\n".join(lines)


def as_bytes(data: bytes, mutator: Mutator) -> bytes:
    return mutator.any_bytes(data)


def as_text(data: bytes, mutator: Mutator) -> bytes:
    return mutator.text(data) if mutator.chance(0.85) else mutator.any_bytes(data)


def as_json(data: bytes, mutator: Mutator) -> bytes:
    for _ in range(mutator.random.choice((1, 1, 2, 3))):
        data = mutator.json(data)
    return data if mutator.chance(0.9) else mutator.any_bytes(data)


def as_msgpack(data: bytes, mutator: Mutator) -> bytes:
    """One to three values changed, of a message that is whole; else bytes."""
    try:
        value = msgspec.msgpack.decode(data)
        for _ in range(mutator.random.choice((1, 1, 2, 3))):
            value = mutator.value(value)
        return msgspec.msgpack.encode(value)
    except (msgspec.DecodeError, ValueError, TypeError, OverflowError, RecursionError):
        return mutator.any_bytes(data)


def as_pickle(values: Any, mutator: Mutator) -> bytes:
    """The pickle of values of which some were changed."""
    mutator.fits_msgpack = False
    for _ in range(mutator.random.choice((1, 1, 2, 3))):
        values = mutator.value(values)
    return pickle.dumps(values, 2)
