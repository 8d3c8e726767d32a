"""Makes the archive: the sources that an agent at the end of a pipe imports, as one zip.

Pure except that it reads sources; the same sources give the same bytes. It follows the imports at
the top of each module, so nobody has to maintain a list.
"""

from __future__ import annotations

import ast
import io
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from frtop_probe import feature_folders
from frtop_probe.agent.announcement import own_version

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

PACKAGE: Final = "frtop_probe"
AGENT: Final = "pipe.agent"
CHILDREN: Final = (
    "frtop_probe.gauges.__main__",
    "frtop_probe.gauges.host.__main__",
    "frtop_probe.unprepared.__main__",
)
"""Modules that the agent starts as child processes."""
VERSION_FILE: Final = "frtop_probe/pipe/VERSION"
_MSGPACK: Final = ("__init__.py", "exceptions.py", "ext.py", "fallback.py")
EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip can hold."""


@cache
def archive(program: str = AGENT) -> bytes:
    """Makes, once, the archive of the installed frtop for one program, a module of frtop.

    Raises:
        ModuleNotFoundError: msgpack is not installed.
        OSError: a source cannot be read.
    """
    package = files(PACKAGE)
    started = started_by_agent() if program == AGENT else ()
    sources = collect(package, (f"{PACKAGE}.{program}", *started))
    return pack({**sources, **msgpack(), VERSION_FILE: own_version().encode()})


def msgpack() -> dict[str, bytes]:
    """The sources of its pure form, by name; raises `ModuleNotFoundError` if it is missing."""
    folder = files("msgpack")
    return {f"msgpack/{name}": folder.joinpath(name).read_bytes() for name in _MSGPACK}


def started_by_agent() -> tuple[str, ...]:
    """What an agent imports by no name: children, and the features' modules, found by folder."""
    names, parts = feature_folders.names(), ("messages", "at_host")
    of_features = (f"{feature_folders.FEATURES}.{one}.{part}" for one in names for part in parts)
    return (*CHILDREN, *of_features)


def collect(package: Traversable, roots: Iterable[str]) -> dict[str, bytes]:
    """Returns the sources that `roots` import, and the stand-in for msgspec, by name."""
    found: dict[str, bytes] = {}
    waiting = list(roots)
    known: set[str] = set()
    while waiting:
        module = waiting.pop()
        if module in known:
            continue
        known.add(module)
        name = _source_of(package, module)
        if name is None:  # a name in a module, not a module
            continue
        source = found[name] = _under(package, name).read_bytes()
        waiting += _imported(ast.parse(source), module)
    return found | standin(package)


def standin(package: Traversable) -> dict[str, bytes]:
    """The stand-in for msgspec under its name; nothing if this package has none."""
    folder = package.joinpath("pipe").joinpath("msgspec_standin")
    sources = folder.iterdir() if folder.is_dir() else ()
    return {f"msgspec/{one.name}": one.read_bytes() for one in sources if one.name[-3:] == ".py"}


def pack(files: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Makes a zip of these files: the same files give the same bytes, in any order, on any host."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", method, compresslevel=9) as target:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.compress_type = method
            entry.external_attr = 0o644 << 16
            target.writestr(entry, files[name])
    return content.getvalue()


def _imported(tree: ast.Module, module: str) -> Iterator[str]:
    """Yields the modules of the package that a module imports when it loads, and their packages."""
    names = [module]
    for node in at_top(tree.body):
        if isinstance(node, ast.Import):
            names += [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names += [node.module, *(f"{node.module}.{name.name}" for name in node.names)]
    for name in names:
        parts = name.split(".")
        if parts[0] == PACKAGE:
            yield from (".".join(parts[:count]) for count in range(1, len(parts) + 1))


def at_top(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yields statements outside functions, except those that only a type checker reads."""
    for node in body:
        if isinstance(node, (ast.If, ast.Try, ast.With)):
            if not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)):
                yield from at_top(node.body)
            for handler in getattr(node, "handlers", []):
                yield from at_top(handler.body)
            yield from at_top(getattr(node, "orelse", []))
        else:
            yield node


def _source_of(package: Traversable, module: str) -> str | None:
    path = module.replace(".", "/")
    names = (f"{path}/__init__.py", f"{path}.py")
    return next((name for name in names if _under(package, name).is_file()), None)


def _under(package: Traversable, name: str) -> Traversable:
    """The file with this name in the archive."""
    for part in name.split("/")[1:]:
        package = package.joinpath(part)
    return package
