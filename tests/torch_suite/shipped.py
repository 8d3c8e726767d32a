"""Makes runnable test classes out of what torch's wheel ships: bases and cases, but no runners.

Imported in the job's Python, after `BACKEND` and `WORLD_SIZE` are set: torch's modules read them.
Classes are attributes of this module, so that a spawned rank finds its own by name.
"""

from __future__ import annotations

import importlib
import os
import sys
import unittest
from pathlib import Path
from typing import Any, Final

SHIPPED: Final = "torch.testing._internal.distributed."
DISTRIBUTED: Final = "distributed"
RPC: Final = "rpc"
SUITES: Final = (DISTRIBUTED, RPC)
WORLD_SIZE: Final = "4"
"""Torch itself runs these with three ranks on gloo; a dozen tests of subgroups want four."""


def set_environment() -> None:
    """Sets what torch's own launchers of these tests set, unless the caller has."""
    for name, value in (
        ("BACKEND", "gloo"),
        ("WORLD_SIZE", WORLD_SIZE),
        ("TEMP_DIR", os.environ.get("TMPDIR", "/tmp")),
        ("INIT_METHOD", "env://"),
    ):
        os.environ.setdefault(name, value)


def load(suite: str) -> list[type[unittest.TestCase]]:
    """Returns the test classes of a suite: one of `SUITES`, or files with `os.pathsep` between.

    Raises:
        ImportError: this torch does not ship them, or lacks what they import. Of files, those
            that cannot be imported are named on stderr and left out.
    """
    if suite == DISTRIBUTED:
        return _distributed()
    if suite == RPC:
        return _rpc()
    return [found for file in suite.split(os.pathsep) for found in _file(Path(file).resolve())]


def _distributed() -> list[type[unittest.TestCase]]:
    cases: Any = importlib.import_module(SHIPPED + "distributed_test")

    def set_up(self: Any) -> None:
        super(own, self).setUp()
        self._spawn_processes()

    own = _published("GlooTest", (cases.TestDistBackend, cases.DistributedTest._DistTestBase))
    own.setUp = set_up
    return [own]


def _rpc() -> list[type[unittest.TestCase]]:
    """Each suite with each agent that torch has, without those for CUDA."""
    suites: Any = importlib.import_module(SHIPPED + "rpc_utils")
    fixtures: Any = importlib.import_module(SHIPPED + "rpc.tensorpipe_rpc_agent_test_fixture")
    faulty: Any = importlib.import_module(SHIPPED + "rpc.faulty_rpc_agent_test_fixture")
    agents = (
        ("TensorPipe", fixtures.TensorPipeRpcAgentTestFixture,
         suites.GENERIC_TESTS + suites.TENSORPIPE_TESTS),
        ("Faulty", faulty.FaultyRpcAgentTestFixture, suites.FAULTY_AGENT_TESTS),
    )  # fmt: skip
    return [
        _published(name + case.__name__, (case, fixture, suites.SpawnHelper))
        for name, fixture, cases in agents
        for case in cases
    ]


def _published(name: str, bases: tuple[type, ...]) -> Any:
    made = type(name, bases, {"__module__": __name__})
    setattr(sys.modules[__name__], name, made)
    return made


def _file(path: Path) -> list[type[unittest.TestCase]]:
    sys.path.insert(0, str(path.parent))  # they import their neighbours
    try:
        module = importlib.import_module(path.stem)
    except Exception as error:  # noqa: BLE001 - whatever a file does when it is imported
        print(f"{path}: left out: {type(error).__name__}: {error}", file=sys.stderr)
        return []
    return [
        found
        for found in vars(module).values()
        if isinstance(found, type)
        and issubclass(found, unittest.TestCase)
        and found.__module__ == module.__name__
    ]


if os.environ.get("TORCH_SUITE") in SUITES:  # a spawned rank, which unpickles its class by name
    load(os.environ["TORCH_SUITE"])
