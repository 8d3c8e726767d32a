"""Modules of the probe as they are in the archive: with the stand-in instead of msgspec."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from frtop_probe.pipe import msgspec_standin

PARTS = ("json", "msgpack", "structs")


def twin(name: str) -> ModuleType:
    """A second module of the same source, for which `import msgspec` gives the stand-in."""
    real = importlib.import_module(name)
    assert real.__file__ is not None
    spec = importlib.util.spec_from_file_location(f"{name}_in_the_archive", real.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # annotations are read there
    with _standin():
        spec.loader.exec_module(module)
    return module


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
