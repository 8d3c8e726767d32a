"""Calls a function when the program has imported a module, without importing that module.

`zero/sitecustomize.py` loads only this file, at every start of Python. So this file imports only
`sys`, and quotes annotations: importing `__future__` would add a fifth to the cost.
"""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType


class ImportHook:
    """A finder on `sys.meta_path` that waits for one module and then removes itself."""

    def __init__(self, name: str, callback: "Callable[[ModuleType], object]") -> None:
        self.name = name
        self.callback = callback

    def find_spec(
        self, name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        if name != self.name:
            return None
        self.remove()
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(name, path, target) if find else None
            if spec is not None:
                return self._hooked(spec)
        return None

    def remove(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def _hooked(self, spec: "ModuleSpec") -> "ModuleSpec":
        loader, callback = spec.loader, self.callback
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return spec

        def exec_module(module: "ModuleType") -> None:
            execute(module)
            callback(module)

        try:
            # On the instance, so the loader keeps its type and all other attributes.
            loader.exec_module = exec_module  # type: ignore[union-attr, method-assign]
        except AttributeError:
            return spec
        return spec


def when_imported(name: str, callback: "Callable[[ModuleType], object]") -> None:
    """Calls `callback(module)` now if the module is loaded, otherwise right after its import."""
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    if module is not None and not getattr(spec, "_initializing", False):
        callback(module)
        return
    sys.meta_path.insert(0, ImportHook(name, callback))
