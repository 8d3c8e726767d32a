"""Why a host on the way does not reach the port of an agent, in words. Pure."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from frtop_tui.errors import FrtopError, UnknownHost, Unreachable
from frtop_tui.job.naming import printable, typed
from frtop_tui.sources.forwarding.local_port import LocalPort

MAX_TEXT: Final = 200


class Reason(Struct, frozen=True):
    """What the host on the way says: `why` is one of a few words, `text` the system's own."""

    why: str = ""
    text: str = ""


def refusal(payload: bytes, port: LocalPort, way: str) -> FrtopError:
    """The error that a refusal means; another machine wrote it."""
    try:
        reason = msgspec.json.decode(payload, type=Reason)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        reason = Reason()
    where = f"{port.address}, ports {port.port - 1} and {port.port}"
    match reason.why:
        case "refused":
            return Unreachable(
                f"nobody listens on {where}, says {way}",
                "start the job with `frtop run`, which starts an agent there, or `frtop agent`"
                f" there; with nothing but a shell there: {_by_ssh(port, way)}",
            )
        case "unknown":
            return UnknownHost(
                f"host name {port.address!r} does not resolve on {way}",
                f"name it as {way} knows it: `ssh {typed(way)} getent hosts {typed(port.address)}`",
            )
        case "silent":
            return no_answer(port, way)
    text = printable(reason.text)[:MAX_TEXT] or "for a reason that it does not tell"
    return Unreachable(
        f"{way} does not reach {where}: {text}",
        "is it up, and may that host connect to it?",
    )


def no_answer(port: LocalPort, way: str) -> FrtopError:
    """Nothing comes back."""
    return Unreachable(
        f"{port.address} does not answer {way} on port {port.port}",
        "is it up, and does a firewall between them let that port through?"
        f" {_by_ssh(port, way)} needs no port but ssh's",
    )


def _by_ssh(port: LocalPort, way: str) -> str:
    return f"--ssh {typed(port.address)} --through {typed(way)}"


def cut_off(error: FrtopError, host: str) -> FrtopError:
    """What is wrong with the host on the way, said of a host behind it."""
    return type(error)(f"on the way to {host}: {error.text}", error.next_step)
