"""The histories in a capture are compared when it is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnosis.scenes import Scene
from frtop_probe import wire
from frtop_tui.diagnosis.cases.mismatch.compare import mismatches
from frtop_tui.diagnosis.model import Frame
from frtop_tui.files import capture
from frtop_tui.files.histories import ops_of
from frtop_tui.text.exit_status import exit_status
from history_rows import HistoryRow, packed

SPECS = (wire.TensorSpec("float32", (1024,)),)
SUM = wire.Signature("all_reduce", "sum", inputs=SPECS)
MAX = wire.Signature("all_reduce", "max", inputs=SPECS)
WORLD, OPS, ODD = 4, 8000, 3333


def history(odd: wire.Signature | None = None, begin: int = 1) -> wire.History:
    """Ops from `begin` on; op `ODD` may have another signature."""
    table = (SUM, odd or SUM)
    rows = (
        HistoryRow(n, 1, n, 1 + (n == ODD), 0, n * 1000, 500, 7) for n in range(begin, begin + OPS)
    )
    return wire.History(table, (), packed(rows))


def opened(path: Path, histories: dict[int, wire.History], frame: Frame | None = None) -> Frame:
    frame = frame or Scene(WORLD).settle(1)
    responses = {r: wire.HistoryResponse(1, "node0", r + 1, h) for r, h in histories.items()}
    capture.write(path / "x.cap", frame, responses, ())
    return capture.read(path / "x.cap")


def test_one_different_op_among_thousands_is_found_in_a_capture(tmp_path: Path) -> None:
    histories = {
        rank: history(MAX if rank == 2 else None, begin=1 + 20 * rank) for rank in range(WORLD)
    }
    frame = opened(tmp_path, histories)
    (verdict,) = frame.verdicts
    assert verdict.kind == "mismatch"
    assert verdict.culprits == (2,)
    assert verdict.parties == ((2,), (0, 1, 3))
    assert verdict.op is not None
    assert verdict.op.number == ODD
    assert (frame.health, exit_status(frame)) == ("mismatch", 3)


def test_a_healthy_capture_stays_healthy(tmp_path: Path) -> None:
    reshaped = wire.Signature("all_reduce", "sum", inputs=(wire.TensorSpec("float32", (4, 256)),))
    unknown = wire.Signature("all_reduce", inputs=SPECS)
    histories = {0: history(), 1: history(reshaped), 2: history(unknown), 3: history(begin=9000)}
    frame = opened(tmp_path, histories)
    assert (frame.verdicts, frame.health) == ((), "healthy")


def test_a_mismatch_in_the_capture_is_not_repeated(tmp_path: Path) -> None:
    scene = Scene(WORLD)
    scene.does([0, 1, 3], "all_reduce", ago=0.2)
    scene.does([2], "all_reduce", ago=0.2, reduce="max")
    frame = scene.settle(0)
    histories = {rank: history(MAX if rank == 2 else None) for rank in range(WORLD)}
    assert opened(tmp_path, histories, frame).verdicts == frame.verdicts


def test_a_mismatch_in_histories_comes_after_the_captured_verdict(tmp_path: Path) -> None:
    scene = Scene(WORLD)
    scene.waits([0, 1, 3], "all_reduce", for_s=10)
    scene.sleeps(2)
    histories = {rank: history(MAX if rank == 2 else None) for rank in range(WORLD)}
    frame = opened(tmp_path, histories, scene.settle())
    assert [verdict.kind for verdict in frame.verdicts] == ["not_entered", "mismatch"]
    assert frame.health == "hung"


@pytest.mark.parametrize(("taken", "kinds"), [((3, 2), []), ((4, 2), ["splits"])])
def test_splits_that_do_not_pair_are_a_mismatch(taken: tuple[int, int], kinds: list[str]) -> None:
    scene = Scene(2)
    pairs = [((1, 3), (1, 2)), ((2, 2), taken)]
    scene.settle(0)
    for rank, (sent, got) in enumerate(pairs):
        odd = wire.Signature(
            "all_to_all_single", inputs=SPECS, outputs=SPECS, in_splits=sent, out_splits=got
        )
        scene.actors[rank].recent = list(ops_of(history(odd)))
        response = wire.SnapshotResponse(1, "node0", (scene.look_of(scene.actors[rank]),))
        scene.state.apply_snapshots("node0", response)
    ranks = dict(scene.frame().ranks)
    assert [one.field for one in mismatches(ranks)] == kinds
