"""What the ring records about the rank and its job."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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


def test_an_installed_module_that_is_run_by_name_keeps_its_name(tmp_path: Path) -> None:
    package = tmp_path / "site-packages" / "engine"
    package.mkdir(parents=True)
    (package / "train.py").write_text(WORKER)
    run_python(tmp_path / "rings", "-m", "engine.train", PYTHONPATH=f"{PROBE}:{package.parent}")
    assert only_ring(tmp_path / "rings").rank_identity["job"]["name"] == "train.py"
