"""Releases of torch by releases of Python: does frtop record, read and name the culprit there?

    make matrix MATRIX='--torch 2.8.0 --torch 2.15.0 --folder /tmp/matrix'

Each pair gets an environment of its own, which is deleted again. In it run the tests of the
recorder that look at every op, and a job that hangs, which `frtop diagnose` has to explain: with
kernels in Python, with native ones, and read from outside. What is known already is not done
again: results are kept in FOLDER/results.jsonl.

An interpreter is a command, so it may be one of another root:
`--python 'chroot /srv/sid /usr/bin/python3.14'`. Then this tree, FOLDER, /proc, /dev and /dev/shm
have to be mounted there, at the same paths. From PyPI come builds for CUDA, which load without a
GPU; uv links what Pythons share (some 3 GB a release) into each environment.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import tomllib
from uv import find_uv_bin

from e2e.conftest import kill_family

ROOT: Final = Path(__file__).parents[2]
TORCHES: Final = ("2.8.0", "2.9.1", "2.10.0", "2.11.0", "2.12.1", "2.13.0", "2.14.1", "2.15.0")
PYTHONS: Final = tuple(f"3.{minor}" for minor in range(10, 20))
WAYS: Final = ("python", "native", "outside")
TESTS: Final = {
    "python": ("test_kernel.py", "test_forms.py", "test_groups.py"),
    "native": ("test_kernel.py",),
}
"""In tests/recorder, by the kernels that they run on."""
NEEDED: Final = ("hypothesis", "psutil", "pytest")
"""What the tests need of the extra `dev`; names begin with these."""
NATIVE_SINCE: Final = (2, 10)
LIMIT_S: Final = 900
RANKS: Final = 3
ODD: Final = 1


class FailedError(Exception):
    """A step did not work; the text is its last word."""


@dataclass(slots=True)
class Cell:
    """A torch on a Python. `ways` has "ok" or what failed; `refused` says why there is nothing."""

    torch: str
    python: str
    refused: str = ""
    version: str = ""
    ways: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0


def main() -> int:
    """Returns the exit status: 1 if anything failed that could be installed."""
    parser = argparse.ArgumentParser(prog="compat", description=__doc__.partition("\n")[0])
    parser.add_argument("--torch", action="append", metavar="VERSION")
    parser.add_argument("--python", action="append", metavar="COMMAND")
    parser.add_argument("--folder", type=Path, metavar="FOLDER", help="large, and no tmpfs")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="frtop-matrix-", dir="/var/tmp"))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    pythons = interpreters(options.python or PYTHONS)
    known = folder / "results.jsonl"
    cells = [Cell(**json.loads(line)) for line in _lines(known)]
    done = {(cell.torch, cell.python) for cell in cells}
    for torch in options.torch or TORCHES:
        for python, command in pythons.items():
            if (torch, python) in done:
                continue
            cell = Matrix(folder, command).cell(torch, python)
            cells.append(cell)
            with known.open("a") as file:
                file.write(json.dumps(asdict(cell)) + "\n")
            print(
                f"torch {torch}, Python {python}, {cell.seconds:.0f} s: {_said(cell)}", flush=True
            )
        shutil.rmtree(folder / "uv", ignore_errors=True)  # some 10 GB
    if options.folder is None:
        shutil.rmtree(folder)
    print("\n" + table(cells))
    return int(any(set(cell.ways.values()) - {"ok", "-"} for cell in cells))


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def interpreters(wanted: Sequence[str]) -> dict[str, list[str]]:
    """Returns commands by version: as given, from pyenv's folder, or from PATH.

    pyenv's commands in PATH start one of its versions only.
    """
    found: dict[str, list[str]] = {}
    for one in wanted:
        words = [one]
        if one in PYTHONS:
            pyenv = sorted(Path.home().glob(f".pyenv/versions/{one}.*/bin/python3"))
            path = (pyenv and str(pyenv[-1])) or shutil.which(f"python{one}")
            if not path:
                continue
            words = [str(path)]
        else:
            words = shlex.split(one)
        code = "import platform; print(platform.python_version())"
        said = subprocess.run([*words, "-c", code], capture_output=True, text=True, check=False)
        if said.returncode == 0:
            found[said.stdout.strip()] = words
    return found


class Matrix:
    """Makes environments under a folder and tries frtop in them."""

    def __init__(self, folder: Path, command: list[str]) -> None:
        self._folder, self._command = folder, command
        self._home = folder / "environment"
        self._python = [*command[:-1], str(self._home / "bin/python")]
        self._environment = {
            **{name: one for name, one in os.environ.items() if not name.startswith("FRTOP_")},
            "XDG_CACHE_HOME": str(folder / "cache"),
            "UV_CACHE_DIR": str(folder / "uv"),
            "UV_LINK_MODE": "hardlink",
            "PYTHONPATH": "",
            "OMP_NUM_THREADS": "1",
            "TORCH_CPP_LOG_LEVEL": "ERROR",
        }

    def cell(self, torch: str, python: str) -> Cell:
        """Makes the environment, tries every way, and removes it again."""
        cell, begin = Cell(torch, python), time.monotonic()
        try:
            self._install(torch)
            code = "import torch; print(torch.__version__)"
            cell.version = self._run("import", "-c", code).strip()
        except FailedError as error:
            cell.refused = str(error)
        else:
            for way in WAYS:
                cell.ways[way] = self._try(way, torch)
        shutil.rmtree(self._home, ignore_errors=True)
        cell.seconds = time.monotonic() - begin
        return cell

    def _try(self, way: str, torch: str) -> str:
        if way == "native" and tuple(map(int, torch.split(".")[:2])) < NATIVE_SINCE:
            return "-"
        try:
            if way == "native":
                self._run("build", "-m", "frtop_probe.recorder.native.build")
            if way in TESTS:
                self._test(way)
            self._hang(way)
        except FailedError as error:
            return str(error)
        return "ok"

    def _install(self, torch: str) -> None:
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        needed = [one for one in extras["optional-dependencies"]["dev"] if one.startswith(NEEDED)]
        self._uv("venv", "--clear", "--python", self._command[-1], str(self._home))
        self._uv(
            "pip", "install", "--python", self._python[-1], f"torch=={torch}", "numpy",
            "--editable", str(ROOT), *needed,
        )  # fmt: skip

    def _uv(self, *words: str) -> None:
        command = [*self._command[:-1], find_uv_bin(), "--quiet", *words]
        _run(f"uv {words[0]}", command, self._environment)

    def _test(self, way: str) -> None:
        names = [f"{ROOT}/tests/recorder/{one}" for one in TESTS[way]]
        self._run(
            "tests", "-m", "pytest", "-q", "-x", "--no-header", "-p", "no:cacheprovider",
            "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT), *names,
            more={"FRTOP_NATIVE": str(int(way == "native"))},
        )  # fmt: skip

    def _hang(self, way: str) -> None:
        """A job of which one rank sleeps while the others are in an op."""
        with tempfile.TemporaryDirectory(dir=self._folder, ignore_cleanup_errors=True) as name:
            at = Path(name)
            for one in ("home", "job"):
                (at / one).mkdir(mode=0o700)
            environment = {
                "FRTOP_DIR": str(at / "home"), "FRTOP_KEY_FILE": str(at / "key"),
                "FRTOP_BIND": "127.0.0.1", "FRTOP_BOXES": "0", "FRTOP_AGENT_WITH": str(os.getpid()),
                "FRTOP_NATIVE": str(int(way == "native")),
            }  # fmt: skip
            python = self._python[-1]
            run = [] if way == "outside" else [python, "-m", "frtop_tui", "run", "--"]
            job = [python, "-m", "torch.distributed.run", "--standalone",
                   "--nproc-per-node", str(RANKS), str(ROOT / "tests/jobs/unprepared.py"),
                   str(at / "job"), "sleeps"]  # fmt: skip
            with (at / "log").open("w") as log:
                process = subprocess.Popen(
                    [*self._python[:-1], *run, *job], env={**self._environment, **environment},
                    stdout=log, stderr=log, start_new_session=True,
                )  # fmt: skip
            try:
                _wait_for_files([at / f"job/rank{rank}" for rank in range(RANKS)], process, at)
                rank_0 = (at / "job/rank0").read_text()
                self._judge(way, rank_0, environment)
            finally:
                _end(process)
                kill_family(at / "home")

    def _judge(self, way: str, pid: str, environment: Mapping[str, str]) -> None:
        said = self._run(
            "diagnose", "-m", "frtop_tui", "diagnose", "--json", "--wait", "60", "--pid", pid,
            more=environment, fine=tuple(range(128)),
        )  # fmt: skip
        if not said.startswith("{"):
            raise FailedError(f"diagnose says {said[-300:]}")
        document: dict[str, Any] = json.loads(said)
        blames = [one["culprits"] for one in document["verdicts"]]
        if blames != [[ODD]] or "sleep" not in json.dumps(document["verdicts"]):
            raise FailedError(f"diagnose blames {blames}: {json.dumps(document['verdicts'])[:300]}")
        kernels = document["environment"].get("common", {}).get("frtop kernels", "outside")
        if not kernels.lower().startswith(way):
            raise FailedError(f"diagnose says {kernels} of the kernels")

    def _run(
        self, what: str, *words: str, more: Mapping[str, str] | None = None,
        fine: tuple[int, ...] = (0,),
    ) -> str:  # fmt: skip
        return _run(what, [*self._python, *words], {**self._environment, **(more or {})}, fine)


def _run(
    what: str, command: list[str], environment: Mapping[str, str], fine: tuple[int, ...] = (0,)
) -> str:
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FailedError(f"{what}: {error}") from error
    if done.returncode not in fine:
        raise FailedError(f"{what}: {_last(done.stdout + done.stderr)}")
    return done.stdout or done.stderr


def _last(text: str) -> str:
    """The line that says what failed."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("E  ", "FAILED", "error", "cause:"))]
    return " ".join((errors or lines[-1:] or [""])[-1].split())[:300]


def _wait_for_files(files: list[Path], process: subprocess.Popen[bytes], at: Path) -> None:
    end = time.monotonic() + 180
    while not all(one.exists() and one.read_text() for one in files):
        if process.poll() is not None or time.monotonic() > end:
            raise FailedError(f"the job does not train: {_last((at / 'log').read_text())}")
        time.sleep(0.1)


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _said(cell: Cell) -> str:
    return cell.refused or "; ".join(f"{way} {one}" for way, one in cell.ways.items())


def table(cells: list[Cell]) -> str:
    """Torch by Python: what went well. What did not is below, and what could not be installed."""
    torches = sorted({cell.torch for cell in cells}, key=_number)
    pythons = sorted({cell.python for cell in cells}, key=_number)
    at = {(cell.torch, cell.python): cell for cell in cells}
    lines = [
        f"| torch | {' | '.join(pythons)} |",
        "|---|" + "---|" * len(pythons),
        *(
            f"| {torch} | {' | '.join(_short(at.get((torch, one))) for one in pythons)} |"
            for torch in torches
        ),
        "",
    ]
    for cell in cells:
        problems = [f"{way}: {one}" for way, one in cell.ways.items() if one not in ("ok", "-")]
        if problems or cell.refused:
            what = "; ".join(problems) or cell.refused
            lines.append(f"* torch {cell.torch}, Python {cell.python}: {what}")
    return "\n".join(lines)


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _short(cell: Cell | None) -> str:
    """Which ways are fine."""
    if cell is None:
        return ""
    if cell.refused:
        return "not there"
    return ", ".join(
        way if one == "ok" else f"no {way}" if one == "-" else f"**{way}**"
        for way, one in cell.ways.items()
    )


if __name__ == "__main__":
    sys.exit(main())
