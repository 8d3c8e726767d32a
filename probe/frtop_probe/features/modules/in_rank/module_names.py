"""Names modules by their path below the outermost called module, as in a state dict."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any, Final

MAX_LOOKS: Final = 16
"""How often we walk one root. Its modules may change, but a module that we never find must not
cost a walk at each op."""
_INNER: Final = frozenset(
    {"module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}
)
_WRAPPERS: Final = frozenset(
    {
        "DistributedDataParallel",
        "DataParallel",
        "OptimizedModule",
        "FullyShardedDataParallel",
        "CheckpointWrapper",
        "OffloadWrapper",
    }
)
Name = tuple[str, str]
"""Class of the outermost module, and the path below it ("": itself), both without torch's wrappers,
such as DDP. If several models have the same class, the later ones are numbered: `Net #2`."""
_Model = tuple[weakref.ref[Any], int, frozenset[str]]
"""A root, its number, and the paths of its modules that have parameters."""
Table = dict[int, tuple[weakref.ref[Any], Name]]
"""Names of modules or parameters, by their `id`."""


class ModuleNames:
    """Names of the modules below all known roots."""

    def __init__(self, roots: dict[int, weakref.ref[Any]]) -> None:
        self._roots = roots
        self._names: Table = {}
        self._parameters: Table = {}
        self._own_names: dict[int, str] = {}
        """Names of parameters within their modules."""
        self.changes = 0
        """Increases when names may have changed."""
        self._looks: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._models: dict[str, list[_Model]] = {}
        """By class."""

    def of(self, module: Any) -> Name | None:
        """Returns a module's name; None if no known root contains it."""
        return self._find(self._names, module)

    def of_parameter(self, parameter: Any) -> Name | None:
        """Returns the name of a parameter's module."""
        return self._find(self._parameters, parameter)

    def full_name(self, parameter: Any) -> str:
        """Returns a parameter's name below its root, as in a state dict; "" if unknown."""
        module = self.of_parameter(parameter)
        if module is None:
            return ""
        return ".".join(filter(None, (module[1], self._own_names.get(id(parameter), ""))))

    def root_with(self, path: str) -> str:
        """Returns the root with this path; "" if none or several of different classes have it.

        If several models of one class have it: `Net #?`.
        """
        self._look()
        found = {name[0] for _, name in self._names.values() if name[1] == path}
        if len(found) == 1:
            return found.pop()
        kinds = {root.partition(" #")[0] for root in found}
        return f"{kinds.pop()} #?" if len(kinds) == 1 else ""

    def walk(self, root: Any) -> list[tuple[Any, Name]]:
        """Returns all modules below a root with their names, each once."""
        found = list(walk(root))
        number = self._number_of(_inner(root), found)
        if number > 1:
            found = [(module, (f"{kind} #{number}", path)) for module, (kind, path) in found]
        return found

    def _find(self, table: Table, wanted: Any) -> Name | None:
        for again in (self._look, bool):
            known = table.get(id(wanted))
            if known is not None and known[0]() is wanted:
                return known[1]
            again()
        return None

    def _look(self) -> None:
        for key, reference in list(self._roots.items()):
            root = reference()
            if root is None:
                self._roots.pop(key, None)
                continue
            known = self._looks.get(key)
            looks = known[1] if known is not None and known[0]() is root else 0
            if looks < MAX_LOOKS and not _is_graph(root):
                self._looks[key] = reference, looks + 1
                self._index(root)

    def _index(self, root: Any) -> None:
        changed = False
        for module, name in self.walk(root):
            changed |= _add(self._names, module, name)
            for own_name, parameter in module._parameters.items():  # noqa: SLF001
                if parameter is not None:
                    _add(self._parameters, parameter, name)
                    self._own_names[id(parameter)] = own_name
        self.changes += changed

    def _number_of(self, root: Any, modules: list[tuple[Any, Name]]) -> int:
        """Returns the root's place among the models of its class.

        Models without a common parameter path count as one: a rank may have several pipeline
        stages, which are parts of one model.
        """
        if self._is_part(root):
            return 1  # the whole names its modules
        models = self._models.setdefault(class_of(root), [])
        models[:] = [
            one for one in models if (other := one[0]()) is not None and not self._is_part(other)
        ]
        for known, number, _ in models:
            if known() is root:
                return number
        paths = frozenset(path for module, (_, path) in modules if module._parameters)  # noqa: SLF001
        taken = {number for _, number, others in models if paths & others}
        number = next(one for one in range(1, len(taken) + 2) if one not in taken)
        models.append((weakref.ref(root), number, paths))
        return number

    def _is_part(self, module: Any) -> bool:
        """Returns whether another known root contains it."""
        known = self._names.get(id(module))
        return known is not None and known[0]() is module and bool(known[1][1])


def _add(table: Table, one: Any, name: Name) -> bool:
    """Sets a name; returns whether it has changed.

    A part that is also called on its own keeps the longer path, below the whole.
    """
    known = table.get(id(one))
    former = known[1] if known is not None and known[0]() is one else None
    if former is not None and (name == former or len(name[1]) < len(former[1])):
        return False
    table[id(one)] = weakref.ref(one), name
    return True


def without_wrappers(path: str) -> str:
    """Removes what torch's wrappers add to the path or paths in one of its labels.

    "module" stays, because programs use that name, too.
    """
    return ", ".join(
        ".".join(part for part in one.split(".") if part == "module" or part not in _INNER)
        for one in path.split(", ")
    )


def walk(root: Any) -> Iterator[tuple[Any, Name]]:
    """Yields all modules below a root with their names, each once."""
    kind = inner_class(root)
    seen: set[int] = set()
    rest: list[tuple[Any, str]] = [(root, "")]
    while rest:
        module, path = rest.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        yield module, (kind, path)
        wraps = is_wrapper(module)
        for name, child in reversed(list(module._modules.items())):  # noqa: SLF001
            if child is not None:
                dropped = wraps and name in _INNER
                rest.append((child, path if dropped else f"{path}.{name}" if path else name))


def _is_graph(root: Any) -> bool:
    """Returns whether it is a compiled graph, a module without parts."""
    return not root._modules and any(  # noqa: SLF001
        kind.__name__ == "GraphModule" for kind in type(root).__mro__
    )


def is_backward(module: Any) -> bool:
    """Returns whether it is compiled autograd's graph of a backward."""
    kind = type(_inner(module))
    return kind.__name__.startswith("CompiledAutograd") and any(
        base.__name__ == "GraphModule" for base in kind.__mro__
    )


def inner_class(module: Any) -> str:
    """Returns the class of a module inside torch's wrappers."""
    return class_of(_inner(module))


def _inner(module: Any) -> Any:
    while is_wrapper(module):
        children = module._modules.items()  # noqa: SLF001
        inner = next((one for name, one in children if name in _INNER), None)
        if inner is None:
            break
        module = inner
    return module


def is_wrapper(module: Any) -> bool:
    """Returns whether it only wraps another module, which gets its name."""
    return class_of(module) in _WRAPPERS


def class_of(module: Any) -> str:
    """Returns the name of a module's class."""
    return kind_of(module).__name__


def kind_of(module: Any) -> type:
    """Returns a module's own class, even if FSDP2 has derived a class from it."""
    kind = type(module)
    bases = kind.__bases__
    return bases[1] if len(bases) > 1 and bases[0].__name__ == "FSDPModule" else kind
