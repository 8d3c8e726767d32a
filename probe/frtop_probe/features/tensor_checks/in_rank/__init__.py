"""Numbers of ops and steps, sampled in a rank."""

from __future__ import annotations

from typing import Final

from frtop_probe.features.tensor_checks.in_rank.requests import NumberRequests

attach: Final = NumberRequests
