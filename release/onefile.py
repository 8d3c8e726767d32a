"""Makes `frtop.pyz`: frtop in one file for a host without pip, network or room on a disk.

    python -m release.onefile dist      # dist/frtop.pyz; `make dist` makes it, too

It is a script and not a zip, since Python takes only a script from a pipe:

    python3 frtop.pyz diagnose
    ssh HOST python3 - diagnose < frtop.pyz

In it: those modules of frtop whose imports are in it, too; the pure-Python parts of msgpack and
ClusterShell; the stand-in for msgspec; py-spy for x86-64 and aarch64, from their wheels.
"""

from __future__ import annotations

import argparse
import ast
import base64
import lzma
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Container, Iterable, Iterator, Mapping
from functools import cache
from importlib import metadata
from importlib.resources import files
from pathlib import Path
from typing import Final

from frtop_probe.pipe import packing
from frtop_probe.pipe.msgspec_standin import __all__ as standin_names
from release.dist import version

ROOT: Final = Path(__file__).resolve().parents[1]
ROOMS: Final = {"frtop_probe": ROOT / "probe", "frtop_tui": ROOT / "tui"}
MACHINES: Final = ("x86_64", "aarch64")
VERBS: Final = ("cli.diagnose", "cli.jobs", "cli.stacks", "cli.capture", "features.doctor.command")
"""What the file can do. Screens need Textual, ports need libzmq, and a job needs all of frtop."""
FEATURES: Final = "frtop_tui.features."
PROBES: Final = "frtop_probe.features."
THROUGH_PIPES: Final = ".through_pipe"
"""Modules that run on hosts in an agent's place."""
_LEFT_OUT: Final = "frtop_probe.recorder"
"""Belongs to ranks."""
ASKED_FOR: Final = (".verbs", ".settings", ".notes", ".follow")
"""Modules that the registry of features imports by name."""
DATA: Final = ("frtop_probe/pipe/finder.sh",)
_STANDIN: Final = "frtop_probe/pipe/msgspec_standin/"
"""Is imported under another name, and sent to hosts."""
_CLUSTER_SHELL: Final = ("__init__", "Defaults", "NodeSet", "NodeUtils", "RangeSet")
_THERE: Final = sys.stdlib_module_names | {"ClusterShell", "msgpack"}


@cache
def sources() -> dict[str, bytes]:
    """The modules of frtop that `VERBS` and agents import, now or later, by name.

    Those that load something which is not in the file are left out.
    """
    found = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for room, folder in ROOMS.items()
        for path in sorted((folder / room).rglob("*.py"))
    }
    trees = {_module(name): ast.parse(source) for name, source in found.items()}
    usable = {one for one in trees.keys() - _unusable(trees) if not one.startswith(_LEFT_OUT)}
    roots = ["frtop_tui.__main__", *(f"frtop_tui.{verb}" for verb in VERBS)]
    roots += (one for one in trees if one.startswith(FEATURES) and one.endswith(ASKED_FOR))
    roots += (one for one in trees if one.startswith(PROBES) and one.endswith(THROUGH_PIPES))
    roots += (f"frtop_probe.{one}" for one in (packing.AGENT, "pipe.fan_out"))
    roots += ("frtop_probe.pipe.stage_zero", "frtop_probe.pipe.become_user")
    waiting = [*roots, *packing.started_by_agent()]
    wanted: set[str] = set()
    while waiting:
        module = waiting.pop()
        if module in usable and module not in wanted:
            wanted.add(module)
            waiting += _packages(module)
            waiting += _imported(list(ast.walk(trees[module])))
    return {
        name: source
        for name, source in found.items()
        if _module(name) in wanted or name.startswith(_STANDIN)
    }


def _unusable(trees: Mapping[str, ast.Module]) -> set[str]:
    """The modules that import, when they load, something that is not in the file."""
    needs = {module: set(_imported(packing.at_top(tree.body))) for module, tree in trees.items()}
    missing = {one for names in needs.values() for one in names if not _is_there(one, trees)}
    while more := {module for module, names in needs.items() if names & missing} - missing:
        missing |= more
    return missing


def _module(name: str) -> str:
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _packages(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def _imported(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The modules that these statements import; a name in a module is written like one."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{one.name}" for one in node.names)


def _is_there(module: str, ours: Container[str]) -> bool:
    room, _, rest = module.partition(".")
    if room == "msgspec":
        return not rest or rest.partition(".")[0] in standin_names
    if room in ROOMS:
        return module in ours or module.rpartition(".")[0] in ours
    return room in _THERE


def third_party() -> dict[str, bytes]:
    """The parts of other packages, and their licences, by name."""
    folder = files("ClusterShell")
    found = {
        f"ClusterShell/{name}.py": folder.joinpath(f"{name}.py").read_bytes()
        for name in _CLUSTER_SHELL
    }
    for package in ("ClusterShell", "msgpack"):
        for path in metadata.files(package) or ():
            if path.name.startswith(("COPYING", "LICENSE")):
                found[f"licenses/{package}/{path.name}"] = Path(path.locate()).read_bytes()
    return found | packing.msgpack()


def py_spy(machine: str, wheels: Path) -> dict[str, bytes]:
    """The program for a machine from its wheel, which pip downloads; and its licence.

    Raises:
        OSError: there is no such wheel.
    """
    platform = f"manylinux2014_{machine}"
    pip = ("-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:")
    wanted = f"py-spy=={metadata.version('py-spy')}"
    done = subprocess.run(
        [sys.executable, *pip, "--platform", platform, "--dest", wheels, wanted],
        capture_output=True,
        text=True,
        check=False,
    )
    found = list(wheels.glob(f"py_spy-*{machine}.whl"))
    if not found:
        raise OSError(f"no wheel of py-spy for {machine}: {done.stderr.strip()}")
    with zipfile.ZipFile(found[0]) as wheel:
        names = {Path(name).name: name for name in wheel.namelist()}
        return {
            f"py-spy-{machine}.xz": _compressed(wheel.read(names["py-spy"])),
            "licenses/py-spy/LICENSE": wheel.read(names["LICENSE"]),
        }


def archive(version: str, programs: Mapping[str, bytes]) -> bytes:
    """The zip inside, compressed as a whole: the same sources and programs give the same bytes."""
    about = f"Metadata-Version: 2.1\nName: frtop\nVersion: {version}\n".encode()
    found = sources() | packing.standin(files("frtop_probe")) | third_party()
    found |= {name: (ROOT / "probe" / name).read_bytes() for name in DATA}
    found |= {f"frtop-{version}.dist-info/METADATA": about}
    found |= {"licenses/frtop/LICENSE": (ROOT / "LICENSE").read_bytes(), **programs}
    return _compressed(packing.pack(found, zipfile.ZIP_STORED))


def _compressed(data: bytes) -> bytes:
    return lzma.compress(data)


def script(content: bytes) -> bytes:
    """The file around an archive."""
    text = (Path(__file__).with_name("onefile_start.py")).read_bytes()
    return text.replace(b"@ARCHIVE@", b"\n" + base64.encodebytes(content))


def make(target: Path, version: str, *, with_py_spy: bool = True) -> Path:
    """Writes the file, and returns its path.

    Raises:
        OSError: a wheel of py-spy cannot be downloaded, or the file cannot be written.
    """
    programs: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory() as folder:
        for machine in MACHINES if with_py_spy else ():
            programs |= py_spy(machine, Path(folder))
    target.mkdir(parents=True, exist_ok=True)
    path = target / "frtop.pyz"
    path.write_bytes(script(archive(version, programs)))
    return path


def main() -> int:
    parser = argparse.ArgumentParser(prog="release.onefile", description=__doc__.split("\n")[0])
    parser.add_argument("target", type=Path, help="the folder to write to")
    parser.add_argument("--without-py-spy", action="store_true",
                        help="a fifth of the size; hosts without py-spy then give no stacks"
                        )  # fmt: skip
    options = parser.parse_args()
    try:
        print(make(options.target, version(), with_py_spy=not options.without_py_spy))
    except OSError as error:
        print(f"not made: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
