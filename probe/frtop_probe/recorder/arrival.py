"""Calls back when a module has been imported, without importing it or looking for it.

Loaded on its own by `zero/sitecustomize.py` at every start of Python, hence no imports
but `sys`, and annotations in quotes: `__future__` alone would be a fifth of the cost.
"""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType


class Arrival:
    """A finder on `sys.meta_path` that waits for one module, then takes itself off."""

    def __init__(self, name: str, then: "Callable[[ModuleType], object]") -> None:
        self.name = name
        self.then = then

    def find_spec(
        self, name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        if name != self.name:
            return None
        self.leave()
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(name, path, target) if find else None
            if spec is not None:
                return self._watched(spec)
        return None

    def leave(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def _watched(self, spec: "ModuleSpec") -> "ModuleSpec":
        loader, then = spec.loader, self.then
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return spec

        def exec_module(module: "ModuleType") -> None:
            execute(module)
            then(module)

        try:
            # On the instance: the loader keeps its type and all that others ask it for.
            loader.exec_module = exec_module  # type: ignore[union-attr, method-assign]
        except AttributeError:
            return spec
        return spec


def when_imported(name: str, then: "Callable[[ModuleType], object]") -> None:
    """Calls `then(module)` now if the module is there, else right after its import."""
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    if module is not None and not getattr(spec, "_initializing", False):
        then(module)
        return
    sys.meta_path.insert(0, Arrival(name, then))
