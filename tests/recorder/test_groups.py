"""The table of process groups, while other threads create and drop groups."""

from __future__ import annotations

import tracemalloc
from types import SimpleNamespace
from typing import Any

import pytest

from frtop_probe.recorder.ops import group_calls
from frtop_probe.recorder.ops.groups import MAX_CHANNELS, Epochs, GroupTable, RecordedGroup
from frtop_probe.ring import layout
from frtop_probe.ring.layout import MESSAGES, Side


class FakeProcessGroup:
    def size(self) -> int:
        return 2


class FakeWriter:
    """Collects the entries, and drops a process group during a write."""

    shape = layout.SMALL._replace(groups=0)

    def __init__(self) -> None:
        self.entries: list[tuple[int, Any]] = []
        self.to_drop: list[Any] = []

    def write_entry(self, kind: Side, number: int, payload: Any) -> bool:
        assert kind is Side.GROUP
        self.entries.append((number, payload["exact"]))
        if self.to_drop:
            self.to_drop.pop()
        return True


def test_a_group_may_be_dropped_while_all_are_marked_inexact() -> None:
    writer = FakeWriter()
    c10d = SimpleNamespace(_world=SimpleNamespace())
    groups: Any = GroupTable(writer, c10d)  # type: ignore[arg-type]
    process_groups = [FakeProcessGroup() for _ in range(3)]
    for number in range(3):
        process_group = process_groups[number]
        groups.describe(groups.register(str(number), process_group), process_group)
    del process_group
    writer.entries.clear()
    writer.to_drop = [process_groups.pop()]
    groups.mark_inexact()
    assert writer.entries == [(1, False), (2, False), (3, False)]
    assert len(groups.known) == 2


def test_messages_count_from_one_again_and_not_after_a_failure() -> None:
    group = RecordedGroup(1, "0", None, exact=True)
    sent, other = ("send", 2, 0), ("send", 2, 1)
    numbers = [group.next_message(sent) for _ in range(MESSAGES + 2)]
    assert numbers == [*range(1, MESSAGES + 1), 1, 2]
    assert group.next_message(other) == 1
    group.lose_count(sent)
    assert (group.next_message(sent), group.next_message(other)) == (0, 2)
    for tag in range(2, MAX_CHANNELS + 5):
        last = group.next_message(("send", 2, tag))
    assert (last, len(group.channels)) == (0, MAX_CHANNELS)


def test_the_default_group_ends_all_groups_whether_it_is_named_or_not() -> None:
    ended: list[object] = []

    class Listener:
        def call_began(self, *_: object) -> int:
            return 0

        call_ended = call_began

        def group_destroying(self, group: object) -> None:
            ended.append(group)

        group_destroyed = group_destroying

    def destroy_process_group(group: object = None) -> None:
        c10d.group.WORLD = None

    world, other = object(), object()
    c10d: Any = SimpleNamespace(
        group=SimpleNamespace(WORLD=world), destroy_process_group=destroy_process_group
    )
    group_calls.wrap(c10d, Listener(), None)  # type: ignore[arg-type]
    for group in (other, world, None):
        c10d.group.WORLD = world
        c10d.destroy_process_group(group)
    assert ended == [other, other, None, None, None, None]


@pytest.mark.parametrize("name", ["17", "0", "65535", "65536", "9" * 30, "²", "pipeline", ""])
def test_groups_of_one_name_and_members_are_counted(name: str) -> None:
    epochs = Epochs()
    made = [(name, "0-7"), (name, "0-3"), (name, "0-7"), ("18", "0-7"), (name, "0-7"),
            (name, "0-3"), (name, "4-7"), ("18", "0-7")]  # fmt: skip
    assert [epochs.count(*one) for one in made] == [0, 0, 1, 0, 2, 1, 0, 1]


def test_little_is_kept_of_each_of_thousands_of_groups() -> None:
    epochs = Epochs()
    tracemalloc.start()
    try:
        assert not any(epochs.count(str(number), "0-7") for number in range(20_000))
        assert tracemalloc.get_traced_memory()[0] < 10 * 20_000
    finally:
        tracemalloc.stop()
