"""Groups as a rank knows them, while others make and drop theirs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from frtop_probe.recorder.groups import Groups
from frtop_probe.ring.layout import Side


class Made:
    """In the place of a process group."""

    def size(self) -> int:
        return 2


class Table:
    """In the place of a writer: takes what is entered, and does something meanwhile."""

    def __init__(self) -> None:
        self.entered: list[tuple[int, Any]] = []
        self.meanwhile: list[Any] = []

    def enter(self, kind: Side, number: int, payload: Any) -> bool:
        assert kind is Side.GROUP
        self.entered.append((number, payload["exact"]))
        if self.meanwhile:
            self.meanwhile.pop()
        return True


def test_a_group_may_go_while_all_are_made_relative() -> None:
    table = Table()
    groups: Any = Groups(table, SimpleNamespace(_world=SimpleNamespace()))  # type: ignore[arg-type]
    made = [Made() for _ in range(3)]
    for number in range(3):
        groups.describe(groups.register(str(number), made[number]), made[number])
    table.entered.clear()
    table.meanwhile = [made.pop()]
    groups.loosen()
    assert table.entered == [(1, False), (2, False), (3, False)]
    assert len(groups.known) == 2
