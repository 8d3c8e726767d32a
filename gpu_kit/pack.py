"""Packs the kit: frtop's sources, the jobs, the wheels that the other machine lacks, a command.

    make gpu-kit        # dist/gpu-kit and dist/gpu-kit.tar

The wheels are for the machine of docs/nccl.md, whatever Python packs them.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Final

PYTHON: Final = "3.12"
PLATFORMS: Final = tuple(
    f"manylinux_2_{minor}_x86_64" for minor in (17, 24, 26, 27, 28, 31, 34, 35)
)
OLD_PLATFORMS: Final = ("manylinux2014_x86_64", "manylinux1_x86_64")
MAX_BYTES: Final = 64 << 20
SOURCES: Final = (
    "gpu_kit",
    "probe",
    "tui",
    "tests/zoo",
    "tests/jobs",
    "tests/files/flightrecorder",
)
_UNPACKED: Final = shutil.ignore_patterns("__pycache__", "*.pyc", "test_*.py", "*.egg-info")
_START: Final = '''"""The kit for one GPU: `python3 THIS_FOLDER --out RESULTS`, or `--help`."""

import sys

from gpu_kit.__main__ import main

sys.exit(main())
'''


def main() -> int:
    """Returns 1 if the wheels cannot be downloaded, or the kit is too large to bring along."""
    root = Path(__file__).resolve().parents[1]
    target = Path(sys.argv[1] if len(sys.argv) > 1 else root / "dist" / "gpu-kit")
    wheels = target.with_name(f".{target.name}-wheels")
    if problem := download(needed(root / "pyproject.toml"), wheels):
        print(f"no wheels: {problem}\nis the package index reachable?", file=sys.stderr)
        return 1
    copy(root, target, wheels)
    archive = target.with_name(f"{target.name}.tar")
    with tarfile.open(archive, "w") as tar:
        tar.add(target, target.name)
    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    print(f"{target}: {size / 1e6:.1f} MB; {archive.name} has the same content\n"
          f"on the machine: python3 {target.name} --out RESULTS")  # fmt: skip
    if size > MAX_BYTES:
        print(f"more than {MAX_BYTES >> 20} MiB: too large to bring along", file=sys.stderr)
        return 1
    return 0


def needed(pyproject: Path) -> list[str]:
    """Returns what frtop depends on, and the package with which its agent reads GPUs.

    The file has one requirement per line, with a comment.
    """
    inside, found = False, []
    for line in pyproject.read_text().splitlines():
        if line.startswith(("dependencies = [", "gpu = [")):
            inside = True
        elif inside and line.startswith("]"):
            inside = False
        elif inside and line.strip().startswith('"'):
            found.append(line.strip().split('"')[1])
    return found


def download(requirements: list[str], wheels: Path) -> str:
    """Downloads wheels of these and of their dependencies; returns why that failed, or ""."""
    shutil.rmtree(wheels, ignore_errors=True)
    wheels.mkdir(parents=True)
    platforms = [word for name in PLATFORMS + OLD_PLATFORMS for word in ("--platform", name)]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
         "--only-binary", ":all:", "--implementation", "cp", "--python-version", PYTHON,
         *platforms, "--dest", str(wheels), *requirements],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return "" if done.returncode == 0 else done.stderr.strip()[-600:]


def copy(root: Path, target: Path, wheels: Path) -> None:
    """Creates the folder, with a manifest of its content; an old one is removed first."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for source in SOURCES:
        shutil.copytree(root / source, target / source, ignore=_UNPACKED)
    shutil.move(wheels, target / "wheels")
    (target / "__main__.py").write_text(_START)
    manifest = {
        "packed": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "commit": _commit(root),
        "python": PYTHON,
        "wheels": sorted(path.name for path in (target / "wheels").iterdir()),
    }
    (target / "MANIFEST.json").write_text(json.dumps(manifest, indent=1))


def _commit(root: Path) -> str:
    done = subprocess.run(["git", "-C", str(root), "describe", "--always", "--dirty"],
                          capture_output=True, text=True, check=False)  # fmt: skip
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
