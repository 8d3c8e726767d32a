"""The requests that a rank answers on its socket, and the functions that answer them.

All handlers have the same signature and are found by the name of the request's class. They run on
the recorder's thread, between two heartbeats. A request is any JSON object: its fields are
unchecked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

Request = Mapping[str, Any]
"""An unchecked request. Its `peer` is the client's pid, 0 if in another pid namespace."""
GoOn = Callable[[], bool]
"""Called between pieces of long work, to keep the heartbeat; false if the client has left."""
Response = tuple[dict[str, Any], bytes | bytearray]
"""A header and raw bytes. `error` in the header is "" or one word, `help` says what to do."""
Handler = Callable[[Request, GoOn], Response]

UNKNOWN: Final[Response] = ({"error": "unknown"}, b"")
NOTHING_YET: Final[Response] = ({"error": "none"}, b"")
"""The answer while there is no process group, and so no op."""
INVALID: Final[Response] = ({"error": "failed", "help": "the request was not understood"}, b"")


class RequestTable:
    """Handlers by the `ask` of the requests that they answer."""

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}
        self.is_complete = False
        """Whether torch is loaded, and with it all handlers."""

    def serve(self, handlers: Mapping[str, Handler]) -> None:
        """Adds handlers; a handler with a known name replaces the old one."""
        self._handlers.update(handlers)

    def respond(self, request: Request, go_on: GoOn) -> Response:
        """Answers a request, or says that it is unknown."""
        ask = request.get("ask")
        handler = self._handlers.get(ask) if isinstance(ask, str) else None
        if handler is not None:
            return handler(request, go_on)
        return UNKNOWN if self.is_complete else NOTHING_YET


def numbers_of(request: Request, *names: str) -> tuple[int, ...] | None:
    """Returns these fields of a request, 0 if missing; None if any is not in 0 to 2^63 - 1."""
    numbers = tuple(request.get(name, 0) for name in names)
    valid = all(type(number) is int and 0 <= number < 2**63 for number in numbers)
    return numbers if valid else None
