"""The image of Containerfile beside a hung job, in its pid namespace, as `kubectl debug` puts it.

The base has no file: the system's, Python and torch are mounted.
"""

from __future__ import annotations

import io
import json
import secrets
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from packages.hang import ROOT
from release import dist, onefile
from waiting import wait_for

LINKS = ("bin", "lib", "lib64", "sbin")
LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096")
"""Those that root without SYS_RESOURCE may set, too."""
RESTRICTED = ("--cap-drop", "ALL", "--security-opt", "no-new-privileges")
"""What `kubectl debug --profile=restricted` takes away."""


def podman(*words: str, text: bytes = b"") -> subprocess.CompletedProcess[str]:
    # crun does not run where both versions of cgroups are mounted.
    runtime = ("--runtime", "runc") if shutil.which("runc") else ()
    command = ["podman", *runtime, *words]
    done = subprocess.run(command, input=text, capture_output=True, timeout=300, check=False)
    output = (done.stdout.decode(), done.stderr.decode())
    return subprocess.CompletedProcess(command, done.returncode, *output)


def must(*words: str, text: bytes = b"") -> str:
    done = podman(*words, text=text)
    assert done.returncode == 0, done
    return done.stdout + done.stderr


def mounted(*more: str) -> list[str]:
    paths = dict.fromkeys(("/usr", "/etc/ld.so.cache", sys.base_prefix, sys.prefix, *more))
    volumes = [word for path in paths for word in ("--volume", f"{path}:{path}:ro")]
    path = f"PATH={sys.base_prefix}/bin:/usr/bin:/bin"
    return ["--network", "none", "--env", path, *LIMITS, *volumes]


@pytest.fixture
def base() -> Iterator[str]:
    if shutil.which("podman") is None:
        pytest.skip("needs podman")
    if not Path("/lib").is_symlink():
        pytest.skip("needs a system whose /lib is in /usr")
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for name in LINKS:
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, f"usr/{name}"
            tar.addfile(link)
    name = f"localhost/frtop-base:{secrets.token_hex(4)}"
    done = podman("import", "-", name, text=content.getvalue())
    if done.returncode == 0:
        done = podman("run", "--rm", *mounted(), name, "true")
    if done.returncode != 0:
        podman("rmi", "--force", name)
        pytest.skip(f"podman runs no containers here: {done.stderr.strip()}")
    yield name
    must("rmi", "--force", name)


@pytest.mark.long
@pytest.mark.torch
@pytest.mark.timeout(600)
def test_it_names_the_hang_of_the_container_beside_it(base: str, tmp_path: Path) -> None:
    onefile.make(tmp_path / "dist", dist.version(), with_py_spy=False)
    program = str(ROOT / "release" / "hanging_job.py")
    image, job = base.replace("base", "image"), f"frtop-job-{secrets.token_hex(4)}"
    with ExitStack() as after:
        after.callback(podman, "rmi", "--force", image)
        must("build", "--build-arg", f"BASE={base}", "--tag", image,
             "--file", str(ROOT / "Containerfile"), str(tmp_path))  # fmt: skip
        after.callback(podman, "rm", "--force", "--time", "0", job)
        must("run", "--detach", "--name", job, "--user", "1000:1000", "--tmpfs", "/tmp",
             *mounted(program), base,
             sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2",
             "--master-port", "29500", program)  # fmt: skip
        wait_for(lambda: must("logs", job).count("pid ") == 2, lambda: must("logs", job), 120, 0.5)
        beside = ("run", "--rm", "--pid", f"container:{job}", *mounted())
        done = podman(*beside, *RESTRICTED, image, "diagnose", "--json", "--wait", "60")
        assert done.returncode == 3, done
        (verdict,) = json.loads(done.stdout)["verdicts"]
        assert verdict["culprits"] == [1]
        done = podman(*beside, "--user", "1001:1001", image)
        assert done.returncode == 1, done
        assert "2 ranks of user 1000: not looked at" in done.stderr
