"""The child's side of `line_child`: requests as JSON lines on standard input, an answer to each.

The parent may leave the child behind at any time if a call does not return. The child ends when its
input ends, and when its parent ends if the parent's pid is its argument.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any, BinaryIO, Final

from frtop_probe.proc import child_process

NICENESS: Final = 10
Answer = Callable[[dict[str, Any]], dict[str, Any]]
"""Answers one request."""


def serve(prepare: Callable[[], Answer]) -> None:
    """Serves on standard input and output, with low priority.

    `prepare` does the slow work once, before the child says that it is ready.
    """
    if len(sys.argv) > 1:
        child_process.die_with(int(sys.argv[1]))
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    with contextlib.suppress(BrokenPipeError, ConnectionError, KeyboardInterrupt):
        _answer_all(prepare(), sys.stdin.buffer, sys.stdout.buffer)


def _answer_all(answer: Answer, requests: BinaryIO, answers: BinaryIO) -> None:
    _write(answers, {"ready": True})
    for line in requests:
        _write(answers, answer(json.loads(line)))


def _write(answers: BinaryIO, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer).encode() + b"\n")
    answers.flush()
