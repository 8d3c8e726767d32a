"""Tests that need no torch, on aarch64 under emulation (docs/install.md says what that proves).

    make aarch64 AARCH64='tests/wire tests/ring'

Needs root, qemu-user-static and mmdebstrap. A small Debian with its Python is unpacked once into
FOLDER, with the wheels for aarch64 of what pyproject.toml names. pytest runs in a chroot there and
in namespaces of its own, so no mount and no process stays; this tree is read-only to it.
"""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import tomllib

TREE: Final = Path(__file__).parents[1]
SUITE: Final = "bookworm"
PYTHON: Final = "3.11"
"""That of the suite."""
DEBIAN: Final = (
    "bash", "busybox-static", "coreutils", "dash", "findutils", "git", "grep", "gzip", "iproute2",
    "libstdc++6", "mount", "openssh-client", "procps", "python3", "sed", "tar", "util-linux",
)  # fmt: skip
EXTRAS: Final = ("gpu", "mcp", "metrics", "native", "zstd")
NEEDED: Final = ("hypothesis", "jsonschema", "psutil", "pytest", "safetensors")
"""What the tests need of the extra `dev`; names begin with these."""
PLATFORMS: Final = tuple(f"manylinux_2_{minor}_aarch64" for minor in (17, 24, 26, 27, 28, 31, 34))
SITE: Final = f"usr/local/lib/python{PYTHON}/dist-packages"
BINFMT: Final = Path("/proc/sys/fs/binfmt_misc")
QEMU: Final = Path("/usr/lib/binfmt.d/qemu-aarch64.conf")
CHOSEN: Final = "not torch and not job and not zoo and not long and not hosts"
TESTS: Final = tuple(
    f"tests/{one}"
    for one in (
        "wire",
        "ring",
        "proc",
        "gauges",
        "keys",
        "unprepared",
        "stacks",
        "agent",
        "screens",
    )
)
SCANNER: Final = "tests/unprepared/discovery/test_scanner.py"
REQUESTS: Final = "tests/agent/test_request_handler.py"
NOT_EMULATED: Final = (
    # /proc/PID/exe and cmdline of another process are those of the emulator.
    "tests/unprepared/discovery/test_real_jobs.py",
    f"{SCANNER}::test_memory_is_read_only_of_ranks_whose_environment_does_not_say_their_number",
    "tests/unprepared/test_transports.py::test_a_module_that_is_imported_late_is_seen_at_once",
    "tests/unprepared/test_transports.py::test_what_everybody_imports_is_a_sign_only_with_entries",
    "tests/unprepared/test_transports.py::test_the_answer_passes_through_the_child",
    "tests/unprepared/test_worker.py::test_a_process_without_torch",
    # /proc/self/stat has few numbers, /proc/PID/syscall those of the host, a pidfd no ioctl.
    "tests/gauges/test_host_sources.py::test_this_host_has_plausible_figures",
    "tests/proc/test_exit_status.py::test_the_exit_status_of_a_foreign_process_is_read",
    "tests/proc/test_pid_stat.py::test_this_process_is_known",
    "tests/proc/test_processes.py::test_a_blocked_reader_shows_the_file_it_reads",
    # There is no ptrace.
    "tests/stacks/test_native_stacks.py",
    "tests/stacks/test_stacks.py::test_a_stack_has_its_source",
    "tests/stacks/test_stacks.py::test_a_hung_file_system_delays_no_dump",
    "tests/agent/test_snapshots.py",
    f"{REQUESTS}::test_the_owner_acts_a_reader_reads_and_a_stranger_is_refused",
)
RESULTS: Final = "var/tmp/results.xml"
TORCH: Final = "opt/torch"
"""Is on the path only for `PROGRAM`."""
PROGRAM: Final = "tests/unprepared/reads_itself.py"
OF_TORCH: Final = (
    "filelock",
    "fsspec",
    "jinja2",
    "networkx",
    "numpy",
    "sympy",
    "typing_extensions",
)


class NotPossibleError(Exception):
    """The tests cannot be run here; the text says what is missing."""


def main() -> int:
    """Returns pytest's exit status, or 2 with a sentence if there is no emulation."""
    parser = argparse.ArgumentParser(prog="aarch64", description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp/frtop-aarch64"))
    parser.add_argument("--torch", metavar="VERSION", help="a rank that reads itself, instead")
    parser.add_argument("tests", nargs="*", default=TESTS)
    options, more = parser.parse_known_args()
    root = options.folder.resolve() / "root"
    try:
        require_tools()
        if not (root / SITE / "frtop.pth").exists():
            make_root(root)
        if options.torch:
            add_torch(root, options.torch)
        with emulation(root):
            if options.torch:
                return run(root, ["env", f"PYTHONPATH=/{TORCH}", "python3", PROGRAM])
            status = run(root, pytest(options.tests, more))
    except NotPossibleError as error:
        print(error, file=sys.stderr)
        return 2
    print(table(root / RESULTS))
    return status


def require_tools() -> None:
    """Checks what this needs of the machine.

    Raises:
        NotPossibleError: something is missing.
    """
    if os.geteuid():
        raise NotPossibleError("a chroot and its mounts need root")
    missing = [one for one in ("mmdebstrap", "unshare", "chroot") if not shutil.which(one)]
    if not QEMU.exists():
        missing.append("qemu-user-static")
    if missing:
        raise NotPossibleError(f"not found: {', '.join(missing)}. Try: apt-get install "
                               "--no-install-recommends mmdebstrap qemu-user-static")  # fmt: skip


def make_root(root: Path) -> None:
    """Unpacks Debian and wheels; runs nothing of them.

    Raises:
        NotPossibleError: a mirror or an index cannot be reached, or lacks something.
    """
    shutil.rmtree(root, ignore_errors=True)
    root.parent.mkdir(parents=True, exist_ok=True)
    call("mmdebstrap", "--variant=extract", "--architectures=arm64",
         f"--include={','.join(DEBIAN)}", SUITE, str(root))  # fmt: skip
    wheels = root / "var/tmp/wheels"  # of what has no wheel, and nothing to compile
    call(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(wheels),
         "ClusterShell")  # fmt: skip
    install(root / SITE, "--find-links", str(wheels), *requirements())
    (root / "usr/local/bin").mkdir(exist_ok=True)
    for program in (root / SITE / "bin").iterdir():
        (root / "usr/local/bin" / program.name).symlink_to(f"/{SITE}/bin/{program.name}")
    about = root / SITE / "frtop-0.dist-info/METADATA"
    about.parent.mkdir()
    about.write_text("Metadata-Version: 2.1\nName: frtop\nVersion: 0\n")
    (root / SITE / "frtop.pth").write_text(f"{TREE}/probe\n{TREE}/tui\n")


def add_torch(root: Path, version: str) -> None:
    """Adds a torch. What it requires depends on the machine, and pip would take this one.

    Raises:
        NotPossibleError: it cannot be installed.
    """
    shutil.rmtree(root / TORCH, ignore_errors=True)
    install(root / TORCH, "--no-deps", f"torch=={version}")
    install(root / TORCH, *OF_TORCH)


def install(folder: Path, *words: str) -> None:
    call(
        sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder),
        "--only-binary", ":all:", "--implementation", "cp", "--python-version", PYTHON,
        *(f"--platform={one}" for one in PLATFORMS), *words,
    )  # fmt: skip


def requirements() -> list[str]:
    project = tomllib.loads((TREE / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    found = [*project["dependencies"], *(one for name in EXTRAS for one in extras[name])]
    return [*found, *(one for one in extras["dev"] if one.startswith(NEEDED))]


def call(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotPossibleError(f"{shlex.join(command)}:\n{done.stderr[-2000:]}")


@contextmanager
def emulation(root: Path) -> Iterator[None]:
    """Lets the kernel start aarch64 programs by qemu; until the end, if it did not before.

    Raises:
        NotPossibleError: they do not start.
    """
    entry = BINFMT / "qemu-aarch64"
    ours = platform.machine() != "aarch64" and not entry.exists()
    if ours:
        if not (BINFMT / "register").exists():
            call("mount", "-t", "binfmt_misc", "binfmt_misc", str(BINFMT))
        (BINFMT / "register").write_text(QEMU.read_text().strip())
    try:
        call("chroot", str(root), "/usr/bin/python3", "-c",
             "import platform; assert platform.machine() == 'aarch64'")  # fmt: skip
        yield
    finally:
        if ours:
            entry.write_text("-1")


def pytest(tests: Sequence[str], more: Sequence[str]) -> list[str]:
    return [
        "python3", "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder",
        "-p", "no:cacheprovider", "--timeout", "900", "-m", CHOSEN, "--junitxml", f"/{RESULTS}",
        *(f"--deselect={one}" for one in NOT_EMULATED), *more, *tests,
    ]  # fmt: skip


def run(root: Path, command: Sequence[str]) -> int:
    """Runs a command in the root, with this tree as its folder, and returns its exit status.

    The shell goes on beside it, and reaps what others leave behind.
    """
    for folder in ("dev", "proc", "sys", "var/tmp/cache"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    there, tree = shlex.quote(str(root)), shlex.quote(str(TREE))
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/root", "LANG": "C.UTF-8",
        "PYTHONPYCACHEPREFIX": "/var/tmp/cache",
        "HYPOTHESIS_STORAGE_DIRECTORY": "/tmp/hypothesis",
    }  # fmt: skip
    inside = shlex.join(["env", "-i", *(f"{k}={v}" for k, v in environment.items()), *command])
    script = f"""
        set -e
        mount --rbind /dev {there}/dev
        mount --rbind /sys {there}/sys
        mount -t tmpfs tmpfs {there}/dev/shm
        mount -t tmpfs tmpfs {there}/tmp
        mkdir -p {there}{tree}
        mount --bind -o ro {tree} {there}{tree}
        chroot {there} sh -c {shlex.quote(f"cd {tree} && exec {inside}")} || exit $?
    """
    return subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "--kill-child", f"--mount-proc={root}/proc",
         "sh", "-c", script], check=False,
    ).returncode  # fmt: skip


def table(results: Path) -> str:
    """Counts outcomes by folder of tests, for the documentation."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for case in ET.parse(results).iter("testcase"):
        folder = ".".join(case.get("classname", "").split(".")[1:2])
        bad = {"failure": "failed", "error": "failed", "skipped": "skipped"}
        kinds = [bad[child.tag] for child in case if child.tag in bad]
        counts[folder][kinds[0] if kinds else "passed"] += 1
    lines = ["| tests | passed | failed | skipped |", "|---|---|---|---|"]
    for folder, found in sorted(counts.items()):
        lines.append(f"| {folder} | {found['passed']} | {found['failed']} | {found['skipped']} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
