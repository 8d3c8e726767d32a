"""The child that reads gauges: requests as JSON lines on standard input, an answer to each.

It may be left behind at any moment, when a call of a driver does not return. It ends with its
input, and the kernel ends it with its parent, whose pid is its argument. A request has
`processes`: whether to ask for the processes on each GPU.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from dataclasses import asdict
from typing import Any, BinaryIO, Final

from frtop_probe import child_process
from frtop_probe.gauges.nvml import NvmlReader

NICENESS: Final = 10


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Says that it is ready, then answers until its input ends."""
    reader = NvmlReader()
    reader.load()  # slow on a busy host, and no reason to doubt the driver
    _write(answers, {"ready": True})
    for line in requests:
        request = json.loads(line)
        _write(answers, asdict(reader.read(processes=bool(request.get("processes")))))


def _write(answers: BinaryIO, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer).encode() + b"\n")
    answers.flush()


def main() -> None:
    """Serves on standard input and output, with low priority."""
    if len(sys.argv) > 1:
        child_process.die_with(int(sys.argv[1]))
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    with contextlib.suppress(BrokenPipeError, ConnectionError, KeyboardInterrupt):
        serve(sys.stdin.buffer, sys.stdout.buffer)


if __name__ == "__main__":
    main()
