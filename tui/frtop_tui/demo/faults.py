"""The demo's faults, and the right verdict on each.

The demo compares the right verdict with the actual one afterwards; the diagnosis never sees it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # the parser lists the faults; this import would double its start time
    from frtop_tui.diagnosis.model import Verdict

RANKS: Final = 4
SLOW: Final = {
    "slow": "one rank is late to every step: its GPU is throttled",
    "slow-data": "one rank is late to every step: it waits for data",
}
"""Faults of scripted ranks only."""
CULPRIT: Final = 2


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault. `kind`, `causes` and `progress` are those of the right verdict.

    With `open_unprepared`, no rank can be blamed without a recorder: the verdict is undecided.
    """

    name: str
    summary: str
    kind: str
    causes: tuple[str, ...] = ()
    progress: str = "none"
    open_unprepared: bool = False

    def explained_by(self, verdicts: tuple[Verdict, ...], *, prepared: bool = True) -> bool:
        """Whether the first verdict names the right rank alone, with the right cause."""
        if not self.kind:
            return not verdicts
        if self.open_unprepared and not prepared:
            return [(one.kind, one.culprits) for one in verdicts] == [("undecided", ())]
        return (
            bool(verdicts)
            and verdicts[0].kind == self.kind
            and verdicts[0].culprits == (CULPRIT,)
            and verdicts[0].progress == self.progress
            and (not self.causes or verdicts[0].why.cause in self.causes)
        )


_ABSENT = "not_entered"

FAULTS: Final = {
    fault.name: fault
    for fault in (
        Fault("stall", "a DataLoader worker of rank 2 hangs in a read", _ABSENT, ("dataloader",)),
        Fault("exit", "rank 2 exits early", "dead", ("exited",)),
        Fault(
            "exception",
            "rank 2 raises an exception",
            "dead",
            ("exception",),
            open_unprepared=True,
        ),
        Fault("kill", "rank 2 is killed by signal 9", "dead", ("signal", "oom")),
        Fault("mismatch", "rank 2 calls barrier where the others call all_reduce", "mismatch"),
        Fault("gil", "rank 2 holds the GIL in C", _ABSENT, ("gil",)),
        Fault("stop", "rank 2 is stopped by a signal", _ABSENT, ("stopped",)),
        Fault("sleep", "rank 2 sleeps for an hour", _ABSENT, ("sleeping",)),
        Fault("file", "rank 2 reads a file that never returns data", _ABSENT, ("file_io",)),
        Fault("compute", "rank 2 computes forever", _ABSENT, ("computing",), "active"),
        Fault("none", "no fault", ""),
    )
}
