"""The agent at the end of a pipe: stage 0 starts it from the archive; it ends with the pipe.

It takes no lock, and writes or removes no files. It reads the rings of prepared ranks like any
agent, and does not disturb an agent that already runs there.
"""

from __future__ import annotations

import asyncio
import math
import os
import pkgutil
import time
from contextlib import suppress
from typing import Final

from frtop_probe.agent.options import READ_ONLY, UNPREPARED, Options
from frtop_probe.agent.rank_tracker import RankTracker
from frtop_probe.agent.resources import limit_resources
from frtop_probe.agent.rights import Rights
from frtop_probe.agent.service import AgentService, LeaveReason
from frtop_probe.pipe import program_file
from frtop_probe.pipe.channel import PipeChannel
from frtop_probe.pipe.introduction import introduction
from frtop_probe.pipe.lines import described
from frtop_probe.proc import daemon_thread
from frtop_probe.ring.folder import existing

END_S: Final = 5.0
"""Seconds after which a leaving agent is gone, even if one of its threads still waits."""


def main(archive: int, rest: bytes = b"") -> int:  # noqa: ARG001 - open as long as this runs
    """Serves the operator on standard input and output; returns the exit status."""
    limit_resources()
    try:
        return asyncio.run(_run(rest))
    except OSError as error:
        text = f"standard input and output cannot be used: {error}"
        with suppress(OSError):
            os.write(1, described(b"frtop-error", {"text": text, "next": "use a pipe"}))
        return 1


async def _run(rest: bytes) -> int:
    rights = Rights(read_only=os.environ.get(READ_ONLY, "") not in ("", "0"))
    ended = asyncio.Event()
    channel = PipeChannel(rights, ended.set, task=os.environ.get("SLURM_PROCID", ""), rest=rest)
    tracker = RankTracker(existing(), guest=True)
    version = (pkgutil.get_data(__package__, "VERSION") or b"").decode()
    # Only the end of the pipe ends it: this agent does not come and go with ranks.
    options = Options(linger=math.inf, unprepared=os.environ.get(UNPREPARED) != "0")
    service = AgentService(options, tracker, channel, version)
    service.handle_signals()
    about = introduction(service.host)
    problems = _problems(has_py_spy=about["has_py_spy"])
    about |= {"instance": service.instance, "version": service.version, "problems": problems}
    channel.say(b"frtop-hello", about)
    channel.start()

    async def leave_at_end() -> None:
        await ended.wait()
        service.leave(LeaveReason.OPERATOR_LEFT)

    tasks = [asyncio.create_task(leave_at_end()), asyncio.create_task(channel.watch())]
    try:
        await service.run()
    finally:
        daemon_thread.start(_end_at_last, "frtop end")
        for task in tasks:
            task.cancel()
        tracker.clear()
        await channel.close()
    return 1 if channel.problem else 0


def _problems(*, has_py_spy: bool) -> list[dict[str, str]]:
    """Lists the closed tiers."""
    if has_py_spy or not (reason := program_file.why_none_runs()):
        return []
    return [
        {
            "text": f"no stacks: there is no usable py-spy, and {reason}",
            "next": "`pip install py-spy` there, or allow it (`sysctl vm.memfd_noexec=0`)",
        }
    ]


def _end_at_last() -> None:
    time.sleep(END_S)
    os._exit(1)
