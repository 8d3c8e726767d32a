"""Matches responses of agents to requests: turns, ids, timeouts, retries, lost connections.

Every request ends exactly once, unless its owner drops it: with the agent's response, or
with a `wire.Error` of our own. Requests of a class wait here for their turn at the host. An owner
that must know its requests under way passes a dict, in which the tracker keeps the numbers.
Pure: `now` is the operator's monotonic clock in ns.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, TypeVar

from msgspec import structs

from frtop_probe import wire

RESPONSE_NS: Final = 3_000_000_000
"""Timeout of a request without one of its own, at a host that responds quickly."""
MAX_RESPONSE_NS: Final = 30_000_000_000
"""The same for a host behind a slow link, which more requests would only slow down."""
BUSY_RETRY_NS: Final = 300_000_000
MAX_LATE: Final = 256
"""How many abandoned requests to remember: a late response is still news."""

OnResponse = Callable[[wire.Response, int], None]
"""Takes the response, or our own error, and the time."""
About = TypeVar("About", bound=Hashable)
_Lane = tuple[str, type[wire.Request]]


@dataclass(slots=True)
class _Pending:
    host: str
    request: wire.Request
    on_response: OnResponse
    timeout_ns: int
    under_way: dict[Any, int]  # of its owner
    about: Hashable
    expires_ns: int = 0  # 0: it waits for its turn
    takes_turns: bool = False
    adaptive: bool = False
    resend: bool = False
    retry_ns: int = 0
    sent_ns: int | None = None
    stale: bool = False  # its keys belong to an agent that is gone

    @property
    def lane(self) -> _Lane:
        return self.host, type(self.request)


class RequestTracker:
    """Belongs to the source's thread. Reasons of its own errors: deadline, gone, lost.

    Agents number ranks by keys. A restarted agent gives other keys, so a request about
    ranks is sent only while the agent is known to be the one that gave the keys.
    """

    def __init__(self, send: Callable[[str, wire.Request], bool]) -> None:
        """`send` returns False if a request cannot be sent now."""
        self._send = send
        self._ids = itertools.count(1)
        self._pending: dict[int, _Pending] = {}
        self._unidentified: set[str] = set()
        """Hosts whose agent may have been replaced."""
        self._agents: Counter[str] = Counter()
        """How often the agent of a host was replaced."""
        self._timeouts: dict[str, int] = {}
        """By host, if it is longer than `RESPONSE_NS`."""
        self._late: dict[int, _Pending] = {}
        self._lanes: defaultdict[_Lane, dict[int, _Pending]] = defaultdict(dict)
        """The requests that take turns, in order."""

    def agent(self, host: str) -> int:
        """Generation of the host's agent; pass it to `request` along with its keys."""
        return self._agents[host]

    def timeout_ns(self, host: str) -> int:
        """How long a response of the host may take, based on earlier ones."""
        return self._timeouts.get(host, RESPONSE_NS)

    def request(
        self,
        host: str,
        request: wire.Request,
        on_response: OnResponse,
        now: int,
        *,
        timeout_ns: int | None = None,
        agent: int | None = None,
        under_way: dict[About, int] | None = None,
        about: About | None = None,
    ) -> int:
        """Sends a request at its turn, and again if the agent was busy or away; returns its id.

        At most `at_once` of its class are under way at a host, the others wait. Its turn lasts
        `timeout_ns`, or as long as its class says. `agent` is the generation whose keys it uses, by
        default the current one. `under_way` maps `about` to the id until the request ends.
        """
        timeout_ns = timeout_ns or round(request.timeout_s * 1e9)
        number, pending = self._new(
            host, request, on_response, timeout_ns=timeout_ns, under_way=under_way, about=about
        )
        pending.resend = not request.once
        pending.takes_turns = True
        pending.stale = agent is not None and agent != self._agents[host]
        self._lanes[pending.lane][number] = pending
        self._begin(pending.lane, now)
        return number

    def request_now(
        self,
        host: str,
        request: wire.Request,
        on_response: OnResponse,
        now: int,
        *,
        timeout_ns: int | None = None,
        under_way: dict[About, int] | None = None,
        about: About | None = None,
    ) -> int:
        """Sends a request once, now or not at all; a lost connection ends it.

        Without `timeout_ns`, the timeout adapts to the host: it doubles if nothing arrived. Returns
        its id; 0 if it could not be sent, or if one `about` the same is under way.
        """
        if under_way is not None and about in under_way:
            return 0
        number, pending = self._new(
            host, request, on_response,
            timeout_ns=timeout_ns or self.timeout_ns(host), under_way=under_way, about=about,
        )  # fmt: skip
        pending.adaptive = timeout_ns is None
        pending.expires_ns = now + pending.timeout_ns
        if self._transmit(pending, now):
            return number
        self._remove(number)
        return 0

    def drop(self, *numbers: int) -> None:
        """Forgets requests whose responses nobody needs."""
        for number in numbers:
            if pending := self._remove(number):
                self._keep_late(number, pending)

    def asked(self, host: str, response: wire.Response) -> bool:
        """Whether we asked this host for that, and its agent is still the same.

        Unsolicited messages prove nothing: any user may have sent them.
        """
        pending = self._pending.get(response.id) or self._late.pop(response.id, None)
        if isinstance(response, wire.Error):
            return True  # it ends a request, or does nothing
        return (
            pending is not None
            and pending.host == host
            and not pending.stale
            and _answers(pending.request, response)
        )

    def receive(self, host: str, response: wire.Response, now: int) -> None:
        """Hands a response to its requester; ignores one that nobody waits for."""
        number = response.id
        if isinstance(response, wire.Error) and response.reason == "words":
            # The agent could not even read the id: most likely of the last request.
            sent = (
                number
                for number, one in self._pending.items()
                if one.host == host and one.takes_turns and one.sent_ns is not None
            )
            number = max(sent, default=0)
        pending = self._pending.get(number)
        if pending is None or pending.host != host or pending.stale:
            return
        if not (isinstance(response, wire.Error) or _answers(pending.request, response)):
            return
        busy = isinstance(response, wire.Error) and response.reason == "busy"
        if busy and pending.resend and now < pending.expires_ns:
            pending.sent_ns, pending.retry_ns = None, now + BUSY_RETRY_NS
            return
        self.finish(number, response, now)

    def finish(self, number: int, response: wire.Response, now: int) -> None:
        """Ends a request with a response, whatever the response's id."""
        pending = self._remove(number)
        if pending is None:
            return
        if pending.adaptive and pending.sent_ns is not None:
            self._note_response_time(pending.host, now - pending.sent_ns)
        pending.on_response(response, now)
        self._begin(pending.lane, now)

    def disconnected(self, host: str, now: int) -> None:
        """Handles a lost connection: all responses under way are lost with it."""
        self._unidentified.add(host)
        self._timeouts.pop(host, None)
        for number, pending in list(self._pending.items()):
            if pending.host != host:
                continue
            pending.sent_ns = None
            if not pending.resend and pending.expires_ns:
                self._end(number, "lost", f"the connection to {host} was lost", now)

    def identified(self, host: str, *, same: bool) -> None:
        """Notes which agent the host has: the `same` as before, or another."""
        self._unidentified.discard(host)
        if not same:
            self._agents[host] += 1
            for pending in (*self._pending.values(), *self._late.values()):
                pending.stale = pending.stale or pending.host == host

    def update(self, now: int) -> None:
        """Sends what could not be sent before; ends what is stale or overdue."""
        for number, pending in list(self._pending.items()):
            if pending.stale:
                text = f"the agent on {pending.host} was restarted in the meantime: ask again"
                self._end(number, "gone", text, now)
            elif not pending.expires_ns:
                continue
            elif now >= pending.expires_ns:
                if pending.adaptive:
                    self.extend_timeout(pending.host)
                self._end(number, "deadline", _timed_out(pending), now)
            elif pending.sent_ns is None and now >= pending.retry_ns:
                self._transmit(pending, now)
        for lane in list(self._lanes):
            self._begin(lane, now)

    def extend_timeout(self, host: str) -> None:
        """Doubles the host's timeout: asking at the same pace would only slow it down."""
        self._timeouts[host] = min(2 * self.timeout_ns(host), MAX_RESPONSE_NS)

    def _new(
        self,
        host: str,
        request: wire.Request,
        on_response: OnResponse,
        *,
        timeout_ns: int,
        under_way: dict[About, int] | None,
        about: About | None,
    ) -> tuple[int, _Pending]:
        number = next(self._ids)
        request = structs.replace(request, id=number)
        own: dict[Any, int] = under_way if under_way is not None else {}
        pending = _Pending(host, request, on_response, timeout_ns, own, about)
        self._pending[number], own[about] = pending, number
        return number, pending

    def _remove(self, number: int) -> _Pending | None:
        pending = self._pending.pop(number, None)
        if pending is None:
            return None
        if pending.under_way.get(pending.about) == number:
            del pending.under_way[pending.about]
        if pending.takes_turns:
            lane = self._lanes[pending.lane]
            lane.pop(number, None)
            if not lane:
                del self._lanes[pending.lane]
        return pending

    def _begin(self, lane: _Lane, now: int) -> None:
        """Sends the requests of a lane whose turn it is."""
        waiting = self._lanes.get(lane)
        if waiting is None:
            return
        at_once = next(iter(waiting.values())).request.at_once
        for pending in list(islice(waiting.values(), at_once)):
            if not pending.expires_ns:
                pending.expires_ns = now + pending.timeout_ns
                self._transmit(pending, now)

    def _transmit(self, pending: _Pending, now: int) -> bool:
        about_ranks = not isinstance(pending.request, wire.StateRequest | wire.TimeRequest)
        if pending.stale or (about_ranks and pending.host in self._unidentified):
            return False
        if not self._send(pending.host, pending.request):
            return False
        pending.sent_ns = now
        return True

    def _end(self, number: int, reason: str, text: str, now: int) -> None:
        pending = self._remove(number)
        if pending is not None:
            self._keep_late(number, pending)
            pending.on_response(wire.Error(number, text, reason), now)

    def _keep_late(self, number: int, pending: _Pending) -> None:
        self._late[number] = pending
        while len(self._late) > MAX_LATE:
            self._late.pop(next(iter(self._late)))

    def _note_response_time(self, host: str, took_ns: int) -> None:
        if 2 * took_ns > RESPONSE_NS:
            self._timeouts[host] = min(2 * took_ns, MAX_RESPONSE_NS)
        else:
            self._timeouts.pop(host, None)


def in_state_already(_: wire.Response, _now: int) -> None:
    """Takes a response that the job's state has already taken."""


def _answers(request: wire.Request, response: wire.Response) -> bool:
    """Whether a response has the declared type and concerns that rank."""
    key = getattr(request, "key", None)
    return type(response) is request.answer and getattr(response, "key", key) == key


def _timed_out(pending: _Pending) -> str:
    if pending.sent_ns is None:
        return f"{pending.host} cannot be reached: ask again when it is reporting"
    seconds = pending.timeout_ns / 1e9
    return f"no response from {pending.host} in {seconds:.0f} s: ask again, it may be slow"
