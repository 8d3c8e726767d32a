"""`frtop diff --fail-above` on captures of one run: before, likewise, and while a rank is late."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from e2e.conftest import Launch, frtop, wait_for_ranks
from waiting import wait_for

pytestmark = pytest.mark.job
DEADLINE_S = 300.0
"""Steps of a loaded host take ten times as long."""
STEPS = 120
"""Between two captures, at least."""


@pytest.mark.long
def test_a_run_that_got_slower_fails_and_one_that_did_not_passes(
    home: Path, torchrun: Launch, tmp_path: Path
) -> None:
    job = torchrun("items.py", str(tmp_path))
    try:
        wait_for_ranks(home, 2)
        captured(tmp_path, "0.cap", steps=20)  # the warm-up
        captured(tmp_path, "a.cap", steps=STEPS)
        captured(tmp_path, "b.cap", steps=STEPS)
        (tmp_path / "late").touch()
        captured(tmp_path, "c.cap", steps=4 * STEPS)  # after some from before the change
    finally:
        job.terminate()  # the launcher takes its ranks with it
        job.communicate(timeout=60)
    # A host at full load may leave it undecided.
    apart, overlapping = (diff(tmp_path, name, "b", {0, 4}) for name in ("a", "0"))
    assert STEPS <= apart[0]["samples_after"] < overlapping[0]["samples_after"]
    for one in diff(tmp_path, "b", "c", {6}):
        assert one["result"] in {"above", "undecided"}, one  # one of both is above, at any load
        assert one["after_ns"] - one["before_ns"] > 10e6  # 20 ms, and what the host adds


def captured(folder: Path, name: str, steps: int) -> None:
    """Writes a capture after so many more steps; the job makes none while that lasts."""
    first = steps_of(folder)
    wait_for(lambda: steps_of(folder) >= first + steps, "steps", DEADLINE_S)
    (folder / "hold").touch()
    taken = frtop("capture", "-o", str(folder / name))
    (folder / "hold").unlink()
    assert taken.returncode == 0, taken.stdout + taken.stderr


def steps_of(folder: Path) -> int:
    """How many steps rank 0 has made; what is being written again is empty."""
    text = (folder / "step").read_text() if (folder / "step").exists() else ""
    return int(text or 0)


def diff(folder: Path, before: str, after: str, statuses: set[int]) -> list[dict[str, Any]]:
    said = frtop("diff", str(folder / f"{before}.cap"), str(folder / f"{after}.cap"), "--json",
                 "--fail-above", "step=8ms,data=8ms")  # fmt: skip
    assert said.returncode in statuses, said.stdout + said.stderr
    found: list[dict[str, Any]] = json.loads(said.stdout)["checks"]
    return found
