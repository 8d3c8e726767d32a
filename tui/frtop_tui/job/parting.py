"""A hint that members of a group issued different ops: sums of theirs differ.

No verdict: some differences are legal, and only the ops themselves tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from frtop_probe import wire


@dataclass(frozen=True, slots=True)
class Parting:
    """Among the ops `first` to `last` of a group is one that differs between members.

    `sides` are ranks of which the sums are alike, the largest side first. With `pairs` all
    sums are alike, but what the members sent and received does not pair. `complete` says
    that all members have told. `ops` are those of the ranks that were asked, as far as they
    still had them.
    """

    id: int
    group: wire.Group
    first: int
    last: int
    sides: tuple[tuple[int, ...], ...]
    since_ns: int  # operator's clock: when it was noticed
    pairs: bool = False
    complete: bool = False
    ops: Mapping[int, tuple[wire.Op, ...]] = field(default_factory=dict)
