"""Packs `frtop-native`: the compiled kernels for this Python and all torches from 2.10 on.

    PYTHONPATH=probe python3.12 -m release.native dist     # `make dist` does it, too

It reads torch's headers, 9 MB, from the wheels of PyPI without downloading the rest.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import platform
import re
import sys
import sysconfig
import tempfile
import urllib.request
import zipfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from frtop_probe.recorder.native import build, library
from release.dist import version as own_version

OLDEST: Final = (2, 10)  # see `build`: before, they lose tensors
PYTHON: Final = f"cp3{sys.version_info.minor}"
INDEX: Final = "https://pypi.org/simple/torch/"
ROOT: Final = Path(__file__).resolve().parents[1]
TIMEOUT_S: Final = 120
READ_AHEAD: Final = 8 << 20
METADATA: Final = """\
Metadata-Version: 2.4
Name: frtop-native
Version: {version}
Summary: Native kernels of frtop's recorder
License-Expression: Apache-2.0
License-File: LICENSE
Author: The frtop maintainers
Classifier: Development Status :: 3 - Alpha
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: C++
Classifier: Programming Language :: Python :: 3.{minor}
Classifier: Topic :: System :: Distributed Computing
Requires-Python: ==3.{minor}.*
Requires-Dist: frtop=={version}
Description-Content-Type: text/markdown

The recorder of [frtop](https://pypi.org/project/frtop/), compiled: an op then costs about 1 µs. It
is for `frtop run`; frtop finds it wherever it is installed, and goes on without it.
"""
_RELEASE: Final = re.compile(r"torch-(\d+)\.(\d+)\.(\d+)-(\w+)-\w+-(\w+)\.whl")
_VERSION: Final = re.compile(r"^__version__ = '(.+)'$", re.MULTILINE)
_COMMIT: Final = re.compile(r"^git_version = '(\w+)'$", re.MULTILINE)


class RemoteFile(io.RawIOBase):
    """A file on a server, of which only the parts that are read are transferred."""

    def __init__(self, url: str, size: int) -> None:
        """Opens nothing yet.

        Args:
            url: of a server that answers requests for ranges.
            size: in bytes.
        """
        self._url, self._size, self._at = url, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = (0, self._at, self._size)[whence] + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Transfers up to the size of the buffer.

        Raises:
            OSError: the server is not reached, or sends something else.
        """
        count = min(len(buffer), self._size - self._at)
        if count <= 0:
            return 0
        part = f"bytes={self._at}-{self._at + count - 1}"
        request = urllib.request.Request(self._url, headers={"Range": part})
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            data = answer.read(count)
            if answer.status != 206 or len(data) != count:
                raise OSError(f"{self._url}: the server sent something else than {part}")
        buffer[:count] = data
        self._at += count
        return count


def releases(files: list[dict[str, Any]], python: str, machine: str) -> dict[str, dict[str, Any]]:
    """Chooses the wheels of an index: for this Python and machine, not withdrawn, oldest first.

    Args:
        files: as an index lists them (PEP 691).
        python: for example "cp312".
        machine: for example "x86_64".
    """
    found = {}
    for file in files:
        match = _RELEASE.fullmatch(file["filename"])
        if match is None or file.get("yanked") or match[4] != python:
            continue
        version = tuple(map(int, match.groups()[:3]))
        if version[:2] >= OLDEST and "linux" in match[5] and match[5].endswith(machine):
            found[version] = file
    return {".".join(map(str, version)): found[version] for version in sorted(found)}


def headers(file: dict[str, Any], folder: Path) -> str:
    """Extracts the headers of a torch from its wheel, and returns what `build` has to know of it.

    Raises:
        OSError: the wheel is not readable.
    """
    remote = io.BufferedReader(RemoteFile(file["url"], file["size"]), READ_AHEAD)
    try:
        with zipfile.ZipFile(remote) as archive:
            names = [name for name in archive.namelist() if name.startswith("torch/include/")]
            archive.extractall(folder, names)
            text = archive.read("torch/version.py").decode()
    except (zipfile.BadZipFile, KeyError) as error:
        raise OSError(f"{file['filename']}: {error.__context__ or error}") from error
    version, commit = _VERSION.search(text), _COMMIT.search(text)
    if version is None or commit is None:
        raise OSError(f"{file['filename']}: unknown form of torch/version.py")
    return library.described(version[1], commit[1])


def name_only(folder: Path) -> Path:
    """Makes libraries that have nothing but the names of torch's, all that a linker needs."""
    folder.mkdir()
    empty = folder / "empty.c"
    empty.touch()
    for one in build.LIBRARIES:
        file = f"lib{one}.so"
        build.run([build.compiler("CC", "gcc", "cc"), "-shared", f"-Wl,-soname,{file}", str(empty),
                   "-o", str(folder / file)])  # fmt: skip
    return folder


def write_wheel(folder: Path, version: str, kernels: list[Path]) -> Path:
    """Writes the wheel for this Python and machine, and returns its path."""
    tag = f"{PYTHON}-{PYTHON}-{re.sub('[-.]', '_', sysconfig.get_platform())}"
    info = f"frtop_native-{version}.dist-info"
    content = {
        "frtop_native/__init__.py": b'"""The native kernels of frtop\'s recorder, by torch."""\n',
        **{f"frtop_native/{one.name}": one.read_bytes() for one in kernels},
        f"{info}/METADATA": METADATA.format(version=version, minor=sys.version_info.minor).encode(),
        f"{info}/licenses/LICENSE": (ROOT / "LICENSE").read_bytes(),
        f"{info}/WHEEL": (
            f"Wheel-Version: 1.0\nGenerator: frtop\nRoot-Is-Purelib: false\nTag: {tag}\n"
        ).encode(),
    }
    record = "".join(_recorded(content)) + f"{info}/RECORD,,\n"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"frtop_native-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in {**content, f"{info}/RECORD": record.encode()}.items():
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return path


def _recorded(content: dict[str, bytes]) -> Iterator[str]:
    for name, data in content.items():
        digest = base64.urlsafe_b64encode(sha256(data).digest()).rstrip(b"=").decode()
        yield f"{name},sha256={digest},{len(data)}\n"


def main() -> int:
    """Returns 1 if the index is not reachable, or a compiler failed."""
    parser = argparse.ArgumentParser(prog="release.native", description=__doc__.split("\n")[0])
    parser.add_argument("target", nargs="?", type=Path, default=ROOT / "dist")
    parser.add_argument("--torch", action="append", help="only these releases, for example 2.13.0")
    options = parser.parse_args()
    machine = platform.machine()
    request = urllib.request.Request(
        INDEX, headers={"Accept": "application/vnd.pypi.simple.v1+json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            found = releases(json.load(answer)["files"], PYTHON, machine)
        with tempfile.TemporaryDirectory() as temporary:
            at = Path(temporary)
            libraries, kernels = name_only(at / "libraries"), []
            for version, file in found.items():
                if options.torch and version not in options.torch:
                    continue
                made_for = headers(file, at / version)
                include = at / version / "torch" / "include"
                more = (
                    f"-ffile-prefix-map={include}=torch",
                    f"-ffile-prefix-map={build.HERE}=frtop",
                )
                kernels.append(build.compile_kernels(made_for, at, include, libraries, more=more))
                build.run(["strip", str(kernels[-1])])
                size = kernels[-1].stat().st_size
                print(f"{made_for}: {size / 1e3:.0f} kB", flush=True)
            if not kernels:
                print(f"no torch for {PYTHON} on {machine} at {INDEX}", file=sys.stderr)
                return 1
            print(write_wheel(options.target, own_version(), kernels))
    except (OSError, build.BuildError) as error:
        print(f"not packed: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
