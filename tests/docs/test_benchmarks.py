"""The page of benchmarks shows what measurements printed, and says so where it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import page
from bench.paired import Interval
from bench.steps import row

HEADER = (
    "# 2026-11-29, 2 processors, load 0.5\nfrtop 0.1.0, torch 2.13.0, Python 3.11.7, x86_64\n\n"
)
ROW = row([10.1] * 20, [10.0] * 20, 4)
COST = f"""{HEADER}\
recorder, µs an op, fake backend, 8 ranks or as shown: the bare op, and what each kernel adds
op                                        bare                  Python                  native
all_reduce                                 5.1   +10.2   +20.4   +31.0    +0.6    +1.5    +2.5
cold: functional all_reduce and wait_tensor    12.3   +30.0   +40.0   +51.0    -0.1    +1.5  +112.5
resident memory that 1,000,000 ops of new shapes add, Python: +0.1 MB (budget 1 MB)
"""
STEPS = f"""{HEADER}\
added: median of the differences of pairs, and its 95 % interval; cpu: all threads of rank 0
{"ddp":<16}{"Python":<8}{6:>4.0f} wall {ROW}  bit-equal
{"":<29}cpu  {ROW}
{"ddp":<16}{"native":<8}{6:>4.0f} wall {ROW}  bit-equal
{"":<29}cpu  {ROW}
{"":<16}{"in turn":<13}wall {ROW}
"""
WAYS = f"""{HEADER}\
ways to look inside, steps of 2 ranks on gloo: pairs of blocks of 4 steps
DDP                                        without                        us        %   pairs
  {"nothing":<36}{row([1.0, 2.0], [1.0, 2.0], 4)}
  {"frtop, native kernels, agent, long":<36}{ROW}
  {"TraceML, long":<36}  not installed: pip install traceml-ai
  {"TORCH_DISTRIBUTED_DEBUG=DETAIL":<36}  ends the program
"""


def test_figures_are_those_of_the_texts() -> None:
    assert page.costs(COST) == [
        page.Cost("all_reduce", "Python", 10.2, 20.4, 31.0),
        page.Cost("all_reduce", "native", 0.6, 1.5, 2.5),
        page.Cost("cold: functional all_reduce and wait_tensor", "Python", 30.0, 40.0, 51.0),
        page.Cost("cold: functional all_reduce and wait_tensor", "native", -0.1, 1.5, 112.5),
    ]
    percent = Interval(1.0, 1.0, 1.0)
    assert page.of_steps(STEPS) == [
        page.Added("ddp", "Python kernels, blocks", percent),
        page.Added("ddp", "native kernels, blocks", percent),
        page.Added("ddp", "native kernels, in turn", percent),
    ]
    few = Interval(float("-inf"), 0.0, float("inf"))
    assert page.of_ways(WAYS) == [
        page.Added("DDP", "nothing", few),
        page.Added("DDP", "frtop, native kernels, agent, long", percent),
        page.Added("DDP", "TraceML, long", None, "not installed: pip install traceml-ai"),
        page.Added("DDP", "TORCH_DISTRIBUTED_DEBUG=DETAIL", None, "ends the program"),
    ]


@pytest.mark.parametrize("name", ["recorder_cost", "steps", "side_by_side"])
def test_a_text_without_figures_is_an_error_that_names_it(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=f"text of {name} has no row"):
        page.write({name: HEADER}, tmp_path)
    assert not (tmp_path / page.PAGE).exists()


def test_the_page_has_every_text() -> None:
    assert set(page.texts_of(page.DOCS / page.PAGE)) == set(page.PARTS)


@pytest.mark.long
def test_a_measurement_changes_its_own_text_only(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    live = f"{HEADER}traffic: 378 B / rank / s"
    page.write({"recorder_cost": COST, "steps": STEPS, "live": live}, tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*")}
    assert len(before) == 3
    page.write({}, tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.*")} == before
    page.write({"side_by_side": WAYS}, tmp_path)
    texts = {"recorder_cost": COST, "steps": STEPS, "side_by_side": WAYS, "live": live}
    assert page.texts_of(tmp_path / page.PAGE) == {
        name: text.strip() for name, text in texts.items()
    }
    page.write({"live": live.replace("378", "402")}, tmp_path)
    assert "402 B" in page.texts_of(tmp_path / page.PAGE)["live"]
