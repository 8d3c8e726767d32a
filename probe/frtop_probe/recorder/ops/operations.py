"""The `c10d` ops of the loaded torch, read from their schemas.

Only the names of arguments are assumed: positions change between releases, and trailing
arguments are missing when C++ calls with defaults.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

KINDS: Final = {
    "_allgather_base_": "all_gather_into_tensor",
    "_reduce_scatter_base_": "reduce_scatter_tensor",
    "allgather_": "all_gather",
    "allgather_coalesced_": "all_gather_coalesced",
    "allgather_into_tensor_coalesced_": "all_gather_into_tensor_coalesced",
    "allreduce_": "all_reduce",
    "allreduce_coalesced_": "all_reduce_coalesced",
    "alltoall_": "all_to_all",
    "alltoall_base_": "all_to_all_single",
}
"""Names as users write them, if they differ from the op's name without underscores."""

P2P: Final = frozenset({"send", "recv_", "recv_any_source_"})
UNSIGNALLED: Final = P2P | {
    "_reduce_scatter_base_",
    "reduce_scatter_",
    "reduce_scatter_tensor_coalesced_",
}
"""Ops whose handles do not report completion in time on gloo: those of p2p do so only after the
program has waited for them, those of reduce_scatter never."""
BARRIERS: Final = frozenset({"barrier", "monitored_barrier_"})
"""Ops whose tensor is a dummy that only selects the device."""


@dataclass(frozen=True, slots=True)
class TensorArgument:
    """An argument with tensors. `depth` is 0 for a tensor, 1 for a list, 2 for a list of lists."""

    position: int
    depth: int
    output: bool


@dataclass(frozen=True, slots=True)
class Operation:
    """Positions of an op's arguments; -1 if the op does not have the argument."""

    name: str
    kind: str
    group: int
    tensors: tuple[TensorArgument, ...]
    root: int
    peer: int
    tag: int
    reduce: int
    async_op: int
    timeout: int
    in_splits: int
    out_splits: int

    @property
    def p2p(self) -> bool:
        return self.name in P2P

    @property
    def unsignalled(self) -> bool:
        return self.name in UNSIGNALLED

    @property
    def barrier(self) -> bool:
        return self.name in BARRIERS

    @property
    def always_sync(self) -> bool:
        return self.async_op < 0 and not self.p2p and self.barrier


def operations(schemas: list[Any]) -> list[Operation]:
    """Returns every op of the `c10d` namespace that takes a process group."""
    found = []
    for schema in schemas:
        namespace, _, name = schema.name.partition("::")
        if namespace != "c10d" or schema.overload_name:
            continue
        at = {argument.name: position for position, argument in enumerate(schema.arguments)}
        if "process_group" in at:
            found.append(_operation(name, schema, at))
    return found


def _operation(name: str, schema: Any, at: dict[str, int]) -> Operation:
    tensors = []
    for position, argument in enumerate(schema.arguments):
        text = str(argument.type)
        if "Tensor" in text and argument.name != "sparse_indices":
            output = argument.name.startswith("output") or name in ("recv_", "recv_any_source_")
            tensors.append(TensorArgument(position, text.count("List["), output))
    return Operation(
        name=name,
        kind=KINDS.get(name, name.strip("_")),
        group=at["process_group"],
        tensors=tuple(tensors),
        root=at.get("root_rank", -1),
        peer=at.get("dst", at.get("src", -1)),
        tag=at.get("tag", -1),
        reduce=at.get("reduce_op", -1),
        async_op=at.get("async_op", at.get("asyncOp", -1)),
        timeout=at.get("timeout", -1),
        in_splits=at.get("input_split_sizes", -1),
        out_splits=at.get("output_split_sizes", -1),
    )
