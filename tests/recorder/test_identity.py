"""What the ring records about the rank and its job."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from frtop_probe.recorder.process.identity import (
    NCCL,
    RankIdentity,
    decoded_nccl,
    with_versions,
)
from recorder.rank_runner import PROBE, code, environment, only_ring, run_python


def test_settings_of_torch_and_transports_are_recorded_without_secrets(tmp_path: Path) -> None:
    program = """
        import sys
        sys.path.insert(0, sys.argv[1])
        import frtop_probe
        frtop_probe.start()
        frtop_probe.stop()
    """
    secrets = {
        "TORCH_API_TOKEN": "hidden",
        "WANDB_API_KEY": "hidden",
        "SLURM_JWT": "hidden",
        "TORCHINDUCTOR_REDIS_URL": "redis://me:hidden@cache:6379",
        "FRTOP_RECORD": "~nobody-of-that-name/boxes",
    }
    settings = {"NCCL_ALGO": "Ring"}
    run_python(
        tmp_path / "rings",
        *code(program),
        str(PROBE),
        prepared=False,
        cwd=None,
        **settings,
        **secrets,
    )
    ring = only_ring(tmp_path / "rings")
    assert dict(ring.rank_identity["settings"]).items() >= settings.items()
    assert "hidden" not in str(ring.rank_identity)


WORKER = "import frtop_probe\nfrtop_probe.start()\nfrtop_probe.stop()\n"


@pytest.mark.parametrize(
    ("folder", "title", "name"),
    [
        ("site-packages", "ray::_RayTrainWorker__execute.get_next", "RayTrainWorker"),
        ("site-packages", "ray::IDLE", "engine.worker"),
        ("site-packages", "ray::execute.set_up", "engine.worker"),
        ("site-packages", "python", "engine.worker"),
        ("srv", "ray::RayTrainWorker", "worker.py"),
    ],
)
def test_a_job_of_a_framework_s_worker_is_called_by_its_work(
    tmp_path: Path, folder: str, title: str, name: str
) -> None:
    script = tmp_path / folder / "engine" / "worker.py"
    script.parent.mkdir(parents=True)
    script.write_text(WORKER)
    variables = environment(tmp_path / "rings", prepared=False, RANK="0", PYTHONPATH=str(PROBE))
    subprocess.run(
        [title, str(script)], executable=sys.executable, env=variables, timeout=30, check=True
    )
    assert only_ring(tmp_path / "rings").rank_identity["job"]["name"] == name


def test_an_actor_of_ray_gives_a_job_its_name_when_its_title_does_not(tmp_path: Path) -> None:
    module = tmp_path / "site-packages" / "ray" / "_private" / "worker.py"
    module.parent.mkdir(parents=True)
    module.write_text(
        "class RayTrainWorker: ...\nclass global_worker: actors = {b'id': RayTrainWorker()}\n"
    )
    script = module.with_name("default_worker.py")
    script.write_text(f"import ray._private.worker\n{WORKER}")
    path = f"{PROBE}:{tmp_path / 'site-packages'}"
    variables = environment(tmp_path / "rings", prepared=False, RANK="0", PYTHONPATH=path)
    words = ["ray::execute._setup_torch_process_group", str(script)]
    subprocess.run(words, executable=sys.executable, env=variables, timeout=30, check=True)
    assert only_ring(tmp_path / "rings").rank_identity["job"]["name"] == "RayTrainWorker"


def test_an_installed_module_that_is_run_by_name_keeps_its_name(tmp_path: Path) -> None:
    package = tmp_path / "site-packages" / "engine"
    package.mkdir(parents=True)
    (package / "train.py").write_text(WORKER)
    run_python(tmp_path / "rings", "-m", "engine.train", PYTHONPATH=f"{PROBE}:{package.parent}")
    assert only_ring(tmp_path / "rings").rank_identity["job"]["name"] == "train.py"


STANDIN = """
int ncclGetVersion(int *version) { *version = %d; return 0; }
"""


@pytest.mark.parametrize(("code", "version"), [
    (22705, "2.27.5"), (22917, "2.29.17"), (30102, "3.1.2"), (2804, "2.8.4"), (0, ""),
])  # fmt: skip
def test_the_code_of_nccls_version_is_read(code: int, version: str) -> None:
    assert decoded_nccl(code) == version


def torch_with(**parts: object) -> SimpleNamespace:
    return SimpleNamespace(__version__="2.9.0+cu128", _C=SimpleNamespace(**parts))


def failing() -> int:
    raise RuntimeError("no driver")


@pytest.mark.parametrize(("torch", "version"), [
    (torch_with(), ""),
    (torch_with(_nccl_version=lambda: 2 << 32 | 27 << 16 | 5), "2.27.5"),
    (torch_with(_nccl_version=lambda: (2, 10, 3)), ""),
    (torch_with(_nccl_version=lambda: 0), ""),
    (torch_with(_nccl_version=failing), ""),
    (SimpleNamespace(__version__="2.9.0"), ""),
])  # fmt: skip
def test_torch_says_which_nccl_is_linked_into_it(torch: object, version: str) -> None:
    found = with_versions(RankIdentity(rank=3), torch)
    assert (found.rank, found.nccl) == (3, version)
    assert found.payload()["nccl"] == version


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_the_nccl_that_is_loaded_counts_and_none_is_loaded_to_ask_it(tmp_path: Path) -> None:
    source, library = tmp_path / "nccl.c", tmp_path / NCCL
    source.write_text(STANDIN % 22705)
    subprocess.run(
        ["cc", "-shared", "-fPIC", f"-Wl,-soname,{NCCL}", "-o", library, source], check=True
    )
    program = """
        import ctypes, os, sys
        from types import SimpleNamespace
        sys.path.insert(0, sys.argv[1])
        from frtop_probe.recorder.process.identity import RankIdentity, with_versions
        linked = SimpleNamespace(_nccl_version=lambda: 2 << 32 | 29 << 16 | 3)
        torch = SimpleNamespace(__version__="2.9.0", _C=linked)
        maps = open("/proc/self/maps").read()
        print(with_versions(RankIdentity(), torch).nccl, "libnccl" in maps)
        ctypes.CDLL(sys.argv[2])
        print(with_versions(RankIdentity(), torch).nccl)
    """
    found = subprocess.run(
        [sys.executable, *code(program), PROBE, library],
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.split() == ["2.29.3", "False", "2.27.5"]
