"""Which jobs a process has started: real processes."""

from __future__ import annotations

import os
import subprocess

from msgspec.structs import replace

from frtop_probe.proc import processes
from frtop_tui.diagnosis.model import Frame
from frtop_tui.features.watch.below import Below
from screens import scenes


def with_rank(pid: int) -> Frame:
    frame = scenes.hung()
    stat = processes.read_stat(pid)
    assert stat is not None
    identity = replace(frame.ranks[0].identity, pid=pid, start_ticks=stat.start_ticks)
    return replace(frame, ranks={0: replace(frame.ranks[0], identity=identity, exit_info=None)})


def test_a_rank_is_below_its_launchers_and_of_no_other() -> None:
    shell = ["sh", "-c", "sleep 600 & echo $!; wait"]
    with subprocess.Popen(shell, stdout=subprocess.PIPE) as launcher:
        assert launcher.stdout is not None
        pid = int(launcher.stdout.readline())
        frame = with_rank(pid)
        assert Below(launcher.pid).has_started(frame)
        assert Below(os.getpid()).has_started(frame)
        assert not Below(pid).has_started(frame)
        other = replace(frame.ranks[0].identity, start_ticks=1)  # a rank of another host
        moved = replace(frame, ranks={0: replace(frame.ranks[0], identity=other)})
        assert not Below(launcher.pid).has_started(moved)
        below = Below(launcher.pid)
        assert below.lives
        os.kill(pid, 9)
        launcher.kill()
        launcher.wait()
        assert not below.lives
