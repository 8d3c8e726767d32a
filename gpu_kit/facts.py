"""What ranks and checks saw, line by line, so that a kill loses nothing that was seen before.

A fact is a JSON object on one line; its key `fact` is its kind.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

VARIABLE: Final = "GPU_KIT_FACTS"
MAX_BYTES: Final = 16 << 20
Fact = dict[str, Any]


def file() -> Path:
    """Returns the file that the environment names."""
    return Path(os.environ[VARIABLE])


def say(fact: str, /, **values: Any) -> None:
    """Appends one fact to the file that the environment names. One write, so lines never mix."""
    line = json.dumps({"fact": fact, **values}, default=str) + "\n"
    descriptor = os.open(file(), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def read(path: Path) -> list[Fact]:
    """Returns the facts in all complete lines of a file; none if there is no file."""
    try:
        with path.open("rb") as opened:
            lines = opened.read(MAX_BYTES).splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        try:
            fact = json.loads(line)
        except ValueError:  # cut off by a kill
            continue
        if isinstance(fact, dict) and "fact" in fact:
            found.append(fact)
    return found


def of(facts: list[Fact], kind: str, /, **values: Any) -> list[Fact]:
    """Returns the facts of a kind with these values, in order."""
    wanted = {"fact": kind, **values}
    return [fact for fact in facts if all(fact.get(key) == wanted[key] for key in wanted)]
