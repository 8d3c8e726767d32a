"""Shortens names of C++ functions: their templates fill screens and say little."""

from __future__ import annotations

import re
from typing import Final

from frtop_probe.proc.kernel_files import printable

MAX_NAME: Final = 200
_ANONYMOUS: Final = "(anonymous namespace)"
_MARK: Final = "\x00"
_NOTHING: Final = re.compile(r"::(?:::)+")
_OPERATORS: Final = ("operator()", "operator->", "operator<<", "operator>>", "operator<=>",
                     "operator<=", "operator>=", "operator<", "operator>")  # fmt: skip


def short_name(name: str) -> str:
    """`gloo::ring` of `gloo::(anonymous namespace)::ring(std::function<void (int)>) [clone .x]`.

    Drops template arguments and function parameters; only cuts a name whose brackets do not match.
    """
    text = name[:4096].replace(f"{_ANONYMOUS}::", "").partition(" [clone")[0].partition("@")[0]
    saved: dict[str, str] = {}
    for index, operator in enumerate(_OPERATORS):
        mark = f"{_MARK}{index}{_MARK}"
        if operator in text:
            text = text.replace(operator, mark)
            saved[mark] = operator
    shown, depth = [], 0
    for letter in text:
        if letter in "<({[":
            depth += 1
        elif letter in ">)}]":
            depth -= 1
        elif depth == 0:
            shown.append(letter)
        if depth < 0:
            break
    short = _NOTHING.sub("::", "".join(shown)).strip()
    for ending in (" const", " volatile", " &", " &&"):
        short = short.removesuffix(ending)
    for mark, operator in saved.items():
        short = short.replace(mark, operator)
    found = short if depth == 0 and short else name
    return printable(found, MAX_NAME)
