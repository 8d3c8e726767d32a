"""In real surroundings the right thing is named, and the change that is printed opens the tier.

Each test applies the printed change and runs `frtop doctor` again.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from features.doctor.surroundings import (
    HERE,
    LIKE_A_RANK,
    NO_CAPABILITIES,
    OTHER_USER,
    TORCH_RANK,
    USER,
    doctor,
    environment,
    in_mounts,
    needs_root,
    rank,
    typed,
)
from frtop_probe.proc.kernel_files import read_text
from frtop_probe.proc.processes import descendants
from waiting import wait_for

__all__ = ["environment"]
READ = ("stacks", "c10d", "native")
QUICK = ("--python", "/bin/false")
pytestmark = needs_root


@pytest.fixture(scope="module")
def plain() -> Iterator[int]:
    """A process that is found as a rank, of root, with all capabilities."""
    with rank(LIKE_A_RANK) as pid:
        yield pid


def filtered(calls: str, action: str) -> tuple[str, ...]:
    return (sys.executable, str(HERE / "filtered.py"), calls, action, "--")


def test_without_the_capability(environment: dict[str, str], plain: int) -> None:
    arguments = ("--pid", str(plain))
    found = doctor(environment, *arguments, prefix=NO_CAPABILITIES)
    assert found.marks(*READ) == ["closed"] * 3
    assert found.exit_status == 1
    assert "only CAP_SYS_PTRACE lets" in found.obstacle("c10d", "capabilities")["text"]
    option = found.change("c10d", "capabilities", "docker run")
    assert option == "--cap-add=SYS_PTRACE"
    more = option.partition("=")[2].lower()
    prefix = ("setpriv", f"--bounding-set=-all,+{more}", "--inh-caps=-all", "--")
    opened = doctor(environment, *arguments, prefix=prefix)
    assert "closed" not in opened.marks(*READ)
    assert opened.mark("stacks") == "ok"


@pytest.mark.long
@pytest.mark.parametrize(("call", "tier"), [("process_vm_readv", "stacks"), ("ptrace", "native")])
def test_seccomp(environment: dict[str, str], plain: int, call: str, tier: str) -> None:
    arguments = ("--pid", str(plain))
    found = doctor(environment, *arguments, prefix=filtered(f"{call},kcmp", "end"))
    assert [code for code in READ if found.mark(code) == "closed"] == [tier]
    assert f"ends {call} (SIGSYS)" in found.obstacle(tier, "seccomp")["text"]
    assert found.document["host"]["kcmp"]["result"] in ("refused", "killed")
    assert found.change(tier, "seccomp", "docker run") == "--security-opt seccomp=unconfined"
    assert "seccompProfile" in found.change(tier, "seccomp", "pod spec")
    assert doctor(environment, *arguments).mark(tier) == "ok"  # as unconfined: without a filter


def test_where_process_vm_readv_is_refused_py_spy_reads_the_file(
    environment: dict[str, str], plain: int
) -> None:
    """As the default profile of docker 20.10 does."""
    prefix = filtered("process_vm_readv,kcmp", "refuse")
    found = doctor(environment, "--pid", str(plain), prefix=prefix)
    assert found.document["host"]["vm_readv"]["result"] == "refused"
    assert found.marks("stacks", "native") == ["ok", "ok"]
    assert found.tiers["native"]["basis"].startswith("py-spy;"), "pystack makes the call only"


def test_native_stacks_are_not_to_be_had_through_a_pid_namespace(
    environment: dict[str, str],
) -> None:
    container = ("unshare", "--pid", "--fork", "--kill-child")
    with rank(LIKE_A_RANK, prefix=container) as parent:
        pid = descendants(parent)[0]
        found = doctor(environment, "--pid", str(pid))
        assert found.marks("stacks", "native") == ["ok", "closed"]
        line = found.change("native", "pid namespace")
    assert line == "frtop stacks --native --rank N --ssh CONTAINER --via 'docker exec -i {host} sh'"


@pytest.mark.long
def test_another_user(environment: dict[str, str], plain: int) -> None:
    shutil.chown(environment["FRTOP_DIR"], USER, USER)
    found = doctor(environment, prefix=OTHER_USER)
    assert found.mark("processes") == "closed"
    of_root = re.compile(r"\d+ ranks? of user root: not looked at\. frtop reads only .*")
    obstacles = found.tiers["processes"]["obstacles"]  # others may have ranks here, too
    (one,) = [one for one in obstacles if of_root.fullmatch(one["text"])]
    uid = re.fullmatch(r"sudo -u '#(\d+)' frtop", one["changes"][0]["line"])
    assert uid is not None, one
    shutil.chown(environment["FRTOP_DIR"], int(uid[1]))
    arguments = ("--pid", str(plain))
    opened = doctor(environment, *arguments, prefix=("setpriv", f"--reuid={uid[1]}", "--"))
    assert opened.marks("processes", "stacks") == ["ok", "ok"]


@pytest.mark.long
def test_a_program_that_its_user_may_not_read(environment: dict[str, str]) -> None:
    shutil.chown(environment["FRTOP_DIR"], USER, USER)
    folder = Path(tempfile.mkdtemp())  # one that others may enter
    try:
        program = folder / "program"
        shutil.copy(shutil.which("sleep") or "", program)
        folder.chmod(0o755)
        program.chmod(0o711)
        with sleeping(str(program)) as pid:
            found = doctor(environment, "--pid", str(pid), prefix=OTHER_USER)
        assert found.mark("c10d") == "closed"
        line = found.change("c10d", "dumpable")
        assert line == f"sudo chmod a+r {program}"
        subprocess.run(typed(line).split(), check=True)
        with sleeping(str(program)) as pid:
            opened = doctor(environment, "--pid", str(pid), prefix=OTHER_USER)
        assert "closed" not in opened.marks("c10d", "native")
    finally:
        shutil.rmtree(folder)


@contextmanager
def sleeping(program: str) -> Iterator[int]:
    """Runs a program as the other user, without any capability."""
    process = subprocess.Popen([program, "60"], user=USER, group=USER, extra_groups=())
    try:
        wait_for(lambda: "program" in read_text(Path(f"/proc/{process.pid}/comm")), "it runs")
        yield process.pid
    finally:
        process.kill()
        process.wait()


@pytest.mark.long
def test_in_another_pid_namespace(environment: dict[str, str], plain: int) -> None:
    container = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
    found = doctor(environment, "--pid", str(plain), prefix=container)
    assert found.mark("processes") == "closed"
    one = found.obstacle("processes", "not found")
    assert one["text"] == (
        f"there is no process {plain} here (frtop is in a pid namespace of its own, a container)"
    )
    line = found.change("processes", "not found")
    assert line == "frtop doctor    # on the host, outside the container"
    opened = doctor(environment, "--pid", str(plain))
    assert opened.marks("processes", "stacks") == ["ok", "ok"]


@pytest.mark.long
def test_a_proc_that_hides_what_may_not_be_traced(environment: dict[str, str]) -> None:
    container = ("unshare", "--pid", "--fork", "--kill-child", "--")
    hidden = "mount -t proc -o hidepid=ptraceable proc /proc"
    found = doctor(environment, *QUICK, prefix=(*container, *in_mounts(hidden)))
    assert found.mark("processes") == "closed"
    line = typed(found.change("processes", "hidepid"))
    opened = doctor(environment, *QUICK, prefix=(*container, *in_mounts(hidden, line)))
    assert opened.mark("processes") == "ok"


@pytest.mark.long
def test_a_rank_in_namespaces_of_its_own_is_read_from_the_host(
    environment: dict[str, str],
) -> None:
    inside = ("unshare", "--mount", "--net", "--user", "--map-root-user")
    with rank(LIKE_A_RANK, prefix=inside) as pid:
        found = doctor(environment, "--pid", str(pid))
    assert found.marks("processes", "stacks", "native") == ["ok"] * 3
    notes = " ".join(found.tiers["processes"]["notes"])
    for kind in ("mount", "network", "user"):
        assert f"in another {kind} namespace than frtop: rank 0" in notes


@pytest.mark.long
def test_shared_memory_that_is_full(environment: dict[str, str]) -> None:
    small = in_mounts("mount -t tmpfs -o size=2m shm /dev/shm", "head -c 1m /dev/zero >/dev/shm/x")
    found = doctor(environment, *QUICK, prefix=small)
    assert found.mark("recorder") == "closed"
    assert "/dev/shm (2 MB) has room for 1 MB" in found.obstacle("recorder", "shm full")["text"]
    line = typed(found.change("recorder", "shm full"))
    assert re.fullmatch(r"mount -o remount,size=\d+m /dev/shm", line)
    larger = in_mounts("mount -t tmpfs -o size=2m shm /dev/shm", line)
    assert doctor(environment, *QUICK, prefix=larger).mark("recorder") == "ok"


@pytest.mark.long
def test_a_prepared_rank_whose_shared_memory_is_its_own(environment: dict[str, str]) -> None:
    path = f"/x/frtop_probe/recorder/zero:{os.environ.get('PYTHONPATH', '')}"
    prepared = {**environment, "FRTOP_AGENT": "0", "PYTHONPATH": path}
    private = in_mounts("mount -t tmpfs shm /dev/shm")
    with rank(LIKE_A_RANK, prefix=private, environment=prepared) as pid:
        found = doctor(environment, "--pid", str(pid))
    assert "its container's own" in found.obstacle("recorder", "private shm")["text"]
    assert found.change("recorder", "private shm", "docker run") == "--ipc=host"
    with rank(LIKE_A_RANK, environment=prepared) as pid:  # as with the option
        assert doctor(environment, "--pid", str(pid)).mark("recorder") == "ok"


@pytest.mark.long
def test_a_tool_where_no_program_may_run(environment: dict[str, str], plain: int) -> None:
    spy = Path(sys.executable).with_name("py-spy")
    if not spy.exists():
        pytest.skip("py-spy is not beside this Python")
    mounted = (f"mount --bind {spy} {spy}", f"mount -o remount,bind,noexec {spy}")
    hidden = {**environment, "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}
    found = doctor(hidden, "--pid", str(plain), prefix=in_mounts(*mounted))
    assert found.mark("stacks") == "closed"
    assert "(noexec)" in found.obstacle("stacks", "noexec")["text"]
    line = typed(found.change("stacks", "noexec"))
    opened = doctor(hidden, "--pid", str(plain), prefix=in_mounts(*mounted, line))
    assert opened.mark("stacks") == "ok"


@pytest.mark.long
def test_no_program_out_of_memory_nor_from_a_file(environment: dict[str, str]) -> None:
    setting = Path("/proc/sys/vm/memfd_noexec")
    if not setting.exists():
        pytest.skip("this kernel has no vm.memfd_noexec")
    container = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "--")
    checkout = Path(__file__).parents[3]  # may lie in /tmp, and stays there
    forbid = (f"mount --bind {checkout} /mnt", "mount -t tmpfs -o noexec tmp /tmp",
              f"mkdir -p {checkout}", f"mount --bind /mnt {checkout}", f"echo 2 >{setting}",
              "mkdir -m 700 /tmp/frtop")  # fmt: skip
    inside = {**environment, "FRTOP_DIR": "/tmp/frtop"}
    found = doctor(inside, *QUICK, prefix=(*container, *in_mounts(*forbid)))
    assert found.mark("archive") == "closed"
    assert found.change("archive", "noexec") == "sudo sysctl vm.memfd_noexec=0"
    line = typed(found.changes("archive", "noexec", "type")[1])
    opened = doctor(inside, *QUICK, prefix=(*container, *in_mounts(*forbid, line)))
    assert opened.mark("archive") == "ok"


@pytest.mark.long
@pytest.mark.torch
def test_flight_recorder_off(environment: dict[str, str]) -> None:
    """Real ranks with torch: the second is started with the line that the first one got."""
    with rank(TORCH_RANK, environment={"TORCH_FR_BUFFER_SIZE": "0"}) as pid:
        found = doctor(environment, "--pid", str(pid))
    assert found.marks("stacks", "c10d", "history") == ["ok", "ok", "closed"]
    text = found.obstacle("history", "recorder off")["text"]
    assert text == "the Flight Recorder is off: TORCH_FR_BUFFER_SIZE=0"
    line = found.change("history", "recorder off", "job script")
    name, _, value = line.removeprefix("export ").partition("=")
    with rank(TORCH_RANK, environment={name: value}) as pid:
        opened = doctor(environment, "--pid", str(pid))
        assert opened.marks("stacks", "c10d", "history") == ["ok"] * 3
        assert opened.tiers["history"]["basis"].startswith("rings of 2,000 ops")


@pytest.mark.long
@pytest.mark.torch
def test_a_library_without_exported_symbols(environment: dict[str, str], tmp_path: Path) -> None:
    """A stand-in: another library of torch in the place of libtorch."""
    package = tmp_path / "torch"
    (package / "lib").mkdir(parents=True)
    (package / "version.py").write_text("__version__ = '2.13.0+cpu'\n")
    library = package / "lib" / "libtorch_cpu.so"
    library.symlink_to(torch_package() / "lib" / "libc10.so")
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho {package}\n")
    python.chmod(0o755)
    found = doctor(environment, "--python", str(python))
    assert found.marks("c10d", "history") == ["closed", "closed"]
    line = found.change("c10d", "stripped")
    assert line.startswith("pip install --force-reinstall --no-deps 'torch==2.13.0+cpu'")
    library.unlink()  # what that line does: torch as it was released
    library.symlink_to(torch_package() / "lib" / "libtorch_cpu.so")
    opened = doctor(environment, "--python", str(python))
    assert opened.marks("c10d", "history") == ["ok", "ok"]


def torch_package() -> Path:
    code = "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
    return Path(subprocess.check_output([sys.executable, "-c", code], text=True).strip())
