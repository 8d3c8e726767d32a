"""Why an agent cannot be used: one sentence each, with the next step."""

from __future__ import annotations

from frtop_probe.keys import KeyPair
from frtop_tui.errors import FrtopError, Unreachable, WrongKey
from frtop_tui.sources.places import Place
from frtop_tui.sources.servers import Servers


def not_admitted(place: Place, pair: KeyPair) -> FrtopError:
    """It is one whose key we know, and does not know ours."""
    return WrongKey(
        f"the agent on {place.name} does not admit our key",
        f"its owner lets us in with `frtop key admit {pair.shown} --read`, or use the owner's key: "
        "FRTOP_KEY_FILE",
    )


def no_key_fits(place: Place, servers: Servers) -> FrtopError:
    """None of the keys that agents may have; or it is too busy for the handshake."""
    if servers.problem:
        return WrongKey(f"the agent on {place.name} uses none of our keys", servers.problem)
    others = f" and none of the {servers.trusted} we trust" if servers.trusted else ""
    return WrongKey(
        f"the agent on {place.name} hangs up: it uses another key than ours{others}, or it hangs",
        "if the job is another user's, its owner admits us with `frtop key admit` and what "
        "`frtop key` shows here, and we trust them with `frtop key trust` and what it shows there; "
        "if it is yours, copy its frtop/key here or name it with FRTOP_KEY_FILE",
    )


def stranger(place: Place) -> FrtopError:
    return Unreachable(
        f"what listens at {place.address}:{place.ask} ({place.name}) is no frtop agent",
        "name its port: --connect host:port; on that host, `frtop agent` prints it",
    )


def foreign(place: str) -> FrtopError:
    return Unreachable(
        f"the agent on {place} answers in words that this frtop does not know",
        "install the same version of frtop on both sides",
    )


def gone(place: Place) -> FrtopError:
    return Unreachable(
        f"the agent on {place.name} went away",
        "shown is what was last known; it is taken up again when it comes back",
    )


def absent(place: Place) -> FrtopError:
    return Unreachable(
        f"nobody answers on {place.name} ({place.address}, ports {place.pub} and {place.ask})",
        "an agent runs there when the job was started with `frtop run`; "
        "else start it there: `frtop agent`",
    )
