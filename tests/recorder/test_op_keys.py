"""Keys of ops: equal for equal ops, and bounded."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from frtop_probe.recorder.ops import signatures
from frtop_probe.recorder.ops.operations import Operation, operations
from frtop_probe.recorder.ops.signatures import SignatureTable, key_of
from frtop_probe.recorder.own_ring import OwnRing, create
from frtop_probe.ring import sizes
from frtop_probe.ring.reader import Ring

pytestmark = pytest.mark.torch
torch: Any = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def known_ops() -> dict[str, Operation]:
    import torch.distributed  # noqa: PLC0415 - defines the ops

    core = torch._C
    names = {n.partition(".")[0] for n in core._dispatch_get_all_op_names() if "c10d::" in n}
    schemas = [one for name in names for one in core._jit_get_schemas_for_operator(name)]
    return {one.name: one for one in operations(schemas)}


@pytest.fixture
def writer(tmp_path: Path) -> OwnRing:
    tmp_path.chmod(0o700)
    return create([tmp_path])


def arguments(operation: Operation, *tensors: Any, splits: tuple[Any, Any] = ((), ())) -> list[Any]:
    """Returns arguments with these tensors, in the order of the schema."""
    args: list[Any] = [None] * 12
    for argument, given in zip(operation.tensors, tensors, strict=True):
        args[argument.position] = given
    if operation.in_splits >= 0:
        args[operation.in_splits], args[operation.out_splits] = map(list, splits)
    if operation.tag >= 0:
        args[operation.tag] = 3
    return args


def test_lists_that_are_divided_otherwise_have_other_keys(known_ops: dict[str, Operation]) -> None:
    one, two = torch.empty(1), torch.empty(2)
    gather = known_ops["allgather_"]
    given = [([[one, one, two]], [one]), ([[one, two, two]], [one]), ([[one, one]], [two]),
             ([[one, one]], [one]), ([[one]], [one]), ([[]], [one])]  # fmt: skip
    keys = [key_of(gather, arguments(gather, *tensors))[0] for tensors in given]
    assert len(set(keys)) == len(keys)
    again = [key_of(gather, arguments(gather, *tensors))[0] for tensors in given]
    assert again == keys


class Exchanges:
    """Issues all_to_alls as the hook does, without torch."""

    def __init__(self, operation: Operation, writer: OwnRing) -> None:
        self.operation = operation
        self.tensor = torch.empty(4)
        table = SignatureTable(writer)
        self.known, self.write = table.writer_of(operation)
        self.floor = table.floor
        self.written = 0

    def issue(self, splits: list[int]) -> tuple[int, int]:
        """Returns the op's form and the position of its sizes."""
        args = arguments(self.operation, self.tensor, self.tensor, splits=(splits, splits[::-1]))
        key, on_cpu = key_of(self.operation, args)
        assert on_cpu
        found = self.known.get(key)
        if found is None or found[2] < self.floor[0]:
            found = self.write(key, args)
            self.written += 1
        return found[0], found[1]


@pytest.fixture
def exchanges(known_ops: dict[str, Operation], writer: OwnRing) -> Exchanges:
    return Exchanges(known_ops["alltoall_base_"], writer)


def test_new_splits_are_written_each_time_and_read_back(
    exchanges: Exchanges, writer: OwnRing
) -> None:
    table = random.Random(5)
    form, _ = exchanges.issue([0] * 8)
    described = Ring(writer.path).forms[form]
    for _ in range(400):
        splits = [table.randrange(10**6) for _ in range(8)]
        again, position = exchanges.issue(splits)
        assert again == form
        at = writer.shape.sizes_offset + position % writer.shape.chunks * 64
        found = sizes.integers(writer.map[at : at + 192], position)
        assert found is not None
        decoded = sizes.decode(described, found)
        assert decoded is not None
        assert decoded.in_splits == tuple(splits)
        assert decoded.out_splits == tuple(splits[::-1])
    assert exchanges.written == 401


def test_keys_of_new_splits_are_bounded_by_their_length(exchanges: Exchanges) -> None:
    for n in range(100):
        exchanges.issue([n] * 256)
    assert len(exchanges.known) == signatures.MAX_SPLITS // 257


def test_a_few_splits_in_turn_are_found_by_key(exchanges: Exchanges) -> None:
    for n in range(1000):
        exchanges.issue([n % 7, 1])
    assert exchanges.written == 7


def test_keys_are_bounded_and_the_oldest_goes_first(
    known_ops: dict[str, Operation], writer: OwnRing
) -> None:
    operation, shapes = known_ops["allreduce_"], 3000
    known, write = SignatureTable(writer).writer_of(operation)
    flat = torch.empty(shapes)
    for n in range(shapes):
        args = arguments(operation, [flat[: n + 1]])
        write(key_of(operation, args)[0], args)
    assert len(known) == signatures.MAX_KEYS
    assert [key[1][1][0] for key in known] == list(
        range(shapes - signatures.MAX_KEYS + 1, shapes + 1)
    )
