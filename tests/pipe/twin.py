"""Modules of the probe as they are in the archive: with the stand-in instead of msgspec."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from frtop_probe.pipe import msgspec_standin

FEATURES = "frtop_probe.features"
PARTS = ("json", "msgpack", "structs")


def twin(name: str) -> ModuleType:
    """A second module, or package, of the same source: `import msgspec` gives it the stand-in.

    So are the messages of features, which the wire imports.
    """
    real = _of(name) | _of(FEATURES)
    with _standin():
        for one in real:
            del sys.modules[one]
        module = importlib.import_module(name)
        if (declared := getattr(module, "declared", None)) is not None:
            declared()  # imports the messages of features
        fresh = _of(name) | _of(FEATURES)
    for one, module in fresh.items():
        alias = f"{one}_in_the_archive"
        sys.modules[alias] = module  # annotations are read there
        for member in vars(module).values():
            if isinstance(member, type) and member.__module__ == one:
                member.__module__ = alias
        del sys.modules[one]
    sys.modules.update(real)
    for one in (name, FEATURES):
        parent, _, last = one.rpartition(".")
        setattr(sys.modules[parent], last, real[one])
    return fresh[name]


def _of(name: str) -> dict[str, ModuleType]:
    """The loaded modules of a package; it is imported first."""
    importlib.import_module(name)
    return {one: m for one, m in sys.modules.items() if one == name or one.startswith(f"{name}.")}


@contextmanager
def _standin() -> Iterator[None]:
    saved = {name: one for name, one in sys.modules.items() if name.split(".")[0] == "msgspec"}
    for name in saved:
        del sys.modules[name]
    sys.modules["msgspec"] = msgspec_standin
    sys.modules |= {f"msgspec.{part}": getattr(msgspec_standin, part) for part in PARTS}
    try:
        yield
    finally:
        for name in ("msgspec", *(f"msgspec.{part}" for part in PARTS)):
            del sys.modules[name]
        sys.modules.update(saved)
