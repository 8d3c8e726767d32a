"""How a request is declared: once, by a class.

The class has the fields of the request. Its class variables say what agents, ranks and operators
need to know: the type of the answer, whether the request acts, whether the rank itself answers, how
long that may take, whether to retry. Dispatch, rights, refusals, time-outs and retries follow.
The class name is the request's name everywhere: on the wire, in the handler tables of ranks and
agents, and where an operator asks (`source.do`). A feature declares its own in its `messages`.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from msgspec import Struct

from frtop_probe.wire.values import Int


class Response(Struct, frozen=True, array_like=True, gc=False, tag=True):
    """An answer, with the number of its request."""

    id: Int


class Error(Response, frozen=True, array_like=True, tag="refusal"):
    """The agent refuses or fails; `text` is a message for the user.

    `reason` is one of "" (unknown), "permission", "busy", "gone", "failed", "words" (malformed).
    """

    text: str
    reason: str = ""


class Request(Struct, frozen=True, array_like=True, gc=False, tag=True):
    """Asks an agent for something on its host. The sender sets `id`."""

    answer: ClassVar[type[Response]]
    """The only accepted type of response, besides `Error`."""
    acts: ClassVar[bool] = True
    """It makes a rank work or stand still, or shows data: the agent logs it, and refuses it to
    operators who may only read. Requests that only read set this to False."""
    once: ClassVar[bool] = False
    """It may have taken effect even if no answer came, so it is not retried automatically."""
    timeout_s: ClassVar[float] = 8.0
    """How many seconds an operator waits. An agent gives a rank 2 s; the network gets the rest."""
    at_once: ClassVar[int] = 4
    """How many of these one operator may have open per host: an agent refuses more than 4."""

    id: Int = 0

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if hasattr(cls, "answer"):
            DECLARED.append(cls)


class RanksRequest(Request, frozen=True, array_like=True, tag=True):
    """Asks about several ranks of the host, by the agent's keys for them."""

    keys: tuple[Int, ...] = ()


class RankRequest(Request, frozen=True, array_like=True, tag=True):
    """Asks about one rank of the host, by the agent's key for it."""

    in_rank: ClassVar[bool] = False
    """The rank's recorder answers; the agent passes the request on, by field names."""
    needs_recorder: ClassVar[bool] = False
    """The agent answers, but only about a rank with a recorder."""
    most_ranks: ClassVar[int] = 4096
    """How many ranks an operator asks at a time, on all hosts together."""
    needs_life: ClassVar[bool] = False
    """A process that has ended cannot answer."""
    in_capture: ClassVar[bool] = False
    """Captures include the answers of ranks that wait in an op."""
    nothing: ClassVar[str] = ""
    """What a person reads if the rank has nothing to answer ("none")."""

    key: Int = 0

    def unanswered(self, host: str, error: str, text: str) -> Response:
        """Makes an answer that only says why nothing was answered."""
        said: dict[str, Any] = {"id": self.id, "host": host, "key": self.key, "at_ns": 0}
        said |= {"error": error, "help": text}
        names = self.answer.__struct_fields__
        return self.answer(**{name: one for name, one in said.items() if name in names})

    @classmethod
    def for_capture(cls, key: int, *, devices: bool) -> RankRequest:  # noqa: ARG003
        """Makes a capture's request; with `devices`, on behalf of a person."""
        return cls(key=key)


class PieceRequest(RankRequest, frozen=True, array_like=True, tag=True):
    """Asks for `size` bytes, from `offset` on, of something too large for one answer."""

    offset: Int = 0
    size: Int = 0


class Piece(Response, frozen=True, array_like=True, tag=True):
    """`size` bytes from `offset` on: fewer than requested at the end, which is at `total`.

    `data` is one zlib stream if `packed`. `error` and `help` are as in any answer of a rank.
    """

    key: Int
    offset: Int
    size: Int = 0
    total: Int = 0
    data: bytes = b""
    packed: bool = False
    error: str = ""
    help: str = ""


DECLARED: Final[list[type[Request]]] = []
"""All requests, in order of declaration."""
