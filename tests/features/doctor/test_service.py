"""frtop's own parts: a real key file, a real agent, real ports; the printed change opens each."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from features.doctor.surroundings import environment, needs_root
from frtop_probe.agent import announcement
from frtop_probe.features.doctor.service import agent, key, ports
from frtop_probe.features.doctor.tier import Tier
from frtop_probe.proc.ptrace_refusal import Obstacle
from frtop_tui.cli import main
from frtop_tui.features.doctor.service_facts import read_service
from waiting import wait_for

__all__ = ["environment"]


@pytest.fixture(autouse=True)
def here(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Path:
    """This process uses a folder and a key file of its own."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    for name in ("FRTOP_PORT", "FRTOP_AGENT", "FRTOP_UNPREPARED"):
        monkeypatch.delenv(name, raising=False)
    return Path(environment["FRTOP_DIR"])


def only(tier: Tier) -> Obstacle:
    (obstacle,) = tier.obstacles
    return obstacle


def first(tier: Tier) -> str:
    return only(tier).changes[0].line


def test_a_missing_key_is_made_by_what_is_printed() -> None:
    found = key(read_service())
    assert (found.mark, found.is_evidence) == ("closed", False)  # frtop makes one by itself
    words = shlex.split(first(found))
    assert words[0] == "frtop"
    assert main(words[1:]) == 0
    assert key(read_service()).mark == "ok"


def test_a_key_that_others_can_read_is_closed_by_what_is_printed(
    environment: dict[str, str],
) -> None:
    assert main(["key", "make"]) == 0
    file = Path(environment["FRTOP_KEY_FILE"])
    file.chmod(0o644)
    found = key(read_service())
    assert (found.mark, found.is_evidence) == ("closed", True)
    assert "can be read by others" in only(found).text
    subprocess.run(shlex.split(first(found)), check=True)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert key(read_service()).mark == "ok"


@pytest.mark.parametrize("name", ["FRTOP_AGENT", "FRTOP_UNPREPARED"])
def test_what_somebody_has_switched_off_is_said(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "0")
    found = agent(read_service())
    assert found.mark == "closed"
    assert only(found).text.startswith(f"{name}=0: ")
    assert first(found) == f"unset {name}"
    monkeypatch.delenv(first(found).removeprefix("unset "))
    assert agent(read_service()).mark == "ok"


def free_pair() -> int:
    """The first of two neighbouring ports that are free now."""
    for port in range(21000 + os.getpid() % 20000, 65000, 2):
        with ExitStack() as stack:
            try:
                for number in (port, port + 1, port + 2, port + 3):
                    one = stack.enter_context(closing(socket.socket()))
                    one.bind(("", number))
            except OSError:
                continue
            return port
    raise AssertionError("no free ports")


def test_taken_ports_are_named_with_others_that_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_pair()
    monkeypatch.setenv("FRTOP_PORT", str(port))
    assert ports(read_service()).mark == "ok"
    with socket.create_server(("", port)):
        found = ports(read_service())
        assert found.mark == "closed"
        assert f"port {port} or {port + 1} is taken" in only(found).text
        line = re.fullmatch(r"export FRTOP_PORT=(\d+)", first(found))
        assert line is not None
        monkeypatch.setenv("FRTOP_PORT", line[1])
        assert ports(read_service()).mark == "ok"


@contextmanager
def running_agent(*prefix: str) -> Iterator[int]:
    """Runs a real agent until the block ends; gives its pid."""
    process = subprocess.Popen(
        [*prefix, sys.executable, "-m", "frtop_probe.agent"],
        env={**os.environ, "FRTOP_AGENT_LINGER": "60"},
        stderr=subprocess.DEVNULL,
    )
    folder = Path(os.environ["FRTOP_DIR"])
    try:
        card = wait_for(lambda: announcement.find_agent(folder), "an agent")
        yield card.pid
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        process.wait(60)


def test_an_agent_that_is_stopped_or_of_another_version(here: Path) -> None:
    assert main(["key", "make"]) == 0
    with running_agent() as pid:
        assert agent(read_service()).mark == "ok"
        os.kill(pid, signal.SIGSTOP)
        wait_for(lambda: agent(read_service()).mark == "closed", "it is stopped")
        found = agent(read_service())
        assert only(found).text == f"the agent (pid {pid}) is stopped and answers nobody"
        subprocess.run(shlex.split(first(found)), check=True)
        wait_for(lambda: agent(read_service()).mark == "ok", "it runs again")

        (path,) = here.glob("agent-*.json")
        card = json.loads(path.read_text())
        path.write_text(json.dumps(card | {"version": "0.0.1"}))
        found = agent(read_service())
        assert f"the agent (pid {pid}) is frtop 0.0.1" in only(found).text
        subprocess.run(shlex.split(first(found), comments=True), check=True)
        wait_for(lambda: announcement.find_agent(here) is None, "it has ended")
        assert agent(read_service()).mark == "ok"


@needs_root
@pytest.mark.long
def test_an_agent_in_another_network_namespace() -> None:
    assert main(["key", "make"]) == 0
    with running_agent("unshare", "--net"):
        found = ports(read_service())
    assert only(found).text == "the agent listens only in its container's network"
    assert first(found).startswith("--network=host")
    with running_agent():
        assert ports(read_service()).mark == "ok"
