"""Gauges, skew and steps as events: once an interval, and from a file all that it has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs
from msgspec.structs import replace

from diagnosis.scenes import Scene
from files.boxes import BoxRecorder
from frtop_probe import archive, wire
from frtop_tui.cli import main
from frtop_tui.cli.parser import parse
from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import UsageError
from frtop_tui.features.stream.gauge_events import GaugeEvents
from frtop_tui.job.unix_times import Timeline
from job_statistics.captures import write
from screens.gauge_scenes import braked, history_of, measured
from screens.scenes import WALL, S


def events_of(frame: Frame, every_s: float = 10) -> GaugeEvents:
    timeline = Timeline()
    timeline.begin(frame)
    return GaugeEvents(timeline, every_s)


def told(source: GaugeEvents, frame: Frame) -> list[dict[str, Any]]:
    return [msgspec.to_builtins(event) for event in source.of(frame)]


def later(frame: Frame, seconds: float) -> Frame:
    """The same gauges, read again after this time."""
    passed = int(seconds * S)
    hosts = tuple(
        replace(one, gauges=replace(one.gauges, at_ns=one.gauges.at_ns + passed))
        for one in frame.hosts
        if one.gauges is not None
    )
    return replace(frame, now_ns=frame.now_ns + passed, hosts=hosts)


def test_a_host_is_told_with_all_that_has_figures_at_most_once_an_interval() -> None:
    frame = measured(0)
    source = events_of(frame)
    first = told(source, frame)
    (gpu,) = [one for one in first if (one["host"], one["kind"], one["name"]) ==
              ("node0", "gpu", "4")]  # fmt: skip
    assert gpu["values"]["sm_mhz"] == 1110
    assert gpu["read_s"] == WALL / S
    assert {one["kind"] for one in first} == {"host", "gpu", "infiniband", "nic", "disk", "cgroup",
                                              "rank"}  # fmt: skip
    assert told(source, frame) == told(source, later(frame, 5)) == []
    assert len(told(source, later(frame, 10))) == len(first)


def test_ranks_are_named_by_their_number_and_those_of_other_jobs_left_out() -> None:
    frame = measured()
    first = [rank for rank, view in frame.ranks.items() if view.host == "node0"]
    frame = replace(frame, ranks={rank: frame.ranks[rank] for rank in first[:3]})
    keys = {frame.ranks[rank].key for rank in first[:3]}
    found = [one for one in told(events_of(frame), frame) if one["host"] == "node0"]
    ranks = [one for one in found if one["kind"] == "rank"]
    assert len(ranks) == len(keys & set(range(1, 9)))
    assert all(one["ranks"].isdecimal() and not one["name"] for one in ranks)


def test_what_a_silent_host_last_said_is_not_told_as_new() -> None:
    frame = measured()
    silent = replace(frame, hosts=tuple(replace(one, state="silent") for one in frame.hosts))
    assert told(events_of(silent), silent) == []


def test_skew_and_steps_are_told_of_what_statistics_there_are(tmp_path: Path) -> None:
    write(tmp_path / "a.cap")
    frame = write(tmp_path / "b.cap")
    found = told(events_of(frame), frame)
    (skew,) = [one for one in found if one["event"] == "skew"]
    assert (skew["median_s"], skew["last_rank"]) == (0.02, 2)
    assert skew["last_count"] == skew["sampled"] > 10
    job, *ranks = [one for one in found if one["event"] == "step_parts"]
    assert (job["rank"], job["all_s"], job["data_s"]) == (None, 0.1, None)
    assert ranks[0]["rank"] == 2


def box_with_minutes(path: Path) -> None:
    """Ten minutes of readings, and twenty minutes before them as means."""
    table = history_of(braked, last_s=1800)
    (box,) = BoxRecorder(Scene(4)).boxes()
    after = structs.replace(box.after, gauges=table.full())
    box = structs.replace(box, after=after, gauges=table.history(), minutes=table.minutes(0))
    archive.write(path, "blackbox", wire.encode(box))


@pytest.mark.parametrize(("every", "least", "most"), [("60", 29, 31), ("0.1", 80, 112)])
def test_a_record_of_a_run_is_told_from_its_first_minute_on(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], every: str, least: int, most: int
) -> None:
    box_with_minutes(tmp_path / "x.box")
    words = ["stream", "--only", "gauges", "--gauges", every, str(tmp_path / "x.box")]
    assert main(words) == 0
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    host = [one for one in lines if one["event"] == "gauges" and one["kind"] == "host"]
    times = [one["read_s"] for one in host]
    assert least <= len(times) <= most
    assert times == sorted(times)
    assert times[-1] - times[0] > 1700
    assert lines[0]["only"] == ["gauges"]
    assert lines[-1]["event"] == "end"


@pytest.mark.parametrize("words", [["--gauges", "0"], ["--gauges", "x"], ["--only", "gauge"]])
def test_wrong_intervals_are_refused(words: list[str]) -> None:
    with pytest.raises(UsageError):
        parse(["stream", *words])
