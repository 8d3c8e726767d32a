"""Which known faults the facts of a job match. Pure.

A fault matches if all its signs are there and its version is known to be affected. If the version
is not known, or the fault has a condition that frtop cannot check, it only may be this one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from frtop_tui.features.known_faults.model import (
    BUNDLED,
    Facts,
    KnownFault,
    Match,
    Signs,
    Version,
    Versions,
    parsed,
)
from frtop_tui.job.naming import listed

MOST: Final = 3
"""Matches that are shown: a long list is no help."""
_NUMBERS: Final = re.compile(r"(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?")
_WHEEL: Final = re.compile(r"\d+\.\d+\.\d+(?:\+cu\d+)?")
"""A release for CUDA: other builds come with another NCCL, or with none."""
_NO_NCCL: Final = re.compile(r"\+(?:cpu|rocm|xpu)")


def matches(facts: Facts, table: Iterable[KnownFault]) -> list[Match]:
    """The surest first; among those that are equally sure, by their order in the table."""
    found = [match for fault in table if (match := _match(fault, facts)) is not None]
    found.sort(key=lambda one: (not one.certain, one.fault.sure != "high"))
    return found[:MOST]


def _match(fault: KnownFault, facts: Facts) -> Match | None:
    if not _are_there(fault.signs, facts):
        return None
    if fault.library == "NCCL" and facts.torch and all(map(_NO_NCCL.search, facts.torch)):
        return None
    if fault.versions is None:
        return Match(fault, not fault.provided, "")
    if known := _known(fault, facts):
        affected = [_written(one) for one in sorted(known) if fault.versions.contain(one)]
        fixed = f", {fault.versions.fixed} does not" if fault.versions.fix else ""
        words = f"{fault.library} {listed(affected)} has it{fixed}"
        return Match(fault, not fault.provided, words) if affected else None
    return None if fault.needs_version else _of_unknown_version(fault, fault.versions, facts)


def _of_unknown_version(fault: KnownFault, versions: Versions, facts: Facts) -> Match | None:
    """None if torch comes with a version that is not affected."""
    words = f"if {fault.library} is a version {versions}"
    bundled = _bundled(facts) if fault.library == "NCCL" else {}
    affected = [
        f"{words}: torch {torch} comes with {nccl}, unless it was replaced"
        for torch, nccl in bundled.items()
        if versions.contain(parsed(nccl))
    ]
    if bundled and not affected:
        return None
    return Match(fault, certain=False, version=affected[0] if affected else words)


def _known(fault: KnownFault, facts: Facts) -> set[Version]:
    if fault.library == "NCCL":
        return set(facts.nccl)
    return {version for one in facts.torch if (version := version_in(one))}


def _bundled(facts: Facts) -> dict[str, str]:
    """By release of torch, which NCCL it comes with; empty unless that is known of all."""
    releases = [one.split(".") for one in sorted(facts.torch) if _WHEEL.fullmatch(one)]
    found = {name: BUNDLED[name] for a, b, *_ in releases if (name := f"{a}.{b}") in BUNDLED}
    return found if len(releases) == len(facts.torch) else {}


def version_in(text: str) -> Version:
    """The numbers at the beginning of a version; () without any."""
    found = _NUMBERS.match(text)
    return tuple(int(part or 0) for part in found.groups()) if found is not None else ()


def _written(version: Sequence[int]) -> str:
    return ".".join(map(str, version))


def _are_there(signs: Signs, facts: Facts) -> bool:
    name, form = signs.setting or ("", "")
    return (
        (not signs.line or any(re.search(signs.line, text) for text in facts.texts))
        and (not signs.stack or any(_is_in(thread, signs.stack) for thread in facts.threads))
        and (not name or any(re.fullmatch(form, one) for one in facts.settings.get(name, ())))
        and (not signs.differs or signs.differs in facts.differing)
        and (not signs.ops or not facts.ops.isdisjoint(signs.ops))
        and facts.world >= signs.world
        and facts.uneven >= signs.uneven
        and facts.hangs >= signs.hangs
    )


def _is_in(thread: Sequence[str], forms: Iterable[str]) -> bool:
    return all(any(re.search(form, frame) for frame in thread) for form in forms)


def lines_of(found: Iterable[Match]) -> Iterator[str]:
    """A sentence for each match, with its source and how sure it is."""
    for one in found:
        fault = one.fault
        parts = [
            f"{'matches' if one.certain else 'may be'} {fault.name}: {fault.fault}",
            f"seen: {fault.seen}",
            one.version,
            f"on condition that {fault.provided}" if fault.provided else "",
            fault.cure,
            f"certainty {fault.sure}, {fault.source}",
        ]
        yield "; ".join(filter(None, parts))
