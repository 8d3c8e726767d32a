"""The host of a rank in one line: what it does, and what is out of the ordinary for this rank."""

from __future__ import annotations

from msgspec import structs

from frtop_tui.diagnosis.evidence.host_facts import HostFact, facts_for
from frtop_tui.diagnosis.words.fact_words import fact_text
from frtop_tui.job.host_gauges import HostGauges
from frtop_tui.job.model import HostView
from frtop_tui.job.units import cores, percent
from frtop_tui.widgets.gauge_cells import disk_cell, memory_cell, net_cell
from frtop_tui.widgets.spans import Line, join, plain


def host_summary(host: HostView, key: int) -> list[Line]:
    """One line; none where the agent sends no gauges, or is unreachable.

    Args:
        host: of the rank.
        key: of the rank.
    """
    gauges = host.gauges
    if gauges is None or host.state != "reporting":
        return []
    values = gauges.host
    troubles = [fact_text(fact, lambda _: "") for fact in _undated(host, key)]
    return [
        join(
            (
                plain("host", "dim"),
                plain("; ".join(troubles), "warn"),
                plain(f"cpu {percent(values['cpu'] / 1000)}" if "cpu" in values else ""),
                _labelled("memory", memory_cell(gauges)[0]),
                _labelled("net", net_cell(gauges, 0)[0]),
                _labelled("disk", disk_cell(gauges)[0]),
                plain(_of_rank(gauges, key), "strong"),
            )
        )
    ]


def _undated(host: HostView, key: int) -> list[HostFact]:
    """The facts that concern a rank, without their times: the hosts' screen has those."""
    return [structs.replace(fact, since_ns=0) for fact in facts_for(host, (key,))]


def _labelled(label: str, text: str) -> Line:
    return plain(f"{label} {text}" if text else "")


def _of_rank(gauges: HostGauges, key: int) -> str:
    """What the rank and its children use."""
    own = next((one for one in gauges.of_kind("rank") if key in one.keys), None)
    if own is None or "cpu" not in own.values:
        return ""
    return f"this rank and its children {cores(own.values['cpu'])} cores"
