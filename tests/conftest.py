"""What holds for all tests."""

from __future__ import annotations

import os

# Agents under test look at no process without a recorder: other tests run some beside them.
os.environ["FRTOP_OUTSIDE"] = "0"
