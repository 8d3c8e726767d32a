"""What torch's analyzer of Flight Recorder dumps prints proves as much as the dumps."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from files.flightrecorder.writer import one_missing, write_dumps
from frtop_probe.ring.rank_ranges import fold
from frtop_tui.diagnosis.model import Frame
from frtop_tui.files.loader import open_paths

BLOCK = """
Not all ranks joining collective, sequence number: {number}
internal record id: 194104
group info: 72:EXPERTS
collective: nccl:all_to_all
missing ranks: {missing}
input sizes: [[2048, 5120]]
output sizes: [[2116, 5120]]
world size: 4
expected ranks: {{8, 9, 10, 11}}
collective state: scheduled
collective stack trace:
"""


def judged(tmp_path: Path, text: str) -> Frame:
    log = tmp_path / "analysis.log"
    log.write_text(text)
    return open_paths([log])


def said(frame: Frame) -> list[tuple[str, str]]:
    return [(one.kind, fold(one.culprits)) for one in frame.verdicts]


@pytest.mark.long
@pytest.mark.torch
def test_torchs_own_analyzer_and_the_dumps_lead_to_the_same_rank(tmp_path: Path) -> None:
    analyzer = "torch.distributed.flight_recorder.fr_trace"
    folder = tmp_path / "dumps"
    folder.mkdir()
    write_dumps(folder, one_missing(4, culprit=2))
    printed = subprocess.run(
        [sys.executable, "-m", analyzer, str(folder), "-p", "nccl_trace_rank_"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    if f"No module named '{analyzer.rpartition('.')[0]}" in printed.stderr:
        pytest.skip("this torch has no analyzer")
    by_analyzer = judged(tmp_path, printed.stdout + printed.stderr)
    assert said(by_analyzer) == said(open_paths([folder])) == [("not_entered", "2")]
    assert "all_reduce #21" in by_analyzer.verdicts[0].headline


def test_the_first_op_of_a_group_decides(tmp_path: Path) -> None:
    first, next_one = (BLOCK.format(number=n, missing="{9}") for n in (45265, 45266))
    frame = judged(tmp_path, first + next_one.replace("{9}", "{10}"))
    assert said(frame) == [("not_entered", "9")]
    assert "all_to_all #45265 of EXPERTS; ranks 8,10-11 wait" in frame.verdicts[0].headline
    assert frame.verdicts[0].evidence[0].startswith("analysis.log:2: Not all ranks joining")


@pytest.mark.parametrize("missing", ["{8, 9, 10, 11}", "{99}", "set()", "{9999999}"])
def test_blocks_that_make_no_sense_say_nothing(tmp_path: Path, missing: str) -> None:
    made = BLOCK.format(number=7, missing=missing)
    frame = judged(tmp_path, f"[rank0]: Traceback (most recent call last):\n  x\n{made}")
    assert not any(one.culprits for one in frame.verdicts)
