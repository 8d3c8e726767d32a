"""Settings of a rank that hide what its ops do on devices."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from frtop_probe.device_settings import DeviceSetting, settings_in_the_way
from frtop_tui.job.model import Rank

_MOST: Final = 256
"""Combinations of groups and settings that are remembered: ranks of a job are alike."""


def settings_of_rank(rank: Rank, unobserved: str = "") -> tuple[DeviceSetting, ...]:
    """Which of the settings of a prepared rank are in the way, the worst first.

    Args:
        rank: of any other rank no settings are known.
        unobserved: why its ops are not followed, as its recorder says; "" if it does not.
    """
    who = rank.identity
    if not who.prepared:
        return ()
    backends = frozenset(group.backend for group in rank.groups.values() if not group.gone)
    return _found(backends, who.settings, who.torch, unobserved)


@lru_cache(_MOST)
def _found(
    backends: frozenset[str], settings: tuple[tuple[str, str], ...], torch: str, unobserved: str
) -> tuple[DeviceSetting, ...]:
    return settings_in_the_way(sorted(backends), dict(settings), torch, unobserved=unobserved)
