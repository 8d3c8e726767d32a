"""What holds for all tests."""

from __future__ import annotations

from hypothesis import settings

# How fast something is, is measured by `make bench`: a busy machine must not fail a property.
settings.register_profile("frtop", deadline=None)
settings.load_profile("frtop")
