"""What others said, fit for a terminal.

Names, paths, exception texts and sentences come from programs, hosts and files that need
not mean well: an escape sequence in one of them could retitle the terminal, fill the
clipboard, or hide the rest of a line. So nothing is drawn or printed but through here.
"""

from __future__ import annotations

from typing import Final

UNFIT: Final = "\N{REPLACEMENT CHARACTER}"


def printable(text: str) -> str:
    """One line of `text` as it is, but for what steers terminals or cannot be encoded.

    Blanks of all kinds become spaces; every other letter without a shape of its own, among
    them escapes, halves of surrogates and marks that turn the direction, is shown as one.
    """
    if text.isprintable():
        return text
    return "".join(map(_shown, text))


def _shown(letter: str) -> str:
    if letter.isprintable():
        return letter
    return " " if letter.isspace() else UNFIT
