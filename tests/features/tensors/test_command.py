"""`frtop tensors` on a scripted source that answers like a live one."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from msgspec.structs import replace

from connect.scripted_source import ScriptedSource
from frtop_probe import wire
from frtop_tui.connect.source import Asked, Source
from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import FrtopError, UsageError
from frtop_tui.features.tensors import command as tensors_command
from frtop_tui.features.tensors.follow import SaveOrder
from frtop_tui.job.model import Writing
from json_schemas import read_document
from screens.scenes import hung, no_agent
from screens.test_hostile import EVIL, harmless, poisoned

GRADIENT = wire.TensorSummary(
    "input", "float32", (4, 1024), "cpu", 16384, 4096, 4096, -1.5, 2.5, 0.25, 64.0, 3, 1,
    ("0.5", "nan", "-1.5"), "9a3f01c2",
)  # fmt: skip


ANSWER = wire.TensorsResponse(
    1, "node0", 0, 5, (wire.OpTensors(30_000, (GRADIENT,)), wire.OpTensors(30_001, (), "freed"))
)


class Answering(ScriptedSource):
    """Answers every request in the next frame."""

    def __init__(self, frame: Frame, answer: wire.TensorsResponse = ANSWER) -> None:
        super().__init__([frame])
        self._answer = answer

    def do(self, request: Asked, ranks: Iterable[int] = ()) -> None:
        super().do(request, ranks)
        if isinstance(request, SaveOrder):
            request.path.write_bytes(b"data")
            writing = Writing("tensors", "written", str(request.path), 4, 4, 4)
            self.give(replace(self.frame(), writings=(writing,)))
            return
        views = self.frame().ranks
        asked = {rank: replace(views[rank], tensors=self._answer) for rank in ranks}
        self.give(replace(self.frame(), ranks={**views, **asked}))


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> Callable[[Source], None]:
    return lambda source: monkeypatch.setattr("frtop_tui.cli.live.connect", lambda _: source)


def options(**fields: object) -> argparse.Namespace:
    known: dict[str, object] = {
        "output": None, "rank": 0, "op": 0, "json": False, "redact": False, "members": False,
    }  # fmt: skip
    return argparse.Namespace(**{**known, **fields})


def test_tensors_prints_a_table(
    live: Callable[[Source], None], capsys: pytest.CaptureFixture[str]
) -> None:
    source = Answering(hung())
    live(source)
    assert tensors_command.run(options()) == 0
    head, row, trouble = capsys.readouterr().out.splitlines()
    assert head.split()[:5] == ["op", "kind", "number", "group", "role"]
    assert row.split() == [
        "30000", "all_reduce", "#8812", "dp:0", "input", "float32", "4x1024", "-1.5", "2.5",
        "0.25", "64", "3", "1", "9a3f01c2", "0.5", "nan", "-1.5",
    ]  # fmt: skip
    assert trouble == "op 30001 op: freed"
    assert source.inspected == [0]
    assert source.closed


def test_tensors_prints_json(
    live: Callable[[Source], None], capsys: pytest.CaptureFixture[str]
) -> None:
    live(Answering(hung()))
    assert tensors_command.run(options(json=True, op=30_000)) == 0
    found = read_document(capsys.readouterr().out, "frtop-tensors-1")
    assert (found["rank"], found["host"]) == (0, "node0")
    (op,) = found["ops"]
    assert op["kind"] == "all_reduce"
    assert op["tensors"][0]["checksum"] == "9a3f01c2"


@pytest.mark.parametrize(("source", "arguments", "message"), [
    (Answering(hung(), wire.TensorsResponse(1, "node0", 0, 5, (), "silent", "rank 0 holds the GIL; "
                                          "look at its stack")), {}, "holds the GIL\n  next: look"),
    (Answering(hung(), wire.TensorsResponse(1, "node0", 0, 5)), {}, "has no pending op"),
    (Answering(hung()), {"op": 7}, (r"op 7 of rank 0 is not pending\n  next: pending: op 30000"
     r" \(#8812 all_reduce\), op 30001")),
    (Answering(replace(hung(), read_only="your key may only read there; ask its owner")), {},
     "may only read there\n  next: ask"),
    (Answering(no_agent()), {}, "nobody answers"),
])  # fmt: skip
def test_a_rank_that_cannot_be_asked_is_an_error_with_a_next_step(
    live: Callable[[Source], None], source: Answering, arguments: dict[str, object], message: str
) -> None:
    live(source)
    with pytest.raises(FrtopError, match=message) as caught:
        tensors_command.run(options(**arguments))
    assert caught.value.exit_status == 1


def test_an_op_is_found_by_itself_and_by_its_number(
    live: Callable[[Source], None], capsys: pytest.CaptureFixture[str]
) -> None:
    live(Answering(hung()))
    assert tensors_command.run(options(members=True)) == 0
    said = capsys.readouterr()
    assert said.err == ""  # there is one op: nothing has to be said of the choice
    assert said.out.startswith("all_reduce #8812 of dp:0")
    live(Answering(hung()))
    assert tensors_command.run(options(op=8812)) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[0] == "30000"


def test_a_missing_rank_is_an_error(
    live: Callable[[Source], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frtop_tui.cli.live.APPEAR_S", 0.1)
    live(Answering(hung()))
    with pytest.raises(FrtopError, match="rank 77 is unreachable; 64 ranks are"):
        tensors_command.run(options(rank=77))


def test_saving_prints_the_size_first(
    live: Callable[[Source], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = Answering(hung())
    live(source)
    path = tmp_path / "grad.safetensors"
    assert tensors_command.run(options(output=str(path))) == 0
    said = capsys.readouterr().err.splitlines()
    assert said[0] == f"writing 16,384 bytes to {path}"
    assert source.orders["tensors"] == [SaveOrder(0, 30_000, path)]


def test_saving_needs_one_op(live: Callable[[Source], None], tmp_path: Path) -> None:
    ops = (wire.OpTensors(30_000, (GRADIENT,)), wire.OpTensors(30_001, (GRADIENT,)))
    live(Answering(hung(), wire.TensorsResponse(1, "node0", 0, 5, ops)))
    with pytest.raises(UsageError, match=r"--op: op 30000 \(#8812 all_reduce\), op 30001"):
        tensors_command.run(options(output=str(tmp_path / "x")))


@pytest.mark.parametrize(("verdict", "waits_in", "chosen", "why"), [
    (True, 30_002, 30_000, "the verdict is about it"),
    (False, 30_002, 30_002, "rank 0 waits in it"),
    (False, 0, 29_999, "it is the oldest"),
])  # fmt: skip
def test_of_several_pending_ops_the_one_that_is_waited_for_is_compared(
    live: Callable[[Source], None],
    capsys: pytest.CaptureFixture[str],
    *,
    verdict: bool,
    waits_in: int,
    chosen: int,
    why: str,
) -> None:
    frame = hung()
    first = frame.ranks[0].pending[0]
    pending = tuple(
        replace(first, sequence=30_000 + n, number=8812 + n) for n in (2, 0, 1, -1)
    )  # as buckets of DDP are: all of them in one group
    found = tuple(wire.OpTensors(one.sequence, (GRADIENT,)) for one in pending)
    blocked = next((one for one in pending if one.sequence == waits_in), None)
    view = replace(frame.ranks[0], pending=pending, blocked_on=blocked)
    frame = replace(frame, ranks={**frame.ranks, 0: view})
    frame = frame if verdict else replace(frame, verdicts=())
    live(Answering(frame, wire.TensorsResponse(1, "node0", 0, 5, found)))
    assert tensors_command.run(options(members=True, json=True)) == 0
    said = capsys.readouterr()
    assert read_document(said.out, "frtop-members-1")["number"] == 8812 + chosen - 30_000
    named = f"op {chosen} (#{8812 + chosen - 30_000} all_reduce)"
    assert said.err.startswith(f"{named} is compared: {why}. For --op there are also op ")


def test_a_rank_without_tensors_is_called_by_its_number_and_who_waits_is_named(
    live: Callable[[Source], None],
) -> None:
    frame = hung()
    pid = frame.ranks[37].identity.pid
    text = f"process {pid} has no pending op with tensors: ask ranks that have one"
    live(Answering(frame, wire.TensorsResponse(1, "node4", 0, 5, (), "none", text)))
    with pytest.raises(FrtopError) as caught:
        tensors_command.run(options(rank=37))
    assert caught.value.text.startswith(f"rank 37 (process {pid}) has no pending op")
    assert caught.value.next_step == "rank 0 waits for it: `frtop tensors --rank 0`"


def test_what_a_rank_says_prints_no_control_characters() -> None:
    view = next(iter(poisoned(hung()).ranks.values()))
    said = wire.OpTensors(1, (wire.TensorSummary(EVIL, EVIL, (1,), "cpu", 1, 1),), EVIL)
    assert all(map(harmless, tensors_command.lines(view, (said,))))
