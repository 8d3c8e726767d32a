"""The parent never kills a process that it has reaped: another may have its pid."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import os, signal, sys
from frtop_tui.cli.parent import Child
child = Child(["sleep", "1"], os.environ)
mirror = child._mirror.pid
os.kill(mirror, int(sys.argv[1]))
killed, kill = [], os.kill
os.kill = lambda pid, number: killed.append(pid) or kill(pid, number)
assert child.wait() == 0
print(killed == [mirror])
"""


@pytest.mark.parametrize(("number", "killed"), [(signal.SIGKILL, False), (signal.SIGSTOP, True)])
def test_a_killed_signal_mirror_is_not_killed_again(number: int, killed: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(number)],
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    assert done.stdout == f"{killed}\n", done.stderr
