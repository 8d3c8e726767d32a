"""The times and counts by which the diagnosis decides, each with its reason."""

from __future__ import annotations

from typing import Final

RANKS_TELL_NS: Final = 2_000_000_000
"""Members that are heard at all have told what they issued by then."""
HOST_SKEW_NS: Final = 1_000_000_000
"""Hosts speak at different moments: what one rank did last may be a second away."""
RINGS_READ_NS: Final = 2_000_000_000
"""The rings of the dead are read by then, or will not be."""
BUSY_NS: Final = 10_000_000_000
"""More than clocks of the hosts of one job differ. A rank that was busy for so long had time."""
MOST_ROOTS: Final = 16
"""Nobody reads more root causes, and each costs a pass over the graph."""
MOST_VERDICTS: Final = 8
"""Nobody reads more verdicts."""
AGENT_QUIET_NS: Final = 1_000_000_000
"""An agent speaks several times a second: after this its host counts as quiet."""
CONFIRM_NS: Final = 2_000_000_000
"""Two looks closer together than this may show one and the same hiccup."""
FORGET_SUSPICION_NS: Final = 5_000_000_000
"""A suspicion that was not repeated for so long begins anew."""
MOST_ABSENT_EXPLAINED: Final = 64
"""Absent ranks of one op that are looked into one by one."""
SUSPECTS_PER_NODE: Final = 6
"""Culprits and absent members of one op that are looked at: more show the same."""
