"""What the ring records about the rank and its job."""

from __future__ import annotations

from pathlib import Path

from recorder.rank_runner import PROBE, code, only_ring, run_python


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
