"""The child that reads a host: requests as JSON lines on standard input, an answer to each.

It may be left behind at any moment. It ends with its input, and the kernel ends it with its
parent, whose pid is its argument. A request has `pids`: those of the ranks.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from dataclasses import asdict
from typing import Any, BinaryIO, Final

from frtop_probe import child_process
from frtop_probe.gauges.host.sources import HostSources

NICENESS: Final = 10


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Says that it is ready, then answers until its input ends."""
    sources = HostSources()
    _write(answers, {"ready": True})
    for line in requests:
        pids = json.loads(line).get("pids", ())
        _write(answers, asdict(sources.read([pid for pid in pids if isinstance(pid, int)])))


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
    os._exit(0)  # threads that hang are not waited for


if __name__ == "__main__":
    main()
