"""Measures how long it takes from nothing to the verdict on a hung job, for each form of frtop.

    python -m release.measure dist      # prints the tables of docs/install.md

`dist` is what `make dist` wrote. The job runs in the environment that runs this, which needs torch;
each form starts in an empty home, with the Python that made this environment, and no caches.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

PROGRAM: Final = Path(__file__).with_name("hanging_job.py")
PYTHON: Final = str(Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}")
HUNG: Final = 3
"""The exit status of a verdict that a job hangs."""
START_S: Final = 120
TIMES: Final = 5


class Form(NamedTuple):
    """How one comes to frtop: `before` on another machine, `lines` on the host of the job."""

    name: str
    lines: tuple[str, ...]
    before: tuple[str, ...] = ()


FORMS: Final = (
    Form("pip", ("{python} -m venv v", "v/bin/pip -q install {wheel}", "v/bin/frtop {verb}")),
    Form("uvx", ("{python} -m venv v", "v/bin/pip -q install uv",
                 "v/bin/uvx -q --python {python} --from {wheel} frtop {verb}")),
    Form("pipx run", ("{python} -m venv v", "v/bin/pip -q install pipx",
                      "v/bin/pipx run --python {python} --spec {wheel} frtop {verb}")),
    Form("wheels, no network", ("{python} -m venv v",
                                "v/bin/pip -q install --no-index --find-links wheels frtop",
                                "v/bin/frtop {verb}"),
         before=("{python} -m venv w", "w/bin/pip -q download -d wheels {wheel}")),
    Form("frtop.pyz", ("{bare} {pyz} {verb}",)),
    Form("frtop.pyz through a pipe", ("cat {pyz} | {bare} - {verb}",)),
)  # fmt: skip


class Job:
    """Two ranks that hang, until it is closed."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "job.log"
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                [*torchrun, "--nproc-per-node", "2", str(PROGRAM)],
                stdout=output, stderr=output, start_new_session=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )  # fmt: skip
        self.pids = self._wait()

    def _wait(self) -> list[int]:
        until = time.monotonic() + START_S
        while len(pids := re.findall(r"^pid (\d+)\n", self._log.read_text(), re.MULTILINE)) < 2:
            if time.monotonic() > until or self._process.poll() is not None:
                self.close()
                raise TimeoutError(f"the job did not start: {self._log.read_text()}")
            time.sleep(0.1)
        return [int(pid) for pid in pids]

    def close(self) -> None:
        self._process.terminate()  # torchrun ends its ranks
        self._process.wait(60)


def measure(form: Form, names: dict[str, str], folder: Path) -> tuple[float, float]:
    """The seconds that the commands of one form take, and those of computing.

    Raises:
        subprocess.CalledProcessError: one of them failed.
    """
    home = folder / "home"
    home.mkdir()
    ours = ("FRTOP_", "PYTHON", "VIRTUAL")
    given = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    caches = {"PIP_NO_CACHE_DIR": "1", "FRTOP_BIND": "127.0.0.1", "FRTOP_DIR": str(home / "frtop")}
    about = {**given, **caches, "HOME": str(home), "FRTOP_AGENT_WITH": str(os.getpid())}
    (home / "frtop").mkdir(mode=0o700)
    took = computed = 0.0
    for line in (*form.before, *form.lines):
        command = line.format(**names)
        begin, before = time.monotonic(), _computed()
        done = subprocess.run(
            ["sh", "-c", command], cwd=home, env=about, capture_output=True, text=True, check=False
        )
        if line in form.lines:
            took, computed = took + time.monotonic() - begin, computed + _computed() - before
        if "{verb}" in line:
            is_right = done.returncode == HUNG and "rank 1" in done.stdout
        else:
            is_right = done.returncode == 0
        if not is_right:
            raise subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
    return took, computed


def _computed() -> float:
    spent = os.times()
    return spent.children_user + spent.children_system


def start_time(*command: str) -> float:
    """The seconds until a command has printed its version: the median of some starts."""
    took = []
    for _ in range(TIMES):
        begin = time.monotonic()
        subprocess.run([*command, "--version"], capture_output=True, check=True)
        took.append(time.monotonic() - begin)
    return statistics.median(took)


def main() -> int:
    parser = argparse.ArgumentParser(prog="release.measure", description=__doc__.split("\n")[0])
    parser.add_argument("dist", type=Path, help="the folder that `make dist` wrote")
    options = parser.parse_args()
    (wheel,), pyz = options.dist.resolve().glob("frtop-*.whl"), options.dist.resolve() / "frtop.pyz"
    folder = Path(tempfile.mkdtemp())
    try:
        with closing(Job(folder)) as job:
            names = {
                "python": PYTHON, "bare": f"{PYTHON} -I -S", "wheel": str(wheel), "pyz": str(pyz),
                "verb": f"diagnose --wait 60 --pid {job.pids[0]}",
            }  # fmt: skip
            print("| form | commands | seconds to the verdict | of computing |\n|---|---|---|---|")
            for form in FORMS:
                at = folder / form.name.replace(" ", "-")
                at.mkdir()
                took, computed = measure(form, names, at)
                row = f"| {form.name} | {len(form.lines)} | {took:.0f} | {computed:.1f} |"
                print(row, flush=True)
        installed = folder / "pip" / "home" / "v"
        size = sum(one.stat().st_size for one in installed.rglob("*") if one.is_file())
        print(f"\ninstalled by pip, with all that it needs: {size / 1e6:.0f} MB")
        print(f"frtop --version: {start_time(str(installed / 'bin' / 'frtop')):.2f} s")
        print(f"python3 frtop.pyz --version: {start_time(PYTHON, '-I', '-S', str(pyz)):.2f} s")
        for one in sorted(options.dist.iterdir()):
            print(f"{one.name}: {one.stat().st_size / 1e6:.2f} MB")
    except subprocess.CalledProcessError as error:
        print(f"{error.cmd}: {error}\n{error.output}{error.stderr}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
