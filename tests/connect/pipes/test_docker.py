"""A real job in docker's default profile: reached through `docker exec`, and seen from its host.

The image holds no file: the Python of the tests, torch and the system's libraries are mounted.
"""

from __future__ import annotations

import io
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from frtop_probe.agent import announcement
from frtop_probe.proc import processes
from waiting import wait_for

PROGRAM = """
import time, torch
import torch.distributed as dist

dist.init_process_group("gloo")
for step in range(1000):
    if dist.get_rank() == 1 and step == 5:
        time.sleep(600)  # the culprit
    dist.all_reduce(torch.ones(1))
    print(step, flush=True)
"""
LINKS = ("bin", "lib", "lib64", "sbin")
Run = Callable[..., str]


def _docker(*words: str, text: bytes = b"") -> str:
    done = subprocess.run(["docker", *words], input=text, capture_output=True, timeout=120)  # noqa: PLW1510
    assert done.returncode == 0, (done.stdout + done.stderr).decode()
    return (done.stdout + done.stderr).decode()


def _why_not() -> str:
    if os.getuid() != 0 or shutil.which("docker") is None:
        return "needs root and docker"
    asked = subprocess.run(["docker", "info"], capture_output=True, timeout=30)  # noqa: PLW1510
    if asked.returncode != 0 or b"Server Version" not in asked.stdout:
        return "needs a docker daemon (DOCKER_HOST names another one)"
    return "" if Path("/lib").is_symlink() else "needs a system whose /lib is in /usr"


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    """An image of links into /usr, and no file."""
    if why := _why_not():
        pytest.skip(why)
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for name in LINKS:
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, f"usr/{name}"
            tar.addfile(link)
    name = f"frtop-test:{secrets.token_hex(4)}"
    _docker("import", "-", name, text=content.getvalue())
    yield name
    _docker("rmi", "--force", name)


@pytest.fixture
def run(image: str, tmp_path: Path) -> Iterator[Run]:
    """Starts the job with options of `docker run`; gives the container's name once it hangs."""
    (tmp_path / "train.py").write_text(PROGRAM)
    tmp_path.chmod(0o755)
    name = f"frtop-test-{secrets.token_hex(4)}"
    mounted = dict.fromkeys(("/usr", "/etc/ld.so.cache", sys.base_prefix, sys.prefix))
    # Its program lies elsewhere than here: its lines are read in its own files.
    volumes = [f"{path}:{path}:ro" for path in mounted] + [f"{tmp_path}:/job:ro"]

    def start(*options: str) -> str:
        _docker(
            "run", "--detach", "--name", name, "--net", "none", "--tmpfs", "/tmp",
            *(word for volume in volumes for word in ("--volume", volume)), *options, image,
            sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2",
            "--master-port=29500", "/job/train.py",
        )  # fmt: skip
        wait_for(lambda: "\n4\n" in "\n" + _docker("logs", name), "it hangs", 60)
        return name

    yield start
    _docker("rm", "--force", name)


def _diagnose(tmp_path: Path, *words: str) -> str:
    folder = tmp_path / "frtop"
    folder.mkdir(mode=0o700, exist_ok=True)
    environment = {name: value for name, value in os.environ.items() if name != "FRTOP_UNPREPARED"}
    environment |= {"FRTOP_DIR": str(folder), "FRTOP_KEY_FILE": str(tmp_path / "key")}
    done = subprocess.run(  # noqa: PLW1510
        [sys.executable, "-m", "frtop_tui", "diagnose", "--wait", "30", *words],
        env=environment, capture_output=True, text=True, timeout=90,
    )  # fmt: skip
    for card in announcement.find_agents(folder):
        os.kill(card.pid, signal.SIGTERM)
    wait_for(lambda: not announcement.find_agents(folder), "the agent leaves")
    return done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.torch
@pytest.mark.parametrize("options", [
    (),
    ("--user", "12345", "--cap-drop", "ALL", "--read-only", "--ipc", "none"),
])  # fmt: skip
def test_a_hung_job_is_named_through_docker_exec(
    run: Run, tmp_path: Path, options: tuple[str, ...]
) -> None:
    name = run(*options)
    said = _diagnose(tmp_path, "--ssh", name, "--via", "docker exec -i {host} sh")
    assert "NOT ENTERED: rank 1" in said
    assert "sleeps at train.py:8" in said
    left = _docker("exec", name, "sh", "-c", "ls -A /tmp; ls -l /proc/[0-9]*/exe")
    assert "frtop" not in left
    assert "memfd" not in left


@pytest.mark.long
@pytest.mark.torch
def test_a_hung_job_in_docker_is_named_from_its_host(run: Run, tmp_path: Path) -> None:
    name = run()
    main = int(_docker("inspect", "--format", "{{.State.Pid}}", name))
    said = ""
    for _ in range(3):  # other jobs of this host may be found before it
        said = _diagnose(tmp_path, "--job", "train.py")
        if "no job is called" not in said:
            break
    assert "NOT ENTERED: rank 1" in said
    assert "sleeps at train.py:8" in said
    assert "time.sleep(600)  # the culprit" in said
    assert any(f"pid {pid}" in said for pid in processes.descendants(main))
