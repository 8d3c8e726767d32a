"""`--through HOST`: one connection to a host on the way, which runs an ssh to each of the others.

A jump host (`ProxyJump`) carries a connection for each host, and its sshd turns away most of 64
that come at once. Here the agent is sent once, and one connection carries a rack. The host on the
way uses its own keys and settings of ssh; where that fails, each host is tried through it as a jump
host, with ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from frtop_tui.connect.endpoints import PipeEndpoint
from frtop_tui.connect.pipes.ssh_command import jump_command, onward_command, ssh_endpoint


@dataclass(frozen=True, slots=True)
class ThroughHost:
    """A host on the way, and those behind it."""

    way: str
    hosts: Sequence[str]

    @property
    def name(self) -> str:
        """As the operator wrote it."""
        return self.way

    @property
    def doing(self) -> str:
        """What `find` does."""
        return "asking ssh for its settings"

    def find(self) -> list[PipeEndpoint]:
        """The hosts behind it."""
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
