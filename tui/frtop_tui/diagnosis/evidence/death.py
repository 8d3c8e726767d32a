"""How one rank ended, and whether that is a cause of its own."""

from __future__ import annotations

import re
import signal as signals
from dataclasses import dataclass
from typing import Final, Literal

from frtop_probe import wire
from frtop_tui.diagnosis.causes import Cause
from frtop_tui.diagnosis.evidence.stack_location import line_and_function
from frtop_tui.job.model import Rank
from frtop_tui.job.stack_frames import user_frame

Nature = Literal["own", "network", "timeout", "mismatch", "ended", "abort", "unknown"]

_NETWORK_KINDS: Final = frozenset({
    "RuntimeError", "ConnectionError", "ConnectionResetError", "BrokenPipeError",
    "ConnectionRefusedError", "DistNetworkError", "DistBackendError", "DistStoreError", "DistError",
})  # fmt: skip
_NETWORK_TEXT: Final = re.compile(
    r"connection (closed|reset|refused|aborted|was (closed|reset))|closed by (remote )?peer"
    r"|broken pipe|socket (closed|error)|no route to host|remote process exited"
    r"|recv(ed)? 0 bytes|failed to recv|unhandled (system|cuda) error.*remote"
    r"|gloo/transport/.*(closed|reset|error)|successfully reached monitoredbarrier"
    r"|communicator was aborted",
    re.IGNORECASE,
)
_TIMEOUT_TEXT: Final = re.compile(
    r"timed? ?out|timeout|failed to pass monitoredbarrier", re.IGNORECASE
)
_MISMATCH_TEXT: Final = "Detected mismatch between collectives"
"""Of torch's ProcessGroupWrapper: also those raise it that called the right op."""
_WAITED_TEXT: Final = re.compile(r"(?:waiting |after )(\d{1,12}) ?ms\b")
_SOURCE: Final = re.compile(r"^\[[^\]\s]*\.(?:cc|cpp|cu|h|hpp):\d+\]\s*")
"""Where torch's C++ raised it: not where a user looks first."""
INTERRUPTED: Final[Cause] = "interrupted"
_SIGNALS: Final = {int(known): known.name for known in signals.Signals}
_CRASHES: Final = frozenset({
    signals.SIGSEGV, signals.SIGBUS, signals.SIGFPE, signals.SIGILL, signals.SIGABRT,
    signals.SIGSYS, signals.SIGTRAP,
})  # fmt: skip
_NOT_OWN: Final[dict[int, Nature]] = {
    signals.SIGTERM: "ended", signals.SIGHUP: "ended", signals.SIGABRT: "abort",
}  # fmt: skip
_ENDED_KINDS: Final = frozenset({"KeyboardInterrupt", "SignalException", "SystemExit"})


@dataclass(frozen=True, slots=True)
class Death:
    """One rank's end. `at_ns` is the operator's clock; `text` says how."""

    rank: int
    at_ns: int
    nature: Nature
    cause: Cause
    text: str
    killed: bool = False  # by SIGKILL
    crashed: bool = False  # by a signal that the process causes itself
    out_ns: int = 0  # when its process ended, 0 while it has not
    waited_s: float = 0.0  # how long it had waited when it gave up, 0.0 if not known

    @property
    def failed(self) -> bool:
        """Whether the program itself reports a failure, however late."""
        return self.nature == "own" and self.cause in ("exception", "exit_status")

    @property
    def likeness(self) -> tuple[str, str]:
        """Equal for deaths of the same cause: `ValueError` on three ranks."""
        return (self.cause, self.text.split(":")[0])


def death_of(view: Rank) -> Death | None:
    """How a rank ended, None if it lives or left cleanly."""
    raised, ending = view.exception, view.exit_info
    if raised is not None and raised.main:
        return _by_exception(view, raised)
    if ending is None or view.state == "done":
        return None
    at_ns, code = ending.at_ns + view.clock_ns, ending.exit_code
    # A shell in between turns signal 9 into exit status 137.
    by_shell = code - 128 if code is not None and code - 128 in _SIGNALS else 0
    if number := ending.signal or by_shell:
        return _by_signal(view.rank, at_ns, number, ending.oom_kills)
    if code is not None:
        # Without a recorder the exception is unknown: it may be a closed connection.
        raised_unseen = code == 1 and not view.evidence.has_exceptions
        nature: Nature = "unknown" if raised_unseen else "own"
        out_ns = at_ns if raised_unseen else 0
        return Death(view.rank, at_ns, nature, "exit_status", f"exit status {code}", out_ns=out_ns)
    return Death(view.rank, at_ns, "unknown", "unknown", "gone, cause unknown", out_ns=at_ns)


def _by_exception(view: Rank, raised: wire.UncaughtException) -> Death:
    at_ns = (raised.at_ns or (view.exit_info.at_ns if view.exit_info else 0)) + view.clock_ns
    kind = raised.kind.rpartition(".")[2]
    if kind == "KeyboardInterrupt":
        return _interrupted(view.rank, at_ns)
    lines = raised.text.strip().splitlines()
    text = _SOURCE.sub("", lines[0])[:200] if lines else ""
    where = f" at {line_and_function(user_frame(raised.frames))}" if raised.frames else ""
    said = f"{raised.kind}: {text}{where}" if text else f"{raised.kind}{where}"
    nature, waited = _nature_of(kind, raised.text), _WAITED_TEXT.search(raised.text)
    waited_s = int(waited[1]) / 1000 if waited and nature == "timeout" else 0.0
    out_ns = ended_ns(view)
    return Death(view.rank, at_ns, nature, "exception", said, out_ns=out_ns, waited_s=waited_s)


def _nature_of(kind: str, text: str) -> Nature:
    if kind in _ENDED_KINDS:
        return "ended"
    if kind in _NETWORK_KINDS and _MISMATCH_TEXT in text:
        return "mismatch"
    if kind in _NETWORK_KINDS and _NETWORK_TEXT.search(text):
        return "network"
    if kind in _NETWORK_KINDS and _TIMEOUT_TEXT.search(text):
        return "timeout"
    return "own"


def _interrupted(rank: int, at_ns: int) -> Death:
    return Death(rank, at_ns, "ended", INTERRUPTED, "interrupted (ctrl+c)")


def _by_signal(rank: int, at_ns: int, number: int, oom_kills: int) -> Death:
    text = f"signal {number} ({_SIGNALS.get(number, 'unknown')})"
    if number == signals.SIGKILL and oom_kills:
        return Death(rank, at_ns, "own", "oom", f"{text}, and the cgroup's oom_kill rose then")
    if number == signals.SIGINT:
        return _interrupted(rank, at_ns)
    nature, killed = _NOT_OWN.get(number, "own"), number == signals.SIGKILL
    return Death(rank, at_ns, nature, "signal", text, killed=killed, crashed=number in _CRASHES)


def ended_ns(rank: Rank) -> int:
    """When the rank's process ended, on the operator's clock; 0 while it has not."""
    return rank.exit_info.at_ns + rank.clock_ns if rank.exit_info is not None else 0
