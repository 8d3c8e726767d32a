"""How ranks without a recorder ended: only their exit status tells."""

from __future__ import annotations

import pytest

from diagnosis.scenes import only, told
from diagnosis.unprepared import Unprepared


@pytest.mark.parametrize(("first", "kind", "culprits"), [
    ({"signal": 9}, "dead", (0,)),
    ({"signal": 11}, "dead", (0,)),
    ({"exit_code": 3}, "dead", (0,)),
    # It may be the victim of an op that does not fit its own, or of a closed connection.
    ({"signal": 6}, "undecided", ()),
    ({"exit_code": 1}, "undecided", ()),
])  # fmt: skip
def test_who_ended_of_itself(first: dict[str, int], kind: str, culprits: tuple[int, ...]) -> None:
    scene = Unprepared(4)
    scene.ends(0, ago=5, signal=first.get("signal"), exit_code=first.get("exit_code"))
    for rank in (1, 3):
        scene.ends(rank, ago=3, exit_code=1)
    found = scene.settle(6)
    assert told(found, "kind", "culprits") == (kind, culprits)
    assert only(found).first_ranks[0] == 0  # where the eye should begin, whoever is to blame


def test_who_ended_after_one_that_left_is_no_finding_of_its_own() -> None:
    scene = Unprepared(3)
    scene.ends(1, ago=5, exit_code=0)
    scene.waits([2], "all_reduce", for_s=8)
    scene.ends(0, ago=3, exit_code=1)
    assert told(scene.settle(4), "why.cause", "culprits") == ("exited", (1,))
