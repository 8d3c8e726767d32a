"""Makes an environment for frtop from the kit's wheels; the job's Python stays as it is.

It has to be a complete environment, because the agent starts without the job's PYTHONPATH.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

VARIABLE: Final = "GPU_KIT_FRTOP"
MODULES: Final = ("ClusterShell", "msgpack", "msgspec", "psutil", "zmq", "textual")
INSTALL_S: Final = 90


@dataclass(frozen=True, slots=True)
class Environment:
    """A Python with frtop, the folder of its modules, and what is in the way ("" for nothing)."""

    python: str
    modules: Path | None
    problem: str


def frtop(*words: str) -> list[str]:
    """Returns the command `frtop WORDS`."""
    return [os.environ.get(VARIABLE, sys.executable), "-m", "frtop_tui", *words]


def provide(root: Path, folder: Path) -> Environment:
    """Makes an environment from `root/wheels` in `folder`; without wheels, takes this Python."""
    problem = "no wheels beside the kit"
    if any((root / "wheels").glob("*.whl")):
        python, modules = folder / "bin" / "python", _modules(folder)
        problem = _make(root, folder, modules)
        if not problem:
            return Environment(str(python), modules, "")
    if lacking := [name for name in MODULES if importlib.util.find_spec(name) is None]:
        return Environment(sys.executable, None, f"lacking: {', '.join(lacking)}; {problem}")
    return Environment(sys.executable, None, "")


def _modules(folder: Path) -> Path:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return folder / "lib" / version / "site-packages"


def _make(root: Path, folder: Path, modules: Path) -> str:
    """Makes the environment; returns why that failed, "" if it did not."""
    wheels = sorted(map(str, (root / "wheels").glob("*.whl")))
    install = [
        sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps",
        "--no-compile", "--no-cache-dir", "--disable-pip-version-check",
        "--target", str(modules), *wheels,
    ]  # fmt: skip
    try:
        _make_python(folder)
        done = subprocess.run(
            install, capture_output=True, text=True, timeout=INSTALL_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode:
        return (done.stderr or done.stdout).strip()[-500:]
    (modules / "frtop.pth").write_text(f"{root / 'probe'}\n{root / 'tui'}\n")
    for program in (modules / "bin").iterdir():  # py-spy: frtop looks for it beside Python
        if not (folder / "bin" / program.name).exists():
            shutil.copy2(program, folder / "bin" / program.name)
    return ""


def _make_python(folder: Path) -> None:
    """Makes a virtual environment (PEP 405) by hand: not every machine has the module `venv`."""
    base = Path(sys.executable).resolve()
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(base)
    (folder / "pyvenv.cfg").write_text(
        f"home = {base.parent}\ninclude-system-site-packages = false\n"
    )
