"""Adds modules to a profile: a label around each call, and a description of the model.

Only if the rank records modules, and only while an operator's profile runs. The labels are torch's
own for hot paths. They are not ops: modes and compiled graphs do not see them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from frtop_probe.features.modules.in_rank.module_calls import ModuleCalls
from frtop_probe.features.modules.in_rank.module_names import (
    ModuleNames,
    Name,
    is_wrapper,
    kind_of,
    walk,
)
from frtop_probe.recorder.guard import raised_by_signal_handler
from frtop_probe.recorder.ops.kernel import hide_from_dynamo
from frtop_probe.ring.beside import create_file

MAX_MODULES: Final = 10_000
MAX_PARAMETERS: Final = 40_000
DESCRIBE_S: Final = 0.2
"""Limits of the description: the thread that trains waits for it."""
_COMPOSITE: Final = "CompositeImplicitAutograd"
Described = dict[str, Any]


class ModuleProfile:
    """The modules of one profile. The profiled thread calls `begin` and `end`."""

    def __init__(self, torch: Any, calls: ModuleCalls, names: ModuleNames, label: str) -> None:
        self._torch = torch
        self._calls = calls
        self._names = names
        self._kind = getattr(torch._C._profiler, "_RecordFunctionFast", None)  # noqa: SLF001
        self._found: Described | None = None
        self._label = self._begin_label
        self._prefix = label
        hide_from_dynamo(torch, ModuleProfile._begin_label)

    def begin(self) -> None:
        """Describes the modules called so far, and begins to label calls.

        Runs at the end of a step, because FSDP2's parameters are usually sharded then.
        """
        try:
            self._found = described(self._calls, self._names)
        except Exception as error:
            if raised_by_signal_handler(error):
                raise
            self._found = None
        if self._kind is not None:
            self._calls.label = self._label

    def end(self) -> None:
        """Stops labelling."""
        self._calls.label = None

    def drop(self) -> None:
        """Forgets the description."""
        self._found = None

    def save(self, path: Path) -> None:
        """Writes the description, if possible: a trace is useful without it."""
        found, self._found = self._found, None
        if found is None:
            return
        found["composite"] = composite_ops(self._torch)
        try:
            create_file(path)
            path.write_text(json.dumps(found, separators=(",", ":")))
        except OSError:
            with suppress(OSError):
                path.unlink()

    def _begin_label(self, module: Any) -> Any:
        name = self._names.of(module)
        if name is None or self._kind is None:
            return None
        label = self._kind(self._prefix + ".".join(filter(None, name)))
        label.__enter__()
        return label


def described(calls: ModuleCalls, names: ModuleNames) -> Described:
    """Describes all modules below the roots, with their parameters.

    Leaves out torch's wrappers, whose inner modules have the same name. If several modules have one
    name, the first is described.
    """
    modules: list[Described] = []
    left_out = parameters = 0
    seen: set[int] = set()
    named: set[Name] = set()
    deadline = time.monotonic() + DESCRIBE_S
    for module, (root, path) in _modules(calls, names):
        if id(module) in seen or (root, path) in named or is_wrapper(module):
            continue
        seen.add(id(module))
        named.add((root, path))
        own = [one for one in module._parameters.items() if one[1] is not None]  # noqa: SLF001
        parameters += len(own)
        if (
            len(modules) >= MAX_MODULES
            or parameters > MAX_PARAMETERS
            or time.monotonic() > deadline
        ):
            left_out += 1
            continue
        kind = kind_of(module)
        modules.append({
            "root": root,
            "path": path,
            "type": f"{kind.__module__}.{kind.__qualname__}",
            "parameters": [_parameter(name, one) for name, one in own],
        })  # fmt: skip
    return {"modules": modules, "left_out": left_out}


def _modules(calls: ModuleCalls, names: ModuleNames) -> Iterator[tuple[Any, Name]]:
    """Yields whole models before parts of them that the program also calls directly."""
    roots = [root for one in list(calls.roots.values()) if (root := one()) is not None]
    parts = {id(one) for root in roots for one, _ in walk(root) if one is not root}
    for root in sorted(roots, key=lambda one: id(one) in parts):
        yield from names.walk(root)


def _parameter(name: str, parameter: Any) -> Described:
    """Describes a parameter, as far as it can be read without an op."""
    found: Described = {"name": name, "shape": None, "dtype": ""}
    with suppress(Exception):  # such as an uninitialised one
        found["dtype"] = str(parameter.dtype).removeprefix("torch.")
        found["shape"] = [int(size) for size in parameter.shape]
        placements = getattr(parameter, "placements", None)
        if placements is not None:
            found["placements"] = str(placements)
            found["mesh"] = _mesh_text(parameter.device_mesh)
            local = parameter._local_tensor.shape  # noqa: SLF001
            found["local"] = [int(size) for size in local]
    return found


def _mesh_text(mesh: Any) -> str:
    """`dp=2, tp=4`."""
    names = mesh.mesh_dim_names or ("",) * len(mesh.shape)
    return ", ".join(
        f"{name}={size}" if name else str(size)
        for name, size in zip(names, mesh.shape, strict=True)
    )


def composite_ops(torch: Any) -> list[str]:
    """Returns names of ops that only call other ops: a dispatch mode sees those instead."""
    core = torch._C  # noqa: SLF001
    try:
        composite = set(core._dispatch_get_registrations_for_dispatch_key(_COMPOSITE))  # noqa: SLF001
        every = core._dispatch_get_all_op_names()  # noqa: SLF001
    except (AttributeError, RuntimeError):
        return []
    others = {
        name.partition(".")[0]
        for name in every
        if name not in composite and "out" not in name.partition(".")[2]
    }
    return sorted({name.partition(".")[0] for name in composite} - others)
