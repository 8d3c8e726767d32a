"""Reads facts about this host and about us, and tries what is harmless to try."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

from frtop_probe.features.doctor import trials
from frtop_probe.features.doctor.facts import (
    SETTINGS,
    HostFacts,
    PlaceFacts,
    ProcFacts,
    ToolFacts,
    TorchFiles,
    Trial,
)
from frtop_probe.features.doctor.torch_files import machine_of, read_torch
from frtop_probe.gauges.devices import DEVICES, has_driver
from frtop_probe.gauges.nvml import NO_BINDING, NOT_SENT, NvmlReader
from frtop_probe.proc.child_process import AS_USER
from frtop_probe.proc.kernel_files import read_text
from frtop_probe.proc.process_rights import ProcessRights, read_rights, read_yama
from frtop_probe.proc.risky_calls import call
from frtop_probe.ring.folder import SHARED_MEMORY, TEMPORARY, FolderError, folder, taken

PY_SPY: Final = "py-spy"
TOOLS: Final = (PY_SPY, "pystack")
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_ST_NOEXEC: Final = 8
_MOUNTS: Final = Path("/proc/self/mountinfo")
_PYTHON_S: Final = 5.0
_NVML_S: Final = 8.0
"""Opening NVML takes seconds where the driver has to load its firmware."""
_FIND_TORCH: Final = (
    "import importlib.util as u; s = u.find_spec('torch');"
    " print(s.submodule_search_locations[0] if s and s.submodule_search_locations else '')"
)
"""Finds torch without importing it."""


def read_host(
    job_python: str = "", *, by_shell: bool = False, sent: Mapping[str, str] = _NOTHING
) -> HostFacts:
    """Reads and tries everything; takes half a second.

    Args:
        job_python: the Python of a job that has not started; "" for `python` on PATH, else ours.
        by_shell: frtop is not installed here and must leave nothing behind.
        sent: paths of the tools that frtop sent here, by name.
    """
    where, problem = _folder(make=not by_shell)
    python = job_python or shutil.which("python") or sys.executable
    with trials.target() as pid:
        memory, readv, seize, compare = (
            (trials.read_memory(pid), trials.vm_readv(pid), trials.ptrace(pid), trials.kcmp(pid))
            if pid
            else (Trial(),) * 4
        )
        tools = tuple(_tool(name, sent.get(name, ""), pid) for name in TOOLS)
    return HostFacts(
        name=socket.gethostname(),
        rights=_own_rights(),
        python=platform.python_version(),
        program=sys.executable,
        machine=machine_of("/proc/self/exe"),
        yama=read_yama(),
        proc=read_proc(),
        read_memory=memory,
        vm_readv=readv,
        ptrace=seize,
        kcmp=compare,
        memory_file=trials.memory_file(),
        shared_memory=read_place(SHARED_MEMORY),
        temporary=read_place(TEMPORARY),
        folder=where,
        folder_problem=problem,
        tools=tools,
        settings={name: os.environ[name] for name in SETTINGS if name in os.environ},
        job_python=python,
        job_torch=_torch_of(python),
        by_shell=by_shell,
        nvml=read_nvml(),
    )


def read_nvml(devices: Path = DEVICES) -> Trial | None:
    """Reads NVIDIA's GPUs once, in a child that doctor may abandon; None without their driver."""
    if not has_driver(devices):
        return None
    done = call(lambda: asdict(NvmlReader().read(processes=False)), _NVML_S)
    if done.timed_out or done.signal:
        return Trial("killed")
    if not isinstance(done.value, dict):
        return Trial("failed", "no answer")
    problem = str(done.value["problem"])
    if problem in (NO_BINDING, NOT_SENT):
        return Trial("missing", problem)
    return Trial("failed", problem) if problem else Trial("ok", str(len(done.value["gpus"])))


def read_place(path: Path) -> PlaceFacts:
    """Reads a folder without writing."""
    try:
        status, space = path.stat(), os.statvfs(path)
    except OSError as error:
        return PlaceFacts(str(path), error=error.strerror or str(error))
    free = space.f_bavail * space.f_frsize
    return PlaceFacts(
        str(path),
        exists=path.is_dir(),
        writable=os.access(path, os.W_OK | os.X_OK),
        size=space.f_blocks * space.f_frsize,
        free=free if space.f_favail or not space.f_files else 0,
        noexec=bool(space.f_flag & _ST_NOEXEC),
        device=status.st_dev,
    )


def read_proc(root: Path = Path("/")) -> ProcFacts:
    """Reads how /proc is mounted here, and whether it shows our own pid namespace."""
    options: list[str] = []
    for line in read_text(root / str(_MOUNTS)[1:]).splitlines():
        head, _, tail = line.partition(" - ")
        fields, kind = head.split(), tail.split()
        if len(fields) > 4 and fields[4] == "/proc" and len(kind) > 2 and kind[0] == "proc":
            options = kind[2].split(",")
    values = dict(option.partition("=")[::2] for option in options)
    hidepid = values.get("hidepid", "")
    own = None
    if (root / "proc/self").exists():
        own = read_text(root / "proc/self/stat").partition(" ")[0] == str(os.getpid())
    return ProcFacts(
        mounted=(root / "proc/self/stat").exists(),
        hidepid="" if hidepid in ("0", "off") else hidepid,
        subset=values.get("subset", ""),
        own=own,
    )


def _tool(name: str, sent: str, pid: int) -> ToolFacts:
    path = sent or find_tool(name)
    if not path:
        return ToolFacts(name)
    machine = machine_of(path)
    try:
        noexec = bool(os.statvfs(path).f_flag & _ST_NOEXEC)
        executable = bool(Path(path).stat().st_mode & 0o111)
    except OSError:
        return ToolFacts(name, path)
    trial = Trial()
    if pid and name == PY_SPY:  # pystack would stop the process
        trial = trials.run_tool(path, "dump", "--json", "--nonblocking", "--pid", str(pid))
    mount = "" if sent else _mount_of(path)
    return ToolFacts(name, path, machine, noexec, executable, mount, trial, bool(sent))


def find_tool(name: str) -> str:
    """The path of a tool beside our Python, else on PATH, even if it may not run."""
    folders = [Path(sys.executable).parent, *map(Path, os.get_exec_path())]
    paths = [folder / name for folder in folders if _is_file(folder / name)]
    runnable = [path for path in paths if os.access(path, os.X_OK)]
    return str(next(iter(runnable + paths), ""))


def _is_file(path: Path) -> bool:
    """Whether this is a file. PATH may name folders that this user may not enter."""
    try:
        return path.is_file()
    except OSError:
        return False


def _mount_of(path: str) -> str:
    """The mount point of a file, which may be the file itself."""
    place = Path(path).resolve()
    points = {line.split()[4] for line in read_text(_MOUNTS).splitlines() if line.count(" ") > 4}
    parents = (place, *place.parents)
    return next((str(parent) for parent in parents if str(parent) in points), "/")


def _folder(*, make: bool) -> tuple[str, str]:
    try:
        return str(folder(make=make)), taken()
    except FolderError as error:
        return "", str(error)


def _own_rights() -> ProcessRights:
    """Our rights; what root has given up in this process is not a setting of the host."""
    own = read_rights("self")
    return replace(own, no_new_privileges=False) if AS_USER in os.environ else own


def _torch_of(python: str) -> TorchFiles | None:
    """The torch that a Python would import; nothing imports it.

    Root gets None: that Python would run code from its site-packages.
    """
    if AS_USER in os.environ:
        return None
    try:
        done = subprocess.run(
            [python, "-B", "-c", _FIND_TORCH], capture_output=True, timeout=_PYTHON_S, check=False,
            stdin=subprocess.DEVNULL, cwd="/",
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    package = done.stdout.decode("utf-8", "replace").strip()
    return read_torch(Path(package)) if package.startswith("/") else None
