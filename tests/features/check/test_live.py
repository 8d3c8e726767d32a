"""`frtop check` on a real job: a plan of it, which it holds; and what it does not do."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.conftest import Launch, frtop, wait_for_ranks

pytestmark = pytest.mark.job


@pytest.mark.long
def test_a_job_holds_the_plan_that_was_written_from_it(
    home: Path, torchrun: Launch, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.toml"
    job = torchrun("trains.py", str(tmp_path))
    wait_for_ranks(home, 2)
    written = frtop("check", "--write", str(plan))
    assert written.returncode == 0, written.stdout + written.stderr
    text = plan.read_text()
    assert "[ops.default_pg.all_reduce]\ncount = 4\n" in text
    assert "[ops.default_pg.broadcast]\ncount = 1\n" in text
    # A loaded host may be slower than any plan allows: steps are timed in another test.
    plan.write_text(text.replace("seconds =", "# seconds ="))
    held = frtop("check", str(plan))
    assert held.returncode == 0, held.stdout + held.stderr
    broken = frtop("check", str(plan), "--expect", "ops.default_pg.all_reduce.count=3")
    assert broken.returncode == 6, broken.stdout + broken.stderr
    said = broken.stdout.splitlines()
    assert said[0] == (
        "broken     ops.default_pg.all_reduce.count: expected 3, found 4 on ranks 0-1"
    )
    assert "1 broken" in said[-2]
    (tmp_path / "end").touch()
    job.communicate(timeout=60)
