"""The process that forks ranks (`parent.py`), as its user sees it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

END_S = 30.0


class Forker:
    """Starts it with `environment`. It ends, with all ranks, when this process does."""

    def __init__(self, folder: Path, environment: Mapping[str, str], *modules: str) -> None:
        """Its ranks have loaded torch, and `modules`. `folder` is removed at the end."""
        self._parent = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("parent.py")), str(folder), *modules],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**environment, "OMP_NUM_THREADS": "1"}, start_new_session=True, bufsize=0,
        )  # fmt: skip
        self.pid = self._parent.pid
        self._answer()

    def ask(self, **request: Any) -> dict[str, Any]:
        """Returns the pids of the ranks, and the exit statuses of those that have ended."""
        assert self._parent.stdin is not None
        self._parent.stdin.write(json.dumps(request).encode() + b"\n")
        return self._answer()

    def close(self) -> None:
        """Ends the ranks that still run."""
        with self._parent as parent:  # closes its pipes, and waits
            assert parent.stdin is not None
            parent.stdin.close()
            parent.wait(END_S)

    def _answer(self) -> dict[str, Any]:
        assert self._parent.stdout is not None
        line = self._parent.stdout.readline()
        assert line, "the process that forks the ranks has ended"
        found: dict[str, Any] = json.loads(line)
        return found
