"""What two looks at a rank show of processors: how much it used, and how long it had none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median

from frtop_probe import wire
from frtop_tui.job.model import Rank


def looked(views: Sequence[Rank], others: Sequence[Rank]) -> dict[str, float | None]:
    """What two looks at each show of processors."""
    apart = [seconds for view in views if (seconds := _apart_ns(view) / 1e9)]
    return {
        "cpu": _median_of(_cores, views),
        "cpu_others": _median_of(_cores, others),
        "ready": _median_of(ready_share, views),
        "ready_others": _median_of(ready_share, others),
        "seconds": min(apart, default=0.0),
    }


def _median_of(figure: Callable[[Rank], float | None], views: Sequence[Rank]) -> float | None:
    known = [value for value in map(figure, views) if value is not None]
    return median(known) if known else None


def _apart_ns(view: Rank) -> int:
    new, old = view.snapshot, view.prior_snapshot
    return new.at_ns - old.at_ns if new is not None and old is not None else 0


def _cores(view: Rank) -> float | None:
    """Cores that a rank's own process used between two looks."""
    new, old = (_process(one, view.identity.pid) for one in (view.snapshot, view.prior_snapshot))
    apart_ns = _apart_ns(view)
    if new is None or old is None or apart_ns <= 0:
        return None
    return max(0, new.cpu_ns - old.cpu_ns) / apart_ns


def ready_share(view: Rank) -> float | None:
    """Share of the time between two looks in which the main thread could run, and did not."""
    new, old = (
        _main_thread(one, view.identity.pid) for one in (view.snapshot, view.prior_snapshot)
    )
    apart_ns = _apart_ns(view)
    if new is None or old is None or apart_ns <= 0 or min(new.ready_ns, old.ready_ns) < 0:
        return None
    # Up to its last turn: of a thread that waits for one now, the wait is not counted yet.
    ready_ns = new.ready_ns - old.ready_ns
    return min(1.0, max(0, ready_ns - (new.cpu_ns - old.cpu_ns)) / apart_ns)


def _process(snapshot: wire.Snapshot | None, pid: int) -> wire.Process | None:
    return _with_pid(snapshot.processes, pid) if snapshot is not None else None


def _main_thread(snapshot: wire.Snapshot | None, pid: int) -> wire.Process | None:
    return _with_pid(snapshot.threads, pid) if snapshot is not None else None


def _with_pid(processes: Iterable[wire.Process], pid: int) -> wire.Process | None:
    return next((one for one in processes if one.pid == pid), None)
