"""What members of a group have to agree on when they issue an op, in one home.

`difference` compares two signatures field by field. `agreed` gives the same knowledge as a
text, for hashes: where all is known, two texts are equal exactly when nothing differs.
Some fields legally differ; comparing them would call healthy programs diverged.
"""

from __future__ import annotations

from typing import Final

from frtop_probe import wire

RULE: Final = 1
"""Changes whenever `agreed` gives another text: hashes are compared within one rule only."""

SIZELESS: Final = frozenset({"barrier", "monitored_barrier"})
SPLIT: Final = frozenset({"all_to_all", "all_to_all_single"})
"""What a rank sends there is its own business; only pairs of splits have to agree."""
_ROOT_SIDED_OUTPUT: Final = frozenset({"gather"})
_ROOT_SIDED_INPUT: Final = frozenset({"scatter"})
_ROOTED: Final = frozenset({"broadcast", "reduce", "gather", "scatter"})
_UNEVEN_ON_NCCL: Final = frozenset({"all_gather", "reduce_scatter"})
"""NCCL takes these apart into broadcasts or reductions when lists are uneven."""
_WORD: Final = 2**64
"""No tensor is as large; what makes no sense must not make numbers without end."""

Specs = tuple[wire.TensorSpec, ...]


def difference(one: wire.Signature, other: wire.Signature, backend: str = "") -> str | None:
    """Name of the first field that illegally differs; None if all known ones agree."""
    if one.kind != other.kind:
        return "kind"
    if one.reduce is not None and other.reduce is not None and one.reduce != other.reduce:
        return "reduce op"
    if one.root is not None and other.root is not None and one.root != other.root:
        return "root"
    sizes = _sizes_count(one.kind, backend)
    for mine, theirs in zip(_sides(one), _sides(other), strict=True):
        if not mine or not theirs or mine == theirs:
            continue
        if {spec.dtype for spec in mine} != {spec.dtype for spec in theirs}:
            return "dtype"
        if sizes and _elements(mine) != _elements(theirs):
            return "size"
    return None


def agreed(signature: wire.Signature, backend: str = "") -> str | None:
    """All that has to be the same on every member; None while any of it is unknown."""
    kind = signature.kind
    if _reduces(kind) and signature.reduce is None:
        return None
    if kind in _ROOTED and signature.root is None:
        return None
    sides = _sides(signature)
    if not any(sides) and _has_tensors(kind):
        return None
    sizes = _sizes_count(kind, backend)
    parts = [kind, signature.reduce or "", "" if signature.root is None else str(signature.root)]
    for specs in sides:
        parts.append(",".join(sorted({spec.dtype for spec in specs})))
        parts.append(str(_elements(specs)) if specs and sizes else "")
    return "\n".join(parts)


def _reduces(kind: str) -> bool:
    """Whether ops of this kind have a reduce op."""
    return "reduce" in kind


def _has_tensors(kind: str) -> bool:
    """Whether anything has to agree in the tensors of such ops."""
    return kind not in SIZELESS and "coalesced" not in kind


def _sides(signature: wire.Signature) -> tuple[Specs, Specs]:
    """The tensors that have to be alike, of inputs and of outputs."""
    kind = signature.kind
    if not _has_tensors(kind):
        return (), ()
    inputs = () if kind in _ROOT_SIDED_INPUT else signature.inputs or ()
    outputs = () if kind in _ROOT_SIDED_OUTPUT else signature.outputs or ()
    return inputs, outputs


def _sizes_count(kind: str, backend: str) -> bool:
    return kind not in SPLIT and not (kind in _UNEVEN_ON_NCCL and "gloo" not in backend)


def _elements(specs: Specs) -> int:
    """A reshaped tensor is the same on the wire."""
    total = 0
    for spec in specs:
        elements = spec.count
        for length in spec.shape:
            elements = elements * length % _WORD
        total += elements
    return total
