"""What a parent buries, it kills no more: the number may be somebody else's by then."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import os, signal, sys
from frtop_tui.cli.parent import Child
child = Child(["sleep", "1"], os.environ)
witness = child._witness.pid
os.kill(witness, int(sys.argv[1]))
killed, kill = [], os.kill
os.kill = lambda pid, number: killed.append(pid) or kill(pid, number)
assert child.wait() == 0
print(killed == [witness])
"""


@pytest.mark.parametrize(("number", "lives"), [(signal.SIGKILL, False), (signal.SIGSTOP, True)])
def test_a_witness_that_somebody_killed_is_forgotten(number: int, lives: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(number)],
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    assert done.stdout == f"{lives}\n", done.stderr
