"""Makes all that a release consists of from the last commit, and checks it: `make dist`.

    python -m release.dist dist                             # all of it
    python -m release.dist dist --native python3.12 python3.13
    python -m release.dist dist --native                    # without frtop-native

It needs frtop's dev packages, and a network: for py-spy's wheels and torch's headers.
The same commit gives the same bytes: times in files are that of the commit.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
SUMS: Final = "SHA256SUMS"
_VERSION: Final = re.compile(r'^version = "(.+)"$', re.MULTILINE)


def version(tree: Path = ROOT) -> str:
    """The version, which stands in pyproject.toml only."""
    (found,) = _VERSION.findall((tree / "pyproject.toml").read_text(encoding="utf-8"))
    return str(found)


def make(target: Path, native: list[str], tree: Path = ROOT) -> list[Path]:
    """Makes everything from the last commit in `tree`, and returns the files.

    Raises:
        subprocess.CalledProcessError: something could not be made, or is not right.
    """
    target.mkdir(parents=True, exist_ok=True)
    target = target.resolve()
    before = set(target.iterdir())
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "frtop"
        copy.mkdir()
        packed = _run("git", "-C", tree, "archive", "HEAD")
        subprocess.run(["tar", "-x", "-C", copy], input=packed, check=True)
        epoch = _run("git", "-C", tree, "log", "-1", "--format=%ct").decode().strip()
        rooms = os.pathsep.join(str(copy / room) for room in ("", "probe", "tui"))
        about = {**os.environ, "SOURCE_DATE_EPOCH": epoch, "PYTHONPATH": rooms}
        python = (sys.executable, "-m")
        for command in (
            (*python, "build", "--no-isolation", "--outdir", target, "."),
            (*python, "release.onefile", target),
            *((one, "-m", "release.native", target) for one in native),
        ):
            subprocess.run([*map(str, command)], cwd=copy, env=about, check=True)
    _repair(target)
    packages = sorted(
        one for one in target.iterdir() if one.name.startswith("frtop") and one.suffix != ".pyz"
    )
    subprocess.run([*python, "twine", "check", "--strict", *map(str, packages)], check=True)
    made = sorted({*packages, target / "frtop.pyz", *(set(target.iterdir()) - before)})
    made = [one for one in made if one.name != SUMS]
    sums = (f"{sha256(one.read_bytes()).hexdigest()}  {one.name}\n" for one in made)
    (target / SUMS).write_text("".join(sums), encoding="utf-8")
    return made


def _repair(target: Path) -> None:
    """Gives wheels with native code the tag of the oldest glibc that they run on."""
    for one in target.glob("*-linux_*.whl"):
        excluded = ("--exclude", "libtorch*", "--exclude", "libc10.so")
        command = [sys.executable, "-m", "auditwheel", "repair", *excluded, "-w", target, one]
        subprocess.run([*map(str, command)], check=True)
        one.unlink()


def _run(*command: str | Path) -> bytes:
    return subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout


def main() -> int:
    parser = argparse.ArgumentParser(prog="release.dist", description=__doc__.split("\n")[0])
    parser.add_argument("target", type=Path, help="the folder to write to")
    parser.add_argument("--native", nargs="*", default=[sys.executable], metavar="PYTHON",
                        help="the Pythons for which to make frtop-native; none to leave it out"
                        )  # fmt: skip
    options = parser.parse_args()
    try:
        made = make(options.target, options.native)
    except subprocess.CalledProcessError as error:
        print(f"not made: {' '.join(map(str, error.cmd))}", file=sys.stderr)
        return 1
    for one in made:
        print(f"{one.stat().st_size:>12,}  {one}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
