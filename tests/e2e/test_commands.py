"""The commands as a user types them, on real jobs."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import venv
from pathlib import Path

from e2e.conftest import Launch, frtop
from waiting import wait_for


def test_run_then_diagnose_a_job_whose_environment_has_no_frtop(
    home: Path, torchrun: Launch, tmp_path: Path
) -> None:
    venv.create(tmp_path / "other", symlinks=True)
    python = tmp_path / "other" / "bin" / "python"
    (packages,) = (tmp_path / "other" / "lib").glob("python3*/site-packages")
    # torch by path: this does not include the editable install of frtop beside it.
    torch = importlib.util.find_spec("torch")
    assert torch is not None
    assert torch.origin is not None
    (packages / "torch.pth").write_text(str(Path(torch.origin).parents[1]) + "\n")
    without = subprocess.run([python, "-c", "import frtop_probe"], capture_output=True, check=False)
    assert b"No module named 'frtop_probe'" in without.stderr
    job = torchrun("trains.py", str(tmp_path), python=str(python))
    wait_for(lambda: any(home.glob("*.ring")), "the first ring")
    said = frtop("diagnose", "--json", "--wait", "60")  # it waits for the other rank
    assert said.returncode == 0, said.stdout + said.stderr
    document = json.loads(said.stdout)
    assert document["verdicts"] == []
    assert sorted(document["ranks"]) == ["0", "1"]
    assert document["coverage"]["reporting"] == document["coverage"]["expected"] == 2
    assert document["job"]["world_size"] == 2
    (tmp_path / "end").touch()
    output, _ = job.communicate(timeout=60)
    assert job.returncode == 0, output
    said = frtop("diagnose")
    assert said.returncode == 0, said.stdout + said.stderr
    assert "ENDED" in said.stdout


def test_without_a_job_the_next_step_is_named(home: Path) -> None:
    said = frtop("diagnose", "--wait", "5")
    assert said.returncode == 1
    assert "no distributed PyTorch job of this user was found" in said.stderr
    assert "frtop run -- torchrun" in said.stderr
