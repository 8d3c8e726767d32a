"""Words for GPUs that are busy and do no work: a line beside a verdict, never one by itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from frtop_tui.diagnosis.evidence.gpu_activity import SpinningGpu, spinning_gpus
from frtop_tui.job.gpus import SPINS, power_text, shared_text
from frtop_tui.job.model import Rank
from frtop_tui.job.naming import folded


def gpu_evidence(views: Mapping[int, Rank], ranks: Iterable[int], now_ns: int) -> tuple[str, ...]:
    """One line on the GPUs of `ranks` that are busy at little more than idle power, if any are."""
    found: dict[tuple[str, str], tuple[SpinningGpu, list[int]]] = {}
    for rank in sorted(ranks):
        view = views.get(rank)
        if view is not None and view.gauges is not None:
            for one in spinning_gpus(view, now_ns):
                name = one.gpu.uuid or str(one.gpu.index)
                found.setdefault((view.host, name), (one, []))[1].append(rank)
    if not found:
        return ()
    everybody = {rank for _, theirs in found.values() for rank in theirs}
    if len(found) == 1:
        [(one, _)] = found.values()
        text = (
            f"GPU {one.gpu.index} of {folded(everybody)} is {one.utilization} % busy at"
            f" {power_text(one.power_mw, one.limit_mw)}: {SPINS}"
        )
        shared = shared_text(one.gpu)
        return (f"{text} ({shared})" if shared else text,)
    seen = [one for one, _ in found.values()]
    use, power = _span(one.utilization for one in seen), _span(one.power_mw // 1000 for one in seen)
    limit = _span(one.limit_mw // 1000 for one in seen)
    text = f"{len(seen)} GPUs of {folded(everybody)} are {use} % busy at {power} of {limit} W each"
    several = any(one.gpu.processes > 1 for one in seen)
    note = " (some are shared by several processes)" if several else ""
    return (f"{text}: {SPINS}{note}",)


def _span(values: Iterable[int]) -> str:
    """`96`, `90 to 110`."""
    known = sorted(set(values))
    return str(known[0]) if len(known) == 1 else f"{known[0]} to {known[-1]}"
