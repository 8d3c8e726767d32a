"""What an optimizer works on: its parameters in an order that is the same on all ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

MAX_STEP: Final = 32 * 1024 * 1024
"""Bytes of parameters that are read in one step, and of gradients: of larger models each step has
the next ones. Which ones depends on the step's number alone, so that all ranks read the same."""
MOST_PARAMETERS: Final = 256
"""In one step."""


def step_tensors(optimizer: Any, step: int) -> Iterator[tuple[int, str, Any]]:
    """Yields place, name ("" where it has none) and parameter of those whose turn it is."""
    found: list[tuple[int, str, Any]] = []
    for group in optimizer.param_groups:
        names = group.get("param_names") or ()
        for index, parameter in enumerate(group["params"]):
            name = str(names[index]) if index < len(names) else ""
            found.append((len(found), name, parameter))
    turns = _turns([int(one.numel()) * int(one.dtype.itemsize) for _, _, one in found])
    if turns:
        first, last = turns[step % len(turns)]
        yield from found[first:last]


def _turns(sizes: list[int]) -> list[tuple[int, int]]:
    """First and last place of each step's parameters."""
    found: list[tuple[int, int]] = []
    first = total = 0
    for place, size in enumerate(sizes):
        if place > first and (total + size > MAX_STEP or place - first >= MOST_PARAMETERS):
            found.append((first, place))
            first, total = place, 0
        total += size
    if sizes:
        found.append((first, len(sizes)))
    return found
