"""What holds for all tests."""

from __future__ import annotations

import gc
import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A shell leaves signals ignored to what it runs in the background, `nohup` does so on purpose, and
# all that is started here would inherit that.
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        handler = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, handler)

# Hundreds of processes are started here: where Python is told to keep no bytecode, each of them
# would compile frtop anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Screens under test are drawn when a test looks, and ten times a second besides.
os.environ.setdefault("TEXTUAL_FPS", "10")

# Agents under test look at no process without a recorder: other tests run some beside them.
os.environ["FRTOP_UNPREPARED"] = "0"
# Ranks under test use the kernels in Python; `FRTOP_NATIVE=1` uses the native ones, where built.
os.environ.setdefault("FRTOP_NATIVE", "0")
if os.environ["FRTOP_NATIVE"] != "0":  # a build that does not fit would go unnoticed
    import torch

    from frtop_probe.recorder.native.library import Library

    Library(torch)
# Nor do they leave black boxes in the home of whoever runs the tests.
os.environ["FRTOP_BOXES"] = "0"

# On a loaded machine an example may take any time; tests have a time-out of their own. All examples
# of a test share its fixtures.
settings.register_profile(
    "frtop",
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.register_profile("thorough", settings.get_profile("frtop"), max_examples=1000)
settings.load_profile("frtop")


def pytest_configure(config: pytest.Config) -> None:
    """Makes each worker begin with other tests.

    To rewrite their asserts takes longer than to read what another worker has rewritten.
    """
    if config.args == ["tests"] and (worker := os.environ.get("PYTEST_XDIST_WORKER")):
        parts = sorted(map(str, Path(__file__).parent.glob("[!_]*")))
        first, count = int(worker[2:]), int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        turns = [parts[(first + turn) % count :: count] for turn in range(count)]
        config.args = [one for turn in turns for one in turn]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest file comes first: a worker that begins it last would end alone."""
    items.sort(key=lambda item: (item.path.name != "test_zoo.py", item.path))


def pytest_collection_finish() -> None:
    """Thousands of tests and their modules live to the end: no collection looks at them again.

    Screens allocate much and leave few cycles: fewer collections save an eighth of the time.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
