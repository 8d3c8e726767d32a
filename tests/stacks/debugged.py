"""A process that is blocked in C and keeps time, and debuggers that misbehave on it."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

from frtop_probe.proc import tracing
from frtop_probe.stacks.native_stacks import Tool
from waiting import DEADLINE_S, wait_for

PROGRAM = """
import os, sys, threading, time

if "private" in sys.argv:
    import ctypes
    assert ctypes.CDLL(None).prctl(4, 0, 0, 0, 0) == 0  # PR_SET_DUMPABLE: nobody may trace it
gaps = []
over = threading.Event()

def now():
    # without the time for which this thread has waited for a processor
    with open("/proc/thread-self/schedstat") as file:
        return time.monotonic_ns() - int(file.read().split()[1])

def keep_time():
    last = now()
    while not over.is_set():
        time.sleep(0.001)
        gaps.append(-last + (last := now()))

clock = threading.Thread(target=keep_time, name="clock")
clock.start()
for _ in range(8):
    threading.Thread(target=over.wait).start()
print("ready", flush=True)
got = os.read(0, 100)  # blocked in C, until the test lets it go
over.set()
clock.join()
print(sum(got), max(gaps), flush=True)
"""
BLOCKED_LINE = 1 + PROGRAM[: PROGRAM.index("got =")].count("\n")
DEBUGGER = """
import ctypes, os, signal, sys, time

ATTACH, SEIZE, INTERRUPT = 16, 0x4206, 0x4207
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long] * 2 + [ctypes.c_void_p] * 2
pid = int(sys.argv[-1])
threads = [int(name) for name in os.listdir(f"/proc/{pid}/task")]
"""
ENDS_WHILE_ATTACHING = """
for tid in threads:
    libc.ptrace(ATTACH, tid, None, None)
os.kill(os.getpid(), signal.SIGKILL)
"""
HOLDS = """
for tid in sorted(threads):
    libc.ptrace(SEIZE, tid, None, None)
    libc.ptrace(INTERRUPT, tid, None, None)
time.sleep(600)
"""


class Debugged:
    """The process. `finish` lets it end, and returns its longest pause in ns."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"ready\n"
        self.pid = self.process.pid
        wait_for(lambda: not self.runs_python(), "it is blocked in C")

    def runs_python(self) -> bool:
        main = tracing.read_main(self.pid)
        return main is not None and main.state == "R"

    def runs(self) -> bool:
        return all(task.runs for task in tracing.read_tasks(self.pid))

    def states(self) -> str:
        return "".join(sorted({task.state for task in tracing.read_tasks(self.pid)}))

    def tracers(self) -> set[int]:
        return {task.tracer for task in tracing.read_tasks(self.pid)} - {0}

    def is_held(self) -> bool:
        """Whether all threads are traced and stopped."""
        return all(task.tracer and task.state == "t" for task in tracing.read_tasks(self.pid))

    def finish(self) -> int:
        output, _ = self.process.communicate(b"\x01\x02\x03", timeout=DEADLINE_S)
        total, longest = map(int, output.split())
        assert (total, self.process.returncode) == (6, 0)
        return longest

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


def debugger(folder: Path, does: str, name: str = "py-spy") -> Tool:
    """A tool that does this to the process, in place of the one with this name."""
    path = folder / name
    program = textwrap.dedent(DEBUGGER + does)
    path.write_text(f"#!{sys.executable}\n{program}")
    path.chmod(0o755)
    return Tool(name, str(path))
