"""A rank's page has a line per GPU that the rank uses."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.diagnosis.model import JudgedRank
from frtop_tui.widgets.process_pane import gpu_lines, process_lines
from frtop_tui.widgets.spans import text_of
from screens.scenes import CULPRIT, HOST_NOW, NOW, S, hung

SAMPLES = tuple(
    wire.GpuSample(HOST_NOW - back * 2 * S, 100, 96_000, 31 << 30, 1980, 0)
    for back in (5, 4, 3, 2, 1, 0)
)
H200 = wire.Gpu(3, "GPU-7d", "NVIDIA H200", 700_000, 139 << 30, processes=1, samples=SAMPLES)


@pytest.fixture
def rank() -> JudgedRank:
    return hung().ranks[CULPRIT]


def lines(rank: JudgedRank, *gpus: wire.Gpu, note: str = "") -> list[str]:
    with_gauges = replace(rank, gauges=wire.Gauges(gpus, note))
    return [text_of(line) for line in gpu_lines(with_gauges, NOW)]


def newest(gpu: wire.Gpu, **changes: object) -> wire.Gpu:
    return replace(gpu, samples=(replace(gpu.samples[-1], **changes),))


def test_all_figures_are_one_line(rank: JudgedRank) -> None:
    assert lines(rank, H200) == [
        "GPU 3 · a kernel spins · 100 % busy · 1,980 MHz · 96 of 700 W · 33.3 GB of 149 GB · H200"
    ]
    (line,) = lines(replace(rank, state="moving"), H200)
    assert line.startswith("GPU 3 · at little power · 100 % busy")
    gpu = newest(replace(H200, processes=3), power_mw=690_000, throttle=0x44)
    (line,) = lines(rank, gpu)
    assert line.startswith(
        "GPU 3 · shared by 3 processes · 100 % busy · slowed by power cap, heat (hardware)"
        " · 1,980 MHz · 690 of 700 W"
    )
    shown = process_lines(replace(rank, gauges=wire.Gauges((H200,))), 120, NOW)
    assert any(text_of(line).startswith("GPU 3") for line in shown)
    assert gpu_lines(rank, NOW) == []


def test_what_is_missing_is_left_out_or_said(rank: JudgedRank) -> None:
    gpu = newest(replace(H200, mig=True), utilization=None, power_mw=None, sm_mhz=None)
    assert lines(rank, gpu) == [
        "GPU 3 · busy: not known · 33.3 GB of 149 GB · MIG: figures of all parts · H200"
    ]
    assert lines(rank, replace(H200, error="GPU is lost")) == ["GPU 3 · H200 · GPU is lost"]
    assert lines(rank, wire.Gpu(4)) == ["GPU 4 · no figures yet"]
    assert lines(rank, note="NVML does not answer") == ["GPU: NVML does not answer"]


def test_old_figures_have_their_age_and_spin_no_more(rank: JudgedRank) -> None:
    old = replace(H200, samples=tuple(replace(s, at_ns=s.at_ns - 60 * S) for s in SAMPLES))
    (line,) = lines(rank, old)
    assert line.startswith("GPU 3 · 1m00s ago: · 100 % busy · 1,980 MHz · 96 of 700 W · 33.3 GB")


def test_the_driver_cannot_write_to_the_terminal(rank: JudgedRank) -> None:
    (line,) = lines(rank, replace(H200, name="X\x1b[2J"))
    assert "\x1b" not in line
