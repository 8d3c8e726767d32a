"""A cgroup below our own: a container with a limit that one rank will reach."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Literal

Controller = Literal["memory", "cpu", "freezer", "pids"]
LIMITS: Final[dict[Controller, tuple[tuple[str, str], tuple[str, str]]]] = {
    "memory": (("memory.limit_in_bytes", f"{512 << 20}"), ("memory.max", f"{512 << 20}")),
    "cpu": (("cpu.cfs_quota_us", "1000"), ("cpu.max", "1000 100000")),
    "freezer": (("freezer.state", "THAWED"), ("cgroup.freeze", "0")),
    "pids": (("pids.max", "max"), ("pids.max", "max")),
}
"""512 MiB, 1 % of a core, not frozen yet, any number: file name and content, for cgroups version 1
and 2."""
_GONE_S: Final = 5.0
_numbers = itertools.count(1)


def possible(controller: Controller) -> bool:
    """Returns whether such a cgroup can be created here."""
    try:
        with limited(controller):
            return True
    except OSError:
        return False


@contextmanager
def limited(controller: Controller) -> Iterator[Path]:
    """Creates the cgroup, and removes it at the end once it is empty."""
    own, (file, limit) = _own(controller)
    folder = own / f"frtop-zoo-{os.getpid()}-{next(_numbers)}"
    folder.mkdir()
    try:
        (folder / file).write_text(limit)
        yield folder
    finally:
        _removed(folder)


def give_fifth(folder: Path, pid: int) -> None:
    """Lets a process use a fifth of a core, in turns of a ms; `folder` is one of `limited`."""
    if (folder / "cpu.max").exists():
        (folder / "cpu.max").write_text("1000 5000")
    else:
        (folder / "cpu.cfs_period_us").write_text("5000")
        (folder / "cpu.cfs_quota_us").write_text("1000")
    (folder / "cgroup.procs").write_text(str(pid))


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """Freezes a process, and lets it go on in our own cgroup."""
    with limited("freezer") as folder:
        (folder / "cgroup.procs").write_text(str(pid))
        state = folder / "freezer.state"
        file, on, off = (
            (state, "FROZEN", "THAWED") if state.exists() else (folder / "cgroup.freeze", "1", "0")
        )
        file.write_text(on)
        try:
            yield
        finally:
            file.write_text(off)
            _leave(folder)


@contextmanager
def alone(controller: Controller, pids: Iterable[int]) -> Iterator[Path]:
    """Puts those of these processes that live into a cgroup, then back into our own."""
    with limited(controller) as folder:
        for pid in pids:
            with suppress(OSError):
                (folder / "cgroup.procs").write_text(str(pid))
        try:
            yield folder
        finally:
            _leave(folder)


def _own(controller: Controller) -> tuple[Path, tuple[str, str]]:
    """Returns our own cgroup in the controller's hierarchy, and file and content of a limit."""
    root = Path("/sys/fs/cgroup")
    first, second = LIMITS[controller]
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, name = line.split(":", 2)
        if controller in controllers.split(","):
            return root / controller / name.lstrip("/"), first
        unified = root / name.lstrip("/")
        # No controller of version 2 freezes: each cgroup can.
        if not controllers and (controller == "freezer" or controller in _subtree(unified)):
            return unified, second
    raise FileNotFoundError(f"no {controller} controller")


def _subtree(folder: Path) -> str:
    with suppress(OSError):
        return (folder / "cgroup.subtree_control").read_text()
    return ""


def _leave(folder: Path) -> None:
    """Moves all processes to the cgroup above; they may be starting children meanwhile."""
    end = time.monotonic() + _GONE_S
    while time.monotonic() < end:
        for pid in (folder / "cgroup.procs").read_text().split():
            with suppress(OSError):  # it has just ended
                (folder.parent / "cgroup.procs").write_text(pid)
        with suppress(OSError):
            folder.rmdir()
            return


def _removed(folder: Path) -> None:
    end = time.monotonic() + _GONE_S
    while True:
        try:
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)
        else:
            return
