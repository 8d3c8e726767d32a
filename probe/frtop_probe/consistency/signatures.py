"""The fields of a signature that all members of a group must agree on.

`difference` compares two signatures field by field. `agreed` returns the same fields as a text to
hash: if all fields are known, two texts are equal exactly when no field differs. Both skip fields
that may legally differ: a healthy program is never a collective mismatch.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from frtop_probe import wire

RULE: Final = 1
"""Version of `agreed`: hashes are comparable only within one version."""
RULE_OF_SIZES: Final = 2
"""The version without reduce ops and roots, for sources that do not know them."""

SIZELESS: Final = frozenset({"barrier", "monitored_barrier"})
"""Kinds without tensors to compare."""
SPLIT: Final = frozenset({"all_to_all", "all_to_all_single"})
"""Kinds in which ranks may send different sizes; only the splits of each pair must agree."""
_ROOT_SIDED_OUTPUT: Final = frozenset({"gather"})
_ROOT_SIDED_INPUT: Final = frozenset({"scatter"})
_ROOTED: Final = frozenset({"broadcast", "reduce", "gather", "scatter"})
_UNEVEN_ON_NCCL: Final = frozenset({"all_gather", "reduce_scatter"})
"""NCCL splits these into broadcasts or reductions if the list is uneven."""
_WORD: Final = 2**64
"""Larger than any tensor: nonsense sizes must not produce unbounded integers."""

Specs = tuple[wire.TensorSpec, ...]


def difference(one: wire.Signature, other: wire.Signature, backend: str = "") -> str | None:
    """Returns the first field that differs but must not; None if all known fields agree."""
    if one.kind != other.kind:
        return "kind"
    if one.reduce is not None and other.reduce is not None and one.reduce != other.reduce:
        return "reduce op"
    if one.root is not None and other.root is not None and one.root != other.root:
        return "root"
    sizes = _sizes_must_agree(one.kind, backend)
    for mine, theirs in zip(_tensor_sides(one), _tensor_sides(other), strict=True):
        if not mine or not theirs or mine == theirs:
            continue
        if {spec.dtype for spec in mine} != {spec.dtype for spec in theirs}:
            return "dtype"
        if sizes and _elements(mine) != _elements(theirs):
            return "size"
    return None


def agreed(signature: wire.Signature, backend: str = "", rule: int = RULE) -> str | None:
    """Returns all fields that must be equal on every member; None while one is unknown."""
    kind = signature.kind
    if rule == RULE_OF_SIZES:
        signature = replace(signature, reduce=None, root=None)
    elif (_reduces(kind) and signature.reduce is None) or (
        kind in _ROOTED and signature.root is None
    ):
        return None
    sides = _tensor_sides(signature)
    if not any(sides) and _has_tensors(kind):
        return None
    sizes = _sizes_must_agree(kind, backend)
    parts = [kind, signature.reduce or "", "" if signature.root is None else str(signature.root)]
    for specs in sides:
        parts.append(",".join(sorted({spec.dtype for spec in specs})))
        parts.append(str(_elements(specs)) if specs and sizes else "")
    return "\n".join(parts)


def _reduces(kind: str) -> bool:
    """Returns whether ops of this kind have a reduce op."""
    return "reduce" in kind


def _has_tensors(kind: str) -> bool:
    """Returns whether any property of the tensors of such ops must agree."""
    return kind not in SIZELESS and "coalesced" not in kind


def _tensor_sides(signature: wire.Signature) -> tuple[Specs, Specs]:
    """Returns the inputs and the outputs that must agree."""
    kind = signature.kind
    if not _has_tensors(kind):
        return (), ()
    inputs = () if kind in _ROOT_SIDED_INPUT else signature.inputs or ()
    outputs = () if kind in _ROOT_SIDED_OUTPUT else signature.outputs or ()
    return inputs, outputs


def _sizes_must_agree(kind: str, backend: str) -> bool:
    return kind not in SPLIT and not (kind in _UNEVEN_ON_NCCL and "gloo" not in backend)


def _elements(specs: Specs) -> int:
    """Returns the number of elements: reshaping a tensor does not change what is sent."""
    total = 0
    for spec in specs:
        elements = spec.count
        for length in spec.shape:
            elements = elements * length % _WORD
        total += elements
    return total
