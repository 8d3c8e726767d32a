"""What the operator names with `--ssh` and `--via`: hosts, Slurm jobs, pods."""

from __future__ import annotations

import re
import shlex
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final, Protocol

from frtop_probe.pipe.start_script import stage
from frtop_tui.connect.endpoints import VIA, PipeEndpoint, expand
from frtop_tui.connect.pipes import LAUNCHERS, kubernetes, slurm
from frtop_tui.connect.pipes.ssh_command import jump_command, onward_command, program, ssh_endpoint
from frtop_tui.errors import UsageError

HOST: Final = "{host}"
_PARSERS: Final[Mapping[str, Callable[[str], Place]]] = {
    slurm.PREFIX: slurm.parse,
    kubernetes.PREFIX: kubernetes.parse,
}
_NAME: Final = re.compile(r"(?!-)[^\s\x00-\x1f\x7f-\x9f]{1,255}")


class Place(Protocol):
    """Something that leads to one host or to many."""

    @property
    def name(self) -> str:
        """As the operator wrote it."""

    @property
    def doing(self) -> str:
        """What `find` does."""

    def find(self) -> list[PipeEndpoint]:
        """The hosts, and how to reach them; blocks, and raises `FrtopError`."""


@dataclass(frozen=True, slots=True)
class SshHost:
    """`[USER@]HOST[:PORT]`."""

    name: str

    doing = "asking ssh for its settings"

    def find(self) -> list[PipeEndpoint]:
        return [ssh_endpoint(self.name)]


@dataclass(frozen=True, slots=True)
class ViaHost:
    """A host that an operator's command leads to."""

    name: str
    command: tuple[str, ...]

    doing = "starting"

    def find(self) -> list[PipeEndpoint]:
        return [PipeEndpoint(self.name, (self.command,), f"{VIA}{self.command[0]}")]


@dataclass(frozen=True, slots=True)
class UserHere:
    """This host, as another user: root's shell, in which the reader becomes that user."""

    user: str

    @property
    def name(self) -> str:
        return socket.gethostname()

    doing = "starting"

    def find(self) -> list[PipeEndpoint]:
        return [PipeEndpoint(self.name, (("/bin/sh",),), f"as user {self.user}")]


@dataclass(frozen=True, slots=True)
class ThisHost:
    """This host where frtop has no sockets: a Python of our own, without a shell."""

    doing = "starting"

    @property
    def name(self) -> str:
        return socket.gethostname()

    def find(self) -> list[PipeEndpoint]:
        python = (sys.executable, "-I", "-S", "-c", stage())
        return [PipeEndpoint(self.name, (python,), "this host", has_python=True)]


def this_host() -> tuple[ThisHost, ...]:
    """This host, if frtop is one file: it has no sockets, and so no agent to reach by them."""
    return () if find_spec("zmq") else (ThisHost(),)


def places(
    specs: Sequence[str], via: str = "", through: str = "", user: str = ""
) -> tuple[Place, ...]:
    """The places that the command line names, each once.

    Args:
        specs: of `--ssh`: host lists, `slurm:JOBID`, `k8s:SELECTOR`.
        via: of `--via`: a command instead of ssh, in which `{host}` stands for each host.
        through: of `--through`: a host that reaches the hosts of `specs` for us.
        user: of `--user`: whose jobs to show; on this host if none is named.

    Raises:
        UsageError: one of them is malformed, or they do not go together.
    """
    found: dict[str, Place] = {}
    hosts = [spec for spec in specs if not spec.startswith(tuple(LAUNCHERS))]
    others = [spec for spec in specs if spec not in hosts]
    if user and not (specs or via):
        return (UserHere(user),)
    if via and through:
        raise UsageError("--through is for --ssh, not for --via", "leave out one of them")
    if via:
        if others:
            raise UsageError(
                f"--via is for hosts, but {others[0]} has its own way", "leave out one of them"
            )
        return _via(expand(hosts) if hosts else (), via)
    for spec in others:
        place = _PARSERS[spec[: spec.index(":") + 1]](spec)
        found[place.name] = place
    program()
    names = expand(hosts) if hosts else ()
    _require_names((*names, *([through] if through else [])))
    if through:
        if not names or others:
            raise UsageError("--through is for hosts", "name them: --ssh 'node[0-7]'")
        return (ThroughHost(through, names),)
    found.update({name: SshHost(name) for name in names})
    return tuple(found.values())


def last_python(places: Sequence[object]) -> str:
    """The Python to try if no other works: on this host, our own."""
    return sys.executable if any(isinstance(one, UserHere) for one in places) else ""


def _require_names(names: Sequence[str]) -> None:
    for name in names:
        if not _NAME.fullmatch(name):
            raise UsageError(f"{name!r} is not the name of a host", "--ssh 'node[0-7]'")


def _via(hosts: Sequence[str], via: str) -> tuple[Place, ...]:
    try:
        words = shlex.split(via)
    except ValueError as error:
        raise UsageError(f"--via: {error}", "--via 'docker exec -i {host} sh'") from error
    if not words:
        raise UsageError("--via names no command", "--via 'docker exec -i {host} sh'")
    named = any(HOST in word for word in words)
    if named and not hosts:
        raise UsageError(
            "--via has {host}, and no host is named", "name hosts: --ssh 'node[0-7]' --via ..."
        )
    if not named and len(hosts) > 1:
        raise UsageError(
            f"--via would run the same command for {len(hosts)} hosts",
            "write {host} where the host belongs: --via 'docker exec -i {host} sh'",
        )
    if not hosts:
        return (ViaHost(via, tuple(words)),)
    return tuple(ViaHost(host, tuple(word.replace(HOST, host) for word in words)) for host in hosts)


@dataclass(frozen=True, slots=True)
class ThroughHost:
    """A host on the way, and those behind it."""

    way: str
    hosts: Sequence[str]

    @property
    def name(self) -> str:
        return self.way

    doing = "asking ssh for its settings"

    def find(self) -> list[PipeEndpoint]:
        (command,) = ssh_endpoint(self.way).commands
        return [
            PipeEndpoint(
                host=host,
                commands=(command, jump_command(self.way, host)),
                shown=f"ssh {host} through {self.way}",
                task=number,
                crowded=True,
                through=self.way,
                onward=onward_command(host),
            )
            for number, host in enumerate(self.hosts)
        ]
