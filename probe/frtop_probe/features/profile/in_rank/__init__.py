"""torch's profiler inside a rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from frtop_probe.features.profile.in_rank.requests import ProfileRequests

if TYPE_CHECKING:
    from frtop_probe.recorder.feature import RankFeature
    from frtop_probe.recorder.recorder import Recorder


def attach(recorder: Recorder, torch: Any) -> RankFeature:
    ring = recorder.ring.path
    return ProfileRequests(torch, ring, recorder.steps, recorder.pending, recorder.expect_ops)
