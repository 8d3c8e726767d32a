"""Settings of a rank that hide what its ops do on devices."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from frtop_probe.device_settings import DeviceSetting, settings_in_the_way
from frtop_tui.job.model import Rank
from frtop_tui.job.naming import group_label, shortened

_MOST: Final = 256
"""Cached combinations of groups and settings: the ranks of a job are alike."""


def settings_of_rank(rank: Rank) -> tuple[DeviceSetting, ...]:
    """The settings of a prepared rank that hide its devices, worst first; other ranks' are unknown.

    What the recorder says about its groups overrides the settings.
    """
    who = rank.identity
    if not who.prepared:
        return ()
    groups = [group for group in rank.groups.values() if not group.gone]
    reasons: dict[str, list[str]] = {}
    for group in groups:
        if group.blind:
            reasons.setdefault(group.blind, []).append(group_label(group.name, group.description))
    return _found(
        frozenset(group.backend for group in groups),
        who.settings,
        who.torch,
        True if follows(rank) else None,
        tuple((reason, ", ".join(names)) for reason, names in reasons.items()),
    )


def follows(rank: Rank) -> bool:
    """Whether its recorder sees the device of any group: then the Flight Recorder is on."""
    return any(one.watched for one in rank.group_progress.values())


@lru_cache(_MOST)
def _found(
    backends: frozenset[str],
    settings: tuple[tuple[str, str], ...],
    torch: str,
    records: bool | None,
    reasons: tuple[tuple[str, str], ...],
) -> tuple[DeviceSetting, ...]:
    named = {reason: shortened(names) for reason, names in reasons}
    return settings_in_the_way(backends, dict(settings), torch, records=records, reasons=named)
