"""Hostile data: real bytes, JSON and messages with something wrong in them, by seed.

Input number `n` of a seed depends on nothing else. A test that fails prints both and what was
changed; `FRTOP_FUZZ=SEED/N pytest ...` runs that input alone, `FRTOP_FUZZ=SEED` another set.
"""

from __future__ import annotations

import os
import random
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

SEED: Final = "1"
INPUT_S: Final = 5.0
"""Seconds of CPU time that one input may take: a thousand times what most take."""
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
        tokens = list(_TOKEN.finditer(text))
        if not tokens or self.chance(0.05):
            cut = self.random.randrange(len(text) + 1)
            self.note(f"JSON cut at {cut}")
            return text[:cut]
        token = self.random.choice(tokens)
        value = self.random.choice(_JSON[: 8 if self.chance(0.5) else None]).encode()
        self.note(f"JSON {token[0][:40]!r} -> {value[:40]!r}")
        return text[: token.start()] + value + text[token.end() :]

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
                     "0-99999999", "[bold]", "[/]", "a\nb", "%s{}")  # fmt: skip
            return self.random.choice(texts)
        if isinstance(value, bytes) and alike:
            return self.random.randbytes(self.random.choice((0, 1, 3, 4, 400)))
        others: tuple[Any, ...] = (None, 0, -1, "", "x", [], [None], [0], {}, 0.5, True, b"\0")
        others += (float("nan"), float("inf"), 10**30)
        return self.random.choice(others[:-1] if self.fits_msgpack else others)


def inputs(count: int) -> Iterator[tuple[int, Mutator]]:
    """Gives so many inputs, or the one that `FRTOP_FUZZ` names."""
    seed, _, only = os.environ.get("FRTOP_FUZZ", SEED).partition("/")
    for number in (int(only),) if only else range(count):
        mutator = Mutator(seed, number)
        with _named(seed, number, mutator):
            yield number, mutator


@contextmanager
def _named(seed: str, number: int, mutator: Mutator) -> Iterator[None]:
    begin = time.thread_time()
    try:
        yield
    except GeneratorExit:  # the test failed with this input
        print(f"FRTOP_FUZZ={seed}/{number}: {'; '.join(mutator.done)}")
        raise
    spent = time.thread_time() - begin
    assert spent < INPUT_S, f"FRTOP_FUZZ={seed}/{number}: {spent:.1f} s; {mutator.done}"
