"""Samples a rank's stacks for some seconds from outside: py-spy reads its memory.

Nothing stops, and the rank needs no recorder. A stack may change while py-spy reads it; such
samples count as missed. The host pays: py-spy reads the process's memory `rate` times a
second, which takes some percent of a core.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from typing import Final

from frtop_probe import wire
from frtop_probe.agent.tracked_rank import TrackedRank
from frtop_probe.features.flame.messages import SampleResponse, SampleStacks
from frtop_probe.proc import processes, tool_process
from frtop_probe.proc.within import within
from frtop_probe.stacks import stacks

MAX_SECONDS: Final = 30.0
MAX_RATE: Final = 200
MAX_STACKS: Final = 4096
"""Most different stacks in an answer, which has the most frequent ones."""
MAX_TEXT: Final = 4096
_MORE_S: Final = 10.0
"""Time for py-spy to analyse the process first, and to write at the end."""
_COUNTS: Final = re.compile(r"^py-spy> .*Samples: (\d+) Errors: (\d+)")


async def sample(host: str, request: SampleStacks, rank: TrackedRank) -> SampleResponse:
    """Returns the stacks of one rank, or why there are none."""
    # NaN becomes the minimum.
    seconds = min(request.seconds, MAX_SECONDS) if request.seconds >= 1 else 1.0
    rate = max(1, min(request.rate, MAX_RATE))
    found: Counter[str] = Counter()
    missed, note = 0, ""
    dump = _why_not(rank)
    if dump is None:
        output, dump = await _record(rank.pid, seconds, rate, idle=request.idle)
        found, missed = parse(output)
        if dump is None and not found:
            text = f"py-spy saw no Python stack in process {rank.pid} in {seconds:.0f} s"
            dump = wire.StackDump(rank.pid, error="failed", help=text)
    if len(found) > MAX_STACKS:
        note = f"the {MAX_STACKS:,} most frequent of {len(found):,} different stacks"
    return SampleResponse(
        id=request.id,
        host=host,
        key=rank.key,
        at_ns=time.monotonic_ns(),
        seconds=seconds,
        rate=rate,
        stacks=tuple(found.most_common(MAX_STACKS)),
        missed=missed,
        note=note,
        error=dump.error if dump is not None else "",
        help=dump.help if dump is not None else "",
    )


def parse(output: str) -> tuple[Counter[str], int]:
    """Parses py-spy's raw format: how often it saw each stack, and how many samples it missed."""
    found: Counter[str] = Counter()
    missed = 0
    for line in output.splitlines():
        if counts := _COUNTS.match(line):
            missed = int(counts[2])
            continue
        text, _, count = line.rpartition(" ")
        if text and not line.startswith("py-spy>") and count.isdecimal() and len(count) < 10:
            found[text[:MAX_TEXT]] += int(count)
    return found, missed


def _why_not(rank: TrackedRank) -> wire.StackDump | None:
    seen = processes.read_stat(rank.pid) if rank.lives else None
    if seen is None or seen.start_ticks != rank.start_ticks:
        return stacks.gone(rank.pid)
    if stacks.find_py_spy() is None:
        return wire.StackDump(rank.pid, error="missing", help=tool_process.why_missing("py-spy"))
    return None


async def _record(
    pid: int, seconds: float, rate: int, *, idle: bool
) -> tuple[str, wire.StackDump | None]:
    spy = stacks.find_py_spy()
    assert spy is not None
    command = (
        *(spy, "record", "--nonblocking", "--format", "raw", "--threads", "--full-filenames"),
        *("--duration", f"{seconds:.0f}", "--rate", str(rate), "--pid", str(pid)),
        *("--output", "/dev/stdout", *(("--idle",) if idle else ())),
    )
    try:
        child = await tool_process.start(*command, dies_with_us=True)
    except OSError as error:
        text = f"{spy} cannot be run: {error.strerror}"
        return "", wire.StackDump(pid, error="failed", help=text)
    try:
        reading = tool_process.read_outputs(child)
        output, errors = await within(seconds + _MORE_S, reading)
    except TimeoutError:
        text = f"py-spy did not finish with process {pid}: the host is overloaded; try again"
        return "", wire.StackDump(pid, error="deadline", help=text)
    finally:
        await tool_process.end(child)
    if child.returncode != 0:
        return "", stacks.failure(pid, errors.decode("utf-8", "replace"))
    return output.decode("utf-8", "replace"), None


HANDLERS: Final = {SampleStacks: sample}
