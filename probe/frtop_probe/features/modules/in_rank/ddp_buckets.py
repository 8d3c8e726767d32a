"""Reads DDP's buckets from its reducer: which parameters each has.

The reducer issues ops in C++, from the hook of a bucket's last gradient. It returns its buckets
with a new tensor for each gradient; a dispatch mode replaces these with one empty tensor, so
nothing is allocated. We call it after a forward, because it holds a lock inside an op.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from frtop_probe.features.modules.in_rank.module_names import walk

DDP: Final = "DistributedDataParallel"
OUTERMOST: Final = "the model"
MAX_MEMBERS: Final = 64
"""Most modules that a bucket's text names."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """One bucket: the `id` of its group, the modules and the parameters in it.

    `parameters` are names and numbers of values, in the order of their gradients in memory.
    """

    index: int
    group: int
    modules: tuple[str, ...]
    parameters: tuple[tuple[str, int], ...]

    @property
    def values(self) -> int:
        return sum(values for _, values in self.parameters)

    @property
    def text(self) -> str:
        """Its name on screens."""
        names = [name or OUTERMOST for name in self.modules]
        which = names[0] if len(names) == 1 else f"{names[0]} ... {names[-1]}" if names else "?"
        count = len(self.parameters)
        what = "parameter" if count == 1 else "parameters"
        return f"DDP bucket {self.index}: {which} ({count} {what})"


class _Known:
    __slots__ = ("buckets", "ddp", "issued", "rebuilt", "task")

    def __init__(self, ddp: Any, rebuilt: bool, buckets: tuple[Bucket, ...]) -> None:
        self.ddp = weakref.ref(ddp)
        self.rebuilt = rebuilt
        self.buckets = buckets
        self.task = -1
        self.issued = 0


class DDPBuckets:
    """Buckets of all DDP modules whose forward we saw."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._known: dict[int, _Known] = {}
        self._of_parameter: dict[int, _Known] = {}
        self._nothing = torch.empty(0)

    def look(self, ddp: Any) -> None:
        """Reads the buckets of a DDP module after its forward, if DDP has rebuilt them."""
        rebuilt = bool(getattr(ddp, "_has_rebuilt_buckets", False))
        known = self._known.get(id(ddp))
        if known is not None and known.ddp() is ddp and known.rebuilt == rebuilt:
            return
        ask = getattr(ddp.reducer, "_get_zeros_like_grad_buckets", None)
        buckets: tuple[Bucket, ...] = ()
        names: dict[int, str] = {}
        if ask is not None:
            names = _parameter_names(ddp.module)
            with _allocates_nothing(self._torch, self._nothing):
                found = ask()
            group = id(ddp.process_group)
            buckets = tuple(_bucket(one, group, names) for one in found)
        self._known[id(ddp)] = known = _Known(ddp, rebuilt, buckets)
        self._of_parameter.update(dict.fromkeys(names, known))

    def issued(self, parameter: Any, task: int, process_group: Any, values: int) -> Bucket | None:
        """Returns the bucket whose op DDP issues now; None if unknown.

        Args:
            parameter: the one whose gradient was accumulated last.
            task: number of the backward. A reducer issues its buckets in order.
            process_group: of the op.
            values: how many values the op has.
        """
        known = self._of_parameter.get(id(parameter))
        if known is None or known.ddp() is None:
            return None
        if known.task != task:
            known.task, known.issued = task, 0
        if known.issued >= len(known.buckets):
            return None
        bucket = known.buckets[known.issued]
        if bucket.values != values or bucket.group != id(process_group):
            return None
        known.issued += 1
        return bucket


def _parameter_names(model: Any) -> dict[int, str]:
    """Returns names as in a state dict, without torch's wrappers, by `id` of the parameter."""
    names: dict[int, str] = {}
    for module, (_, path) in walk(model):
        for name, one in module._parameters.items():  # noqa: SLF001
            if one is not None:
                names.setdefault(id(one), f"{path}.{name}" if path else name)
    return names


def _bucket(found: Any, group: int, names: dict[int, str]) -> Bucket:
    parameters: Sequence[Any] = found.parameters()
    order = {name: place for place, name in enumerate(names.values())}
    called = [names.get(id(one), "?") for one in parameters]
    in_order = sorted(called, key=lambda name: order.get(name, -1))
    modules = dict.fromkeys(name.rpartition(".")[0] for name in in_order)
    sizes = (int(one.numel()) for one in parameters)
    return Bucket(found.index(), group, tuple(modules), tuple(zip(called, sizes, strict=True)))


def _allocates_nothing(torch: Any, nothing: Any) -> Any:
    """Returns a mode in which each new tensor is the empty one."""
    kind = torch.utils._python_dispatch.TorchDispatchMode  # noqa: SLF001

    class Mode(kind):  # type: ignore[misc, valid-type]
        def __torch_dispatch__(self, *_: Any, **__: Any) -> Any:
            return nothing

    return Mode()
