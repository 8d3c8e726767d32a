"""Several dumps of one rank: an earlier one shows whether the rank moves."""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from diagnosis.scenes import only
from files.flightrecorder.writer import MS, FakeRecorder, make_recorders, one_missing, write_dumps
from files.frames import notes
from frtop_probe.ring.rank_ranges import fold
from frtop_tui.errors import Unreadable
from frtop_tui.files.loader import open_paths
from frtop_tui.text.exit_status import exit_status
from frtop_tui.text.plain import text

SECOND = 1000 * MS


def dump_at(folder: Path, ranks: Sequence[FakeRecorder], at_s: float, name: str = "_dump_") -> None:
    """Writes dumps dated `at_s` seconds after the last op."""
    folder.mkdir(exist_ok=True)
    write_dumps(folder, ranks, name)
    at = ranks[0].clock_ns + int(at_s * SECOND)
    for one in ranks:
        os.utime(folder / f"{name}{one.rank}", ns=(at, at))


def test_a_job_that_did_not_move_between_two_dumps_is_hung(tmp_path: Path) -> None:
    ranks = one_missing()
    dump_at(tmp_path / "t0", ranks, 60)
    dump_at(tmp_path / "t1", ranks, 90)
    frame = open_paths([tmp_path])
    verdict = only(frame)
    assert (verdict.kind, verdict.culprits) == ("not_entered", (2,))
    assert (verdict.confidence, verdict.progress) == ("confirmed", "none")
    assert (frame.health, exit_status(frame)) == ("hung", 3)
    assert "no op issued or completed in 30s between two dumps" in "\n".join(text(frame))


def test_a_culprit_that_moved_between_two_dumps_is_not_hung(tmp_path: Path) -> None:
    ranks = one_missing()
    for one in ranks:
        one.group("1", range(4), "other")
    dump_at(tmp_path / "t0", ranks, 5)
    ranks[2].ran("1", count=3)
    dump_at(tmp_path / "t1", ranks, 35)
    frame = open_paths([tmp_path])
    verdict = only(frame)
    assert (verdict.culprits, verdict.progress) == ((2,), "active")
    assert (frame.health, exit_status(frame)) == ("held up", 5)


def test_a_job_that_moved_between_two_dumps_is_healthy(tmp_path: Path) -> None:
    ranks = one_missing()
    dump_at(tmp_path / "t0", ranks, 5)
    for one in ranks:
        one.entries[-1].update(state="completed", retired=True)
        one.status["0"]["last_completed_collective"] += 1
        one.ran("0", count=8)
    dump_at(tmp_path / "t1", ranks, 35)
    frame = open_paths([tmp_path])
    assert frame.verdicts == ()


def test_an_op_that_all_wait_in_in_both_dumps_is_stuck(tmp_path: Path) -> None:
    ranks = make_recorders(3)
    for one in ranks:
        one.ran("0", count=5)
        one.waits("0")
        one.clock_ns += 60 * SECOND
        one.group("1", range(3), "other")
        one.ran("1")
    dump_at(tmp_path / "t0", ranks, 5)
    dump_at(tmp_path / "t1", ranks, 25)
    verdict = only(open_paths([tmp_path]))
    assert (verdict.kind, verdict.confidence) == ("stuck", "confirmed")


def test_a_device_that_lags_in_both_dumps_is_confirmed_stuck(tmp_path: Path) -> None:
    ranks = make_recorders(4)
    for one in ranks:
        one.ran("0", count=5)
        if one.rank != 2:
            one.ran("0")
        one.waits("0")
        if one.rank == 2:
            one.waits("0")
    for at in (5, 25):
        dump_at(tmp_path / f"t{at}", ranks, at)
    frame = open_paths([tmp_path])
    verdict = only(frame)
    assert (verdict.kind, verdict.culprits) == ("stuck", (2,))
    assert (verdict.confidence, verdict.progress) == ("confirmed", "none")
    assert exit_status(frame) == 3


@pytest.mark.parametrize("names", [("before_rank_", "after_rank_"), None])
def test_dumps_are_ordered_by_other_names_or_times_in_names(
    tmp_path: Path, names: tuple[str, str] | None
) -> None:
    ranks = one_missing()
    if names is not None:
        dump_at(tmp_path, ranks, 60, names[0])
        dump_at(tmp_path, ranks, 90, names[1])
    else:
        for at, suffix in ((60, "20250922_224717"), (90, "20250922_224747")):
            for one in ranks:
                path = tmp_path / f"nccl_trace_rank_{one.rank}_{suffix}"
                path.write_bytes(one.pickle())
                at_ns = one.clock_ns + at * SECOND
                os.utime(path, ns=(at_ns, at_ns))
    verdict = only(open_paths([tmp_path]))
    assert (verdict.culprits, verdict.confidence) == ((2,), "confirmed")


def test_copies_without_their_original_times_confirm_nothing(tmp_path: Path) -> None:
    ranks = one_missing()
    dump_at(tmp_path / "t0", ranks, 9000)
    dump_at(tmp_path / "t1", ranks, 9000)
    frame = open_paths([tmp_path])
    verdict = only(frame)
    assert (verdict.confidence, verdict.progress) == ("suspect", "unknown")
    assert "cp -p" in notes(frame)


def test_ranks_dumped_once_beside_ranks_dumped_twice_confirm_nothing(tmp_path: Path) -> None:
    ranks = one_missing()
    dump_at(tmp_path / "t0", [ranks[0]], 60)
    dump_at(tmp_path / "t1", ranks, 90)
    verdict = only(open_paths([tmp_path]))
    assert (verdict.culprits, verdict.confidence, verdict.progress) == ((2,), "suspect", "unknown")
    assert fold(verdict.victims) == "0-1,3"


def test_two_jobs_in_two_folders_are_not_mixed(tmp_path: Path) -> None:
    ranks, others = one_missing(), one_missing(culprit=1)
    for one in others:
        for entry in one.entries:
            entry["time_created_ns"] += 3600 * SECOND
    dump_at(tmp_path / "a", ranks, 60)
    dump_at(tmp_path / "b", others, 60)
    with pytest.raises(Unreadable, match="is unknown: name each file"):
        open_paths([tmp_path])


def test_pickle_and_json_of_one_state_confirm_nothing(tmp_path: Path) -> None:
    ranks = one_missing()
    dump_at(tmp_path, ranks, 60)
    for one in ranks:
        path = tmp_path / f"rank_{one.rank}.json"
        path.write_bytes(copy.deepcopy(one).json())
        os.utime(path, ns=(one.clock_ns + 60 * SECOND,) * 2)
    verdict = only(open_paths([tmp_path]))
    assert (verdict.culprits, verdict.confidence) == ((2,), "suspect")


@pytest.mark.parametrize(("later_s", "confidence"), [(200, "confirmed"), (5, "suspect")])
def test_later_ops_of_the_culprit_confirm_that_it_did_not_enter(
    tmp_path: Path, later_s: int, confidence: str
) -> None:
    """Later ops of the waiters date their wait; those of the culprit show that it was alive."""
    ranks = one_missing()
    for one in ranks:
        one.group("1", [one.rank], "own")
        one.clock_ns += (later_s if one.rank == 2 else 200) * SECOND
        one.ran("1")
    write_dumps(tmp_path, ranks)
    verdict = only(open_paths([tmp_path]))
    assert (verdict.kind, verdict.culprits, verdict.progress) == ("not_entered", (2,), "unknown")
    assert verdict.confidence == confidence
