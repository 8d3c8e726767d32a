"""Makes the archive: the sources that an agent at the end of a pipe imports, as one zip.

Pure except that it reads sources; the same sources give the same bytes. It follows the imports at
the top of each module, so nobody has to maintain a list.
"""

from __future__ import annotations

import ast
import importlib.util
import io
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

from frtop_probe import feature_folders
from frtop_probe.agent.announcement import own_version

PACKAGE: Final = "frtop_probe"
AGENT: Final = "pipe.agent"
CHILDREN: Final = (
    "frtop_probe.gauges.__main__",
    "frtop_probe.gauges.host.__main__",
    "frtop_probe.unprepared.__main__",
)
"""Modules that the agent starts as child processes."""
STANDIN: Final = "frtop_probe/pipe/msgspec_standin/"
VERSION_FILE: Final = "frtop_probe/pipe/VERSION"
_MSGPACK: Final = ("__init__.py", "exceptions.py", "ext.py", "fallback.py")
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip can hold."""


@cache
def archive(program: str = AGENT) -> bytes:
    """Makes, once, the archive of the installed frtop for one program, a module of frtop.

    Raises:
        ModuleNotFoundError: msgpack is not installed.
        OSError: a source cannot be read.
    """
    package, msgpack = _folder(PACKAGE), _folder("msgpack")
    started = (*CHILDREN, *_of_features()) if program == AGENT else ()
    files = collect(package, (f"{PACKAGE}.{program}", *started))
    files |= {f"msgpack/{name}": (msgpack / name).read_bytes() for name in _MSGPACK}
    return pack({**files, VERSION_FILE: own_version().encode()})


def _of_features() -> tuple[str, ...]:
    """The features' modules for an agent, which finds them by folder and imports none by name."""
    names, parts = feature_folders.names(), ("messages", "at_host")
    return tuple(f"{feature_folders.FEATURES}.{name}.{part}" for name in names for part in parts)


def collect(package: Path, roots: Iterable[str]) -> dict[str, bytes]:
    """Returns the sources that `roots` import, and the stand-in for msgspec, by name."""
    found: dict[str, bytes] = {}
    waiting = list(roots)
    known: set[str] = set()
    while waiting:
        module = waiting.pop()
        if module in known:
            continue
        known.add(module)
        path = _source_of(package, module)
        if path is None:  # a name in a module, not a module
            continue
        source = path.read_bytes()
        found[path.relative_to(package.parent).as_posix()] = source
        waiting += _imported(ast.parse(source), module)
    for path in package.parent.joinpath(STANDIN).glob("*.py"):
        found[f"msgspec/{path.name}"] = path.read_bytes()
    return found


def pack(files: Mapping[str, bytes]) -> bytes:
    """Makes a zip of these files: the same files give the same bytes, in any order, on any host."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as target:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            target.writestr(entry, files[name])
    return content.getvalue()


def _imported(tree: ast.Module, module: str) -> Iterator[str]:
    """Yields the modules of the package that a module imports when it loads, and their packages."""
    names = [module]
    for node in _at_top(tree.body):
        if isinstance(node, ast.Import):
            names += [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names += [node.module, *(f"{node.module}.{name.name}" for name in node.names)]
    for name in names:
        parts = name.split(".")
        if parts[0] == PACKAGE:
            yield from (".".join(parts[:count]) for count in range(1, len(parts) + 1))


def _at_top(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yields statements outside functions, except those that only a type checker reads."""
    for node in body:
        if isinstance(node, (ast.If, ast.Try, ast.With)):
            if not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)):
                yield from _at_top(node.body)
            for handler in getattr(node, "handlers", []):
                yield from _at_top(handler.body)
            yield from _at_top(getattr(node, "orelse", []))
        else:
            yield node


def _source_of(package: Path, module: str) -> Path | None:
    path = package.parent.joinpath(*module.split("."))
    if path.is_dir():
        return path / "__init__.py"
    path = path.with_name(path.name + ".py")
    return path if path.is_file() else None


def _folder(package: str) -> Path:
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise ModuleNotFoundError(f"{package} is not installed", name=package)
    return Path(found.origin).parent
