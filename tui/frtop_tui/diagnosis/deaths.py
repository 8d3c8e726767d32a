"""Which death came first and of itself, and which only followed.

A launcher ends the others within half a second of the first failure, and gloo's peers
raise when a connection closes: neither is a cause.
"""

from __future__ import annotations

import re
import signal as signals
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from frtop_probe import wire
from frtop_tui.diagnosis.places import place_line
from frtop_tui.job.model import Rank
from frtop_tui.job.stack_frames import user_frame

TOGETHER_NS: Final = 1_000_000_000
"""Deaths this close may be seen in either order: a peer notices a closed connection
before the agent is told of the end of the process."""
FOLLOWS_NS: Final = 2_000_000_000
"""A further own cause later than this is taken for a consequence."""

Nature = Literal["own", "network", "timeout", "ended", "abort", "unknown"]

_NETWORK_KINDS: Final = frozenset({
    "RuntimeError", "ConnectionError", "ConnectionResetError", "BrokenPipeError",
    "ConnectionRefusedError", "DistNetworkError", "DistBackendError", "DistStoreError", "DistError",
})  # fmt: skip
_NETWORK_TEXT: Final = re.compile(
    r"connection (closed|reset|refused|aborted|was (closed|reset))|closed by (remote )?peer"
    r"|broken pipe|socket (closed|error)|no route to host|remote process exited"
    r"|recv(ed)? 0 bytes|failed to recv|unhandled (system|cuda) error.*remote"
    r"|gloo/transport/.*(closed|reset|error)",
    re.IGNORECASE,
)
_TIMEOUT_TEXT: Final = re.compile(r"timed? ?out|timeout", re.IGNORECASE)
_WAITED_TEXT: Final = re.compile(r"(?:waiting |after )(\d{1,12}) ?ms\b")
_SOURCE: Final = re.compile(r"^\[[^\]\s]*\.(?:cc|cpp|cu|h|hpp):\d+\]\s*")
"""Where in torch's own C++ it was raised: nobody who runs a job looks there first."""
INTERRUPTED: Final = "interrupted"
_CRASHES: Final = frozenset({
    signals.SIGSEGV, signals.SIGBUS, signals.SIGFPE, signals.SIGILL, signals.SIGABRT,
    signals.SIGSYS, signals.SIGTRAP,
})  # fmt: skip
_ENDED_KINDS: Final = frozenset({"KeyboardInterrupt", "SignalException", "SystemExit"})


@dataclass(frozen=True, slots=True)
class Death:
    """One rank's end. `at_ns` is the operator's clock; `cause` a stable word."""

    rank: int
    at_ns: int
    nature: Nature
    cause: str
    text: str
    killed: bool = False  # by SIGKILL
    crashed: bool = False  # by a signal that the process brings on itself
    out_ns: int = 0  # when its process had ended, 0 while it has not
    waited_s: float = 0.0  # how long it had waited when it gave up, 0.0 if it does not say

    @property
    def failed(self) -> bool:
        """Whether the program itself says that it failed, however late that was."""
        return self.nature == "own" and self.cause in ("exception", "exit_status")

    @property
    def likeness(self) -> tuple[str, str]:
        """Deaths with the same one have the same cause: `ValueError` on three ranks."""
        return (self.cause, self.text.split(":")[0])


@dataclass(frozen=True, slots=True)
class Deaths:
    """All deaths of a job: `roots` grouped by cause, first by time, and who followed."""

    roots: tuple[tuple[Death, ...], ...] = ()
    followers: tuple[Death, ...] = ()

    @property
    def some(self) -> bool:
        return bool(self.roots or self.followers)

    @property
    def first(self) -> list[Death]:
        """Those of all roots."""
        return [death for group in self.roots for death in group]

    @property
    def every(self) -> list[Death]:
        """Roots, then followers."""
        return [*self.first, *self.followers]


def sorted_deaths(every: Iterable[Death], ranks: Mapping[int, Rank]) -> Deaths:
    """Sorts the deaths of a job's `ranks` into causes and consequences."""
    found = sorted(every, key=lambda death: (death.at_ns, death.rank))
    if not found:
        return Deaths()
    # torchrun's last word to those that survive its SIGTERM, half a minute later.
    late_kill = found[0].at_ns + 5 * TOGETHER_NS
    own = [
        death
        for death in found
        if death.nature == "own" and not (death.killed and death.at_ns > late_kill)
    ]
    aborts = [death for death in found if death.nature == "abort"]
    ended = [death for death in found if death.nature == "ended"]
    unknown = [death for death in found if death.nature == "unknown"]
    # A gloo abort counts as own only when nothing better came at about the same time; an
    # end by SIGTERM, or one nobody knows anything about, only when there is nothing else.
    candidates = (
        own
        or aborts
        or _out_before(ended, found, ranks)
        or _only_if_all(ended, found)
        or _only_if_all(unknown, found)
    )
    if aborts and own and own[0].at_ns > aborts[0].at_ns + TOGETHER_NS:
        candidates = aborts
    if not candidates:
        return Deaths((), tuple(found))
    first = candidates[0]
    near = [death for death in candidates if death.at_ns <= first.at_ns + FOLLOWS_NS]
    groups: dict[tuple[str, str], list[Death]] = {}
    for death in near:
        groups.setdefault(death.likeness, []).append(death)
    roots = tuple(tuple(group) for group in groups.values())
    named = {death.rank for death in near}
    return Deaths(roots, tuple(death for death in found if death.rank not in named))


def _out_before(ended: list[Death], found: list[Death], ranks: Mapping[int, Rank]) -> list[Death]:
    """Those whose processes were gone when the first of the others was ended.

    A launcher ends the others because of them; who is a victim of a SIGTERM itself takes
    longer to raise and to leave. A connection breaks of itself only if nobody else can have
    closed it.
    """
    if not ended or any(death.cause == INTERRUPTED for death in ended):
        return []
    first = next(iter(ranks.values())).identity.job
    alone = first is not None and len(ranks) >= first.world_size
    alone = alone and all(view.state != "done" for view in ranks.values())
    natures = ("network", "unknown") if alone else ("unknown",)
    return [d for d in found if d.nature in natures and 0 < d.out_ns < ended[0].at_ns]


def _only_if_all(some: list[Death], found: list[Death]) -> list[Death]:
    """The first of `some`, unless others broke first: then nobody's own cause is known.

    Ctrl+c reaches every rank, some sooner; a launcher's SIGTERM then is its consequence.
    """
    if not some:
        return []
    some = [death for death in some if death.cause == INTERRUPTED] or some
    victims = [death for death in found if death.nature in ("network", "timeout")]
    first = some[0].at_ns
    if victims and victims[0].at_ns < first - TOGETHER_NS:
        return []
    if any(0 < victim.out_ns < first for victim in victims):
        return []
    if any(death.nature == "timeout" for death in victims):
        return []
    if some[0].cause == INTERRUPTED:
        return some
    return [death for death in some if death.at_ns <= some[0].at_ns + TOGETHER_NS // 10]


def death_of(view: Rank) -> Death | None:
    """How a rank ended, None if it lives or left cleanly."""
    raised, ending = view.exception, view.exit_info
    if raised is not None and raised.main:
        return _by_exception(view, raised)
    if ending is None or view.state == "done":
        return None
    at_ns, code = ending.at_ns + view.clock_ns, ending.exit_code
    number = ending.signal or (code - 128 if code is not None and _is_signal(code) else 0)
    if number:
        return _by_signal(view.rank, at_ns, number, ending.oom_kills)
    if code is not None:
        return Death(view.rank, at_ns, "own", "exit_status", f"exit status {code}")
    gone = "gone, cause unknown"
    return Death(view.rank, at_ns, "unknown", "unknown", gone, out_ns=at_ns)


def _by_exception(view: Rank, raised: wire.UncaughtException) -> Death:
    at_ns = (raised.at_ns or (view.exit_info.at_ns if view.exit_info else 0)) + view.clock_ns
    kind = raised.kind.rpartition(".")[2]
    if kind == "KeyboardInterrupt":
        return _interrupted(view.rank, at_ns)
    where = f" at {place_line(user_frame(raised.frames))}" if raised.frames else ""
    text = first_line(raised.text)[:200]
    said = f"{raised.kind}: {text}{where}" if text else f"{raised.kind}{where}"
    nature = _nature_of(kind, raised.text)
    waited_s = _waited_s(raised.text) if nature == "timeout" else 0.0
    out_ns = view.exit_info.at_ns + view.clock_ns if view.exit_info is not None else 0
    return Death(view.rank, at_ns, nature, "exception", said, out_ns=out_ns, waited_s=waited_s)


def first_line(text: str) -> str:
    """What an exception says first, without the place in C++ that gloo puts before it."""
    lines = text.strip().splitlines()
    return _SOURCE.sub("", lines[0]) if lines else ""


def _waited_s(text: str) -> float:
    found = _WAITED_TEXT.search(text)
    return int(found[1]) / 1000 if found is not None else 0.0


def _is_signal(exit_code: int) -> bool:
    """A shell in between turns signal 9 into exit status 137."""
    return exit_code > 128 and exit_code - 128 in {int(known) for known in signals.Signals}


def _nature_of(kind: str, text: str) -> Nature:
    if kind in _ENDED_KINDS:
        return "ended"
    if kind in _NETWORK_KINDS and _NETWORK_TEXT.search(text):
        return "network"
    if kind in _NETWORK_KINDS and _TIMEOUT_TEXT.search(text):
        return "timeout"
    return "own"


def _interrupted(rank: int, at_ns: int) -> Death:
    return Death(rank, at_ns, "ended", INTERRUPTED, "interrupted (ctrl+c)")


def _by_signal(rank: int, at_ns: int, number: int, oom_kills: int) -> Death:
    try:
        name = signals.Signals(number).name
    except ValueError:
        name = "unknown"
    text = f"signal {number} ({name})"
    if number == signals.SIGKILL and oom_kills:
        return Death(rank, at_ns, "own", "oom", f"{text}, and the cgroup's oom_kill rose then")
    if number == signals.SIGINT:
        return _interrupted(rank, at_ns)
    nature: Nature = "own"
    if number in (signals.SIGTERM, signals.SIGHUP):
        nature = "ended"
    elif number == signals.SIGABRT:
        nature = "abort"
    killed, crashed = number == signals.SIGKILL, number in _CRASHES
    return Death(rank, at_ns, nature, "signal", text, killed=killed, crashed=crashed)
