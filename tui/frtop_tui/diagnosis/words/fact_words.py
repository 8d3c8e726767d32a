"""Facts about a host in words, the same in verdicts and on screens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from frtop_tui.diagnosis.evidence.host_facts import FactKind, HostFact
from frtop_tui.job.gpus import throttle_reasons
from frtop_tui.job.naming import folded, printable
from frtop_tui.job.units import byte_rate, byte_size, counted, duration, how_often, percent

Clock = Callable[[int], str]
"""Turns a time of the host's clock into a time of day."""


def fact_text(fact: HostFact, clock: Clock, ranks: Mapping[int, int] | None = None) -> str:
    """One fact: `gpu4: 1,110 of 1,980 MHz since 14:02, power brake`.

    `ranks` are the host's, by key; None if the fact is shown beside its rank.
    """
    made = _SENTENCES[fact.kind](fact, _when(fact, clock))
    return f"{_subject(fact, ranks)}{made}"


def _subject(fact: HostFact, ranks: Mapping[int, int] | None) -> str:
    name = printable(fact.subject)
    if fact.kind == "memory grows":
        known = [ranks[key] for key in fact.keys if key in ranks] if ranks is not None else []
        return f"{folded(known)}: " if known else ""
    if fact.kind.startswith("gpu"):
        return f"gpu{name}: "
    return f"{name}: " if name else ""


def _when(fact: HostFact, clock: Clock) -> str:
    """` since 14:02`, ` since 13:52 or longer`; "" if not known."""
    if not fact.since_ns:
        return ""
    return f" since {clock(fact.since_ns)}{' or longer' if fact.at_least else ''}"


def _last(when: str) -> str:
    return when.replace(" since ", ", last at ")


def _gpu_shared(fact: HostFact, when: str) -> str:
    who = "another process computes" if fact.value == 1 else f"{fact.value} others compute"
    memory = f", with {byte_size(fact.limit)} of its memory" if fact.limit else ""
    return f"{who} on it{when}{memory}"


def _gpu_error(fact: HostFact, when: str) -> str:
    if fact.text:
        return printable(fact.text)
    count = f"{fact.value} errors, the last an XID {fact.limit}"
    return f"{f'XID {fact.limit}' if fact.value == 1 else count}{_last(when)}"


def _disk_full(fact: HostFact, when: str) -> str:
    if fact.text:
        return f"{_share(fact)} of its inodes left{when}"
    return f"{byte_size(fact.value)} of {byte_size(fact.limit)} left{when}"


def _link_errors(fact: HostFact, when: str) -> str:
    if fact.text == "link_downed":
        return f"went down {how_often(fact.value)}{_last(when)}"
    return f"{counted(fact.value, 'error')} in ten minutes{_last(when)}"


_SENTENCES: Final[Mapping[FactKind, Callable[[HostFact, str], str]]] = {
    "gpu slow": lambda fact, when: (
        f"{fact.value:,}{f' of {fact.limit:,}' if fact.limit else ''} MHz{when},"
        f" {', '.join(throttle_reasons(fact.bits))}"
    ),
    "gpu shared": _gpu_shared,
    "gpu error": _gpu_error,
    "cpu pressure": lambda fact, when: (
        f"all processors are busy, and {_share(fact)} of the time some task waits{when}"
    ),
    "cpu stolen": lambda fact, when: (
        f"the hypervisor gives {_share(fact)} of the processors' time to others{when}"
    ),
    "memory pressure": lambda fact, when: (
        f"{_share(fact)} of the time all tasks wait for memory{when}"
    ),
    "memory grows": lambda fact, when: (
        f"its memory grows by {byte_size(fact.value)} a minute{when};"
        f" what is left lasts {duration(fact.limit)} at this pace"
    ),
    "io pressure": lambda fact, when: f"{_share(fact)} of the time all tasks wait for disks{when}",
    "held back": lambda fact, when: (
        f"held back at {f'{fact.limit / 1000:.3g} cores' if fact.limit else 'its limit'}"
        f" in {_share(fact)} of its periods{when}"
    ),
    "out of memory": lambda fact, when: (
        f"{'one process' if fact.value == 1 else f'{fact.value} processes'}"
        f" killed for lack of memory{_last(when)}"
    ),
    "disk full": _disk_full,
    "disk silent": lambda fact, when: f"{printable(fact.text)}{when}",
    "nic saturated": lambda fact, when: (
        f"{fact.text} {byte_rate(fact.value)} of {byte_rate(fact.limit)}{when}"
    ),
    "retransmits": lambda fact, when: (
        f"{_share(fact)} of what TCP sends is lost and sent again{when}"
    ),
    "link errors": _link_errors,
    "link down": lambda fact, when: (
        f"does not carry data ({printable(fact.text) or 'no state'}){when}"
    ),
}


def _share(fact: HostFact) -> str:
    return percent(fact.value / 1000)
