"""Work in daemon threads: results and errors arrive in the event loop."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from frtop_probe.proc import daemon_thread


async def test_a_result_arrives() -> None:
    assert await daemon_thread.run(lambda: threading.current_thread().name, "worker") == "worker"


async def test_an_exception_is_raised_where_the_future_is_awaited() -> None:
    def fail() -> None:
        raise OSError("no such disk")

    with pytest.raises(OSError, match="no such disk"):
        await daemon_thread.run(fail, "worker")


def test_work_that_hangs_does_not_keep_the_process() -> None:
    program = (
        "import time; from frtop_probe.proc import daemon_thread;"
        "daemon_thread.start(lambda: time.sleep(600), 'worker')"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)
