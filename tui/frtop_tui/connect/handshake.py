"""The needs of the handshake with an agent, and the names of its failures.

The keys with which an agent may prove itself; and, for `agent_connections`, the wording of every
reason why an agent is unusable, from a refused key to a port where nobody listens.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from frtop_tui.connect.endpoints import Endpoint
from frtop_tui.errors import FrtopError, Unreachable, WrongKey
from frtop_tui.job.naming import typed

if TYPE_CHECKING:  # through a shell, nothing of this is needed
    from frtop_probe.keys import KeyPair, KeyProblem

REREAD_S: Final = 5.0
"""We reread the list of trusted keys at this age: somebody may have added one."""


class AgentKeys:
    """Public keys that the agent at an endpoint may have: ours, and those of trusted users."""

    def __init__(self, pair: KeyPair) -> None:
        self._pair = pair
        self._trusted: tuple[bytes, ...] = ()
        self._read_at = 0.0
        self._confirmed: dict[str, bytes] = {}  # host -> the key its agent had last
        self.problem: KeyProblem | None = None
        """Why the list of trusted keys is unusable."""

    @property
    def trusted(self) -> int:
        """Number of keys of other users."""
        return len(self._trusted)

    def candidates(self, endpoint: Endpoint) -> list[bytes]:
        """The keys to try, at least one: the announced or last one first."""
        if endpoint.key:
            return [endpoint.key]
        self._read()
        known = [self._pair.public, *self._trusted]
        last = self._confirmed.get(endpoint.host)
        return list(dict.fromkeys([last, *known] if last in known else known))

    def confirm(self, endpoint: Endpoint, key: bytes) -> None:
        self._confirmed[endpoint.host] = key

    def _read(self) -> None:
        now = time.monotonic()
        if self._read_at and now - self._read_at < REREAD_S:
            return
        self._read_at = now
        from frtop_probe import keys  # noqa: PLC0415 - libzmq

        try:
            self._trusted = tuple(one.public for one in keys.trusted(self._pair))
            self.problem = None
        except keys.KeyProblem as problem:
            self._trusted = ()
            self.problem = problem


def not_admitted(endpoint: Endpoint, pair: KeyPair) -> FrtopError:
    """We know the agent's key, but it does not know ours."""
    return WrongKey(
        f"the agent on {endpoint.host} does not admit our key",
        f"ask its owner to run `frtop key admit {pair.shown} --read`, or name the owner's key file:"
        " FRTOP_KEY_FILE=PATH frtop",
    )


def no_key_fits(endpoint: Endpoint, agent_keys: AgentKeys) -> FrtopError:
    """The agent has none of the keys we know."""
    problem = agent_keys.problem
    if problem is not None:
        return WrongKey(
            f"the agent on {endpoint.host} does not have our key, and the list of trusted keys"
            f" cannot be used: {problem.text}",
            problem.next,
        )
    others = f" and none of the {agent_keys.trusted} we trust" if agent_keys.trusted else ""
    return WrongKey(
        f"the agent on {endpoint.host} ended the handshake: its key is not ours{others}",
        "if the job is yours, copy its frtop/key here, or set FRTOP_KEY_FILE to it; if it is"
        " another user's, its owner runs `frtop key admit` with what `frtop key` prints here,"
        " and you run `frtop key trust` with what it prints there",
    )


def gone_meanwhile(endpoint: Endpoint) -> FrtopError:
    """An agent that announced its key did not prove it."""
    return Unreachable(
        f"the agent on {endpoint.host} ended while frtop connected to it, or another program has"
        f" its port {endpoint.ask}",
        "try again: ranks with a recorder start another agent within seconds",
    )


def not_an_agent(endpoint: Endpoint) -> FrtopError:
    return Unreachable(
        f"the service at {endpoint.address}:{endpoint.ask} ({endpoint.host}) is not a frtop agent",
        "name the agent's port, `frtop agent` prints it on that host: --connect HOST:PORT",
    )


def incompatible(host: str) -> FrtopError:
    return Unreachable(
        f"the agent on {host} sent a message that this frtop cannot read",
        "install the same version on both sides; `frtop --version` prints it",
    )


def disconnected(endpoint: Endpoint) -> FrtopError:
    return Unreachable(
        f"the agent on {endpoint.host} went away",
        "frtop shows the last known state and reconnects when the agent is back",
    )


def absent(endpoint: Endpoint) -> FrtopError:
    return Unreachable(
        f"nobody answers on {endpoint.host}"
        f" ({endpoint.address}, ports {endpoint.pub} and {endpoint.ask})",
        "start the job with `frtop run`, which starts an agent there, or `frtop agent` there;"
        f" with nothing but a shell there: --ssh {typed(endpoint.host)}",
    )
