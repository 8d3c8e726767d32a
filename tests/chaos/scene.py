"""Where a round takes place: folders, hosts, clocks, and what ranks and operators know of them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args

from chaos.plan import Plan
from chaos.site import AHEAD_S, BASTION, NODES, OPERATOR, Operator, Place, jump
from e2e.conftest import kill_family
from free_port import free_port
from hosts.network import Network
from hosts.shells import Shells

CLOCK: Final = Path(__file__).with_name("clock.c")
SMALL: Final = "size=24m"
"""Room for four rings, and little besides."""
Whose = Literal["agents", "operators", "ranks"]


class Clocks:
    """The times of day of processes, each off by what is in a file (`clock.c`)."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._library = folder / "clock.so"
        self.files = {whose: folder / f"clock-{whose}" for whose in get_args(Whose)}
        self.set_right()

    def set_right(self) -> None:
        for file in self.files.values():
            jump(file, 0)

    def environment(self, whose: Whose) -> dict[str, str]:
        """What a process is started with."""
        if not self._library.exists():
            made = ("cc", "-shared", "-fPIC", "-O1", "-o", str(self._library), str(CLOCK), "-ldl")
            subprocess.run(made, check=True)
        return {"LD_PRELOAD": str(self._library), "CHAOS_CLOCK": str(self.files[whose])}

    def agent_python(self) -> str:
        """An interpreter for agents, to whom nobody passes such variables on."""
        file = self._folder / "agent-python"
        python = os.environ.get("FRTOP_AGENT_PYTHON", sys.executable)
        own = " ".join(f"{name}={value}" for name, value in self.environment("agents").items())
        file.write_text(f'#!/bin/sh\nexec env {own} {python} "$@"\n')
        file.chmod(0o700)
        return str(file)


@dataclass(frozen=True, slots=True)
class Scene:
    """Attributes: as those of `Site`; `environment` is that of ranks and agents."""

    places: list[Place]
    network: Network | None
    environment: dict[str, str]
    operator: Operator


@contextmanager
def scene(plan: Plan, folder: Path, clocks: Clocks) -> Iterator[Scene]:
    """Makes it, and leaves no process, file or mount."""
    clocks.set_right()
    with ExitStack() as stack:
        network = stack.enter_context(_hosts(folder, plan)) if plan.reach != "here" else None
        places = _places(folder, network)
        for place in places:
            place.folder.mkdir(mode=0o700)
            stack.callback(shutil.rmtree, place.folder, ignore_errors=True)
            if plan.small:
                stack.enter_context(_small(place.folder))
            stack.callback(kill_family, Path(place.named))
        environment = _environment(plan, folder, places, network)
        if plan.clock:
            environment["FRTOP_AGENT_PYTHON"] = clocks.agent_python()
        operator = _operator(plan, folder, environment, network)
        if plan.clock:
            operator.environment.update(clocks.environment("operators"))
        yield Scene(places, network, environment, operator)


@contextmanager
def _hosts(folder: Path, plan: Plan) -> Iterator[Network]:
    bare = plan.reach in ("ssh", "through")
    names = (*NODES, BASTION, OPERATOR)
    network = Network(folder, names, AHEAD_S, own_pids=NODES if bare else ())
    try:
        yield network
    finally:
        network.close()


def _places(folder: Path, network: Network | None) -> list[Place]:
    """In shared memory, as usual; hosts have their own, and see none of ours."""
    named = f"/dev/shm/{folder.parent.name}-{folder.name}"
    if network is None:
        return [Place(named, Path(named))]
    names = {node: f"{named}-{node}" for node in NODES}
    return [Place(name, network.hosts[node].file(name)) for node, name in names.items()]


def _environment(
    plan: Plan, folder: Path, places: list[Place], network: Network | None
) -> dict[str, str]:
    """Returns what ranks, agents and operators get."""
    address = "127.0.0.1" if network is None else network.hosts[NODES[0]].address
    return {
        "FRTOP_DIR": places[0].named,
        "FRTOP_KEY_FILE": str(folder.parent / "key"),
        "FRTOP_BIND": "127.0.0.1",
        "FRTOP_AGENT_WITH": str(os.getpid()),
        "FRTOP_BOXES": "0",
        "FRTOP_UNPREPARED": "1" if plan.way == "unprepared" else "0",
        "WORLD_SIZE": str(plan.ranks),
        "MASTER_ADDR": address,
        "MASTER_PORT": str(free_port()),
        "TMPDIR": str(folder / "tmp"),
        "ZOO_FOLDER": str(folder),
        "CHAOS_END": str(folder / "end"),
        "CHAOS_SEED": str(plan.seed),
        "CHAOS_THREAD": "1" if plan.thread else "0",
        "CHAOS_LISTS": "1" if plan.lists else "0",
        "CHAOS_HOSTS": json.dumps([] if network is None else _of_hosts(places, network)),
    }


def _of_hosts(places: list[Place], network: Network) -> list[dict[str, object]]:
    """What ranks need to get to their host, and what they get there."""
    hosts = [network.hosts[node] for node in NODES]
    return [
        {
            "holder": host.pid,
            "environment": {
                "FRTOP_DIR": place.named,
                "FRTOP_BIND": host.address,
                "GLOO_SOCKET_IFNAME": "eth0",
            },
        }
        for host, place in zip(hosts, places, strict=True)
    ]


def _operator(
    plan: Plan, folder: Path, environment: dict[str, str], network: Network | None
) -> Operator:
    job = ("--job", f"{environment['MASTER_ADDR']}:{environment['MASTER_PORT']}")
    own = {**os.environ, **environment}
    if network is None:
        return Operator(lambda *words: list(words), job, own)
    own["FRTOP_DIR"] = str(folder / "operator")
    inside = network.hosts[OPERATOR].inside
    if plan.reach == "ports":
        return Operator(inside, ("--connect", *NODES, *job), own)
    shells = Shells(folder)
    for name in (*NODES, BASTION):
        shells.serve(network.hosts[name])
    shells.write_config()
    own["FRTOP_SSH"] = f"ssh -F {shells.config}"
    through = ("--through", BASTION) if plan.reach == "through" else ()
    return Operator(inside, ("--ssh", *NODES, *through, *job), own)


@contextmanager
def _small(folder: Path) -> Iterator[None]:
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"mode=0700,{SMALL}", "tmpfs", str(folder)], check=True
    )
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
