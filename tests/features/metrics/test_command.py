"""Metrics of frames, read by Prometheus' own parsers: bounded, monotonic, no free text."""

from __future__ import annotations

import json
import re
import socket
import threading
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from connect.fakes import frame_of
from frtop_probe import wire
from frtop_tui.cli import main
from frtop_tui.cli.parser import parse
from frtop_tui.connect.op_follower import FollowedOps
from frtop_tui.diagnosis.model import Frame, Why
from frtop_tui.errors import FrtopError, UsageError
from frtop_tui.features.metrics.job_counts import GROUPS, JobCounts
from frtop_tui.files import capture
from job_statistics.captures import write
from screens.gauge_scenes import measured
from screens.scenes import S, hung
from waiting import wait_for

pytest.importorskip("prometheus_client")

from prometheus_client import CollectorRegistry
from prometheus_client import generate_latest as classic_text
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.parser import (
    text_string_to_metric_families as classic_families,
)

from frtop_tui.features.metrics.command import MOST_CLIENTS, _server
from frtop_tui.features.metrics.families import MOST_ROWS, JobCollector

HOSTILE = 'a"b\\c\n# HELP x\x1b]0;x\x07\u202e\ud800}'
DOCS = Path(__file__).parents[3] / "docs"
PANELS: list[dict[str, Any]] = json.loads((DOCS / "frtop-grafana.json").read_text())["panels"]
Samples = dict[str, dict[tuple[str, ...], float]]


def samples(collector: JobCollector) -> Samples:
    """All samples by name, each by the values of its labels, as both parsers read them."""
    registry = CollectorRegistry()
    registry.register(collector)  # type: ignore[arg-type, unused-ignore]
    encode: Any = generate_latest
    text = encode(registry).decode()
    parse_text: Any = text_string_to_metric_families
    list(classic_families(classic_text(registry).decode()))
    found: Samples = defaultdict(dict)
    for family in parse_text(text):
        for sample in family.samples:
            key = tuple(sample.labels.values())
            assert key not in found[sample.name], "a series is there twice"
            found[sample.name][key] = sample.value
    return found


def collected(*frames: Frame, per_rank: bool | None = None) -> Samples:
    collector = JobCollector(per_rank)
    for frame in frames:
        collector.update(frame, [], 0)
    return samples(collector)


def families_of(frame: Frame) -> dict[str, Any]:
    collector = JobCollector()
    collector.update(frame, [], 0)
    return {family.name: family for family in collector.collect()}


def later(frame: Frame, seconds: float, **changes: Any) -> Frame:
    return replace(frame, now_ns=frame.now_ns + int(seconds * S), **changes)


def test_a_hang_is_in_the_numbers() -> None:
    found = collected(hung())
    assert found["frtop_health"]["hung",] == 1
    assert sum(found["frtop_health"].values()) == 1
    assert found["frtop_ranks"]["late",] == 1
    assert found["frtop_ranks_expected"][()] == 64
    (words,) = found["frtop_verdicts"]
    assert set(words) == {"not_entered", "dataloader", "confirmed", "none"}
    assert found["frtop_culprits"][()] == 1
    assert found["frtop_longest_wait_seconds"][()] > 200


def test_hostile_names_are_labels_and_nothing_more() -> None:
    frame = hung()
    group = wire.Group(1, HOSTILE, HOSTILE * 9, "nccl", "0-63")
    ranks = {
        rank: replace(view, host=HOSTILE, groups={1: group}) for rank, view in frame.ranks.items()
    }
    assert frame.job is not None
    job = replace(frame.job, name=HOSTILE, run_id=HOSTILE)
    why = Why.of("unknown", HOSTILE)
    verdicts = tuple(replace(one, why=why) for one in frame.verdicts)
    found = collected(replace(frame, ranks=ranks, job=job, verdicts=verdicts))
    words = [word for series in found.values() for labels in series for word in labels]
    assert any("# HELP x" in word for word in words), "names are shown"
    assert all(word.isprintable() and len(word) <= 80 for word in words)
    (verdict,) = found["frtop_verdicts"]
    assert "unknown" in verdict


def test_many_groups_share_a_label() -> None:
    frame = hung()
    groups = {n: wire.Group(n, f"g{n}", "", "gloo", "0-63") for n in range(1, 1000)}
    progress = {n: wire.GroupProgress(n, 1, 0, 1) for n in groups}
    ranks = {5: replace(frame.ranks[5], groups=groups, group_progress=progress)}
    ops = collected(replace(frame, ranks=ranks))["frtop_ops_total"]
    assert len(ops) == GROUPS + 1
    assert sum(ops.values()) == 999


@pytest.mark.parametrize(("count", "chosen", "shown"), [
    (64, None, True), (65, None, False), (65, True, True), (64, False, False),
])  # fmt: skip
def test_ranks_have_series_up_to_64_or_as_chosen(
    count: int, chosen: bool | None, shown: bool
) -> None:
    frame = hung()
    ranks = {n: replace(frame.ranks[5], rank=n) for n in range(count)}
    found = collected(replace(frame, ranks=ranks), per_rank=chosen)
    assert len(found.get("frtop_rank_state", {})) == (count if shown else 0)


def with_ops(frame: Frame, *issued: int, **identity: Any) -> Frame:
    """The frame with ranks 0, 1, ... that have issued so many ops of one group."""
    group = wire.Group(1, "0", "default_pg", "gloo", "0-63")
    ranks = {}
    for rank, number in enumerate(issued):
        view = frame.ranks[rank]
        ranks[rank] = replace(
            view, groups={1: group}, group_progress={1: wire.GroupProgress(1, number, 0, 1)},
            identity=replace(view.identity, **identity),
        )  # fmt: skip
    return replace(frame, ranks=ranks)


def test_counters_only_grow_when_ranks_go_and_come_again() -> None:
    frame = hung()
    steps = [with_ops(frame, 100, 90), with_ops(frame, 110), with_ops(frame, 5, 95, start_ticks=7)]
    collector, seen = JobCollector(), []
    for step in steps:
        collector.update(step, [], 0)
        seen.append(sum(samples(collector)["frtop_ops_total"].values()))
    assert seen == [190, 200, 300]


def test_a_program_that_makes_groups_all_day_costs_no_memory() -> None:
    frame = hung()
    counts = JobCounts.begin(frame)
    for n in range(1, 2000):
        progress = {n: wire.GroupProgress(n, 3, 0, 1)}
        counts.update(replace(frame, ranks={0: replace(frame.ranks[0], group_progress=progress)}))
    assert sum(counts.ops.values()) == 3 * 1999
    assert sum(map(len, counts._progress.values())) < 300


def test_another_job_begins_anew_and_says_since_when() -> None:
    frame = replace(with_ops(hung(), 100), up_s=60.0)
    assert frame.job is not None
    collector = JobCollector()
    collector.update(frame, [], 0)
    before = samples(collector)
    passed = 3600 * S
    other = replace(
        with_ops(frame, 3), job=replace(frame.job, attempt=1), up_s=5.0,
        now_ns=frame.now_ns + passed, wall_ns=frame.wall_ns + passed,
    )  # fmt: skip
    collector.update(other, [], 0)
    after = samples(collector)
    (was,), (now,) = before["frtop_ops_total"].values(), after["frtop_ops_total"].values()
    (created,), (again,) = before["frtop_ops_created"].values(), after["frtop_ops_created"].values()
    assert (was, now) == (100, 3)
    assert (created, again) == (frame.wall_ns / S - 60, frame.wall_ns / S + 3600 - 5)


def test_waiting_is_added_up_by_group_and_a_sleeping_machine_adds_little() -> None:
    frame = hung()
    found = collected(frame, later(frame, 2), later(frame, 3600))
    waited = found["frtop_waiting_seconds_total"]
    assert sum(waited.values()) == pytest.approx(63 * 7)


def test_bytes_are_those_of_the_ops_that_were_followed() -> None:
    frame = hung()
    view = frame.ranks[0]
    number = min(view.groups)
    signature = wire.Signature("all_reduce", inputs=(wire.TensorSpec("float32", (10,)),))
    ops = tuple(wire.Op(n, number, n, signature, None, n) for n in range(3))
    collector = JobCollector()
    unknown = wire.Op(9, number, 9, None, None, 9)
    collector.update(frame, [FollowedOps(view, (*ops, unknown), lost=4)], 2)
    found = samples(collector)
    assert list(found["frtop_bytes_total"].values()) == [120]
    assert found["frtop_ops_without_size_total"][()] == 1
    assert found["frtop_lost_total"]["ops",] == 6


def test_step_times_are_those_between_steps() -> None:
    counts, frame = JobCounts.begin(hung()), hung()
    for step, begun in ((10, 1), (11, 3), (15, 11)):
        status = wire.RankStatus(2, 1, 5, step=step, step_ns=begun * S)
        counts.update(replace(frame, ranks={0: replace(frame.ranks[0], status=status)}))
    assert counts.steps[0].seconds == 2.0


def test_a_capture_is_written_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.cap"
    capture.write(path, hung(), {}, ())
    assert main(["metrics", "--once", str(path)]) == 0
    text = capsys.readouterr().out
    assert text.endswith("# EOF\n")
    parse_text: Any = text_string_to_metric_families
    assert list(parse_text(text))
    assert main(["metrics", str(path)]) == 2
    assert "frtop metrics --once FILE" in capsys.readouterr().err


def test_an_address_that_is_taken_is_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(FrtopError, match="cannot listen on"):
            _server(taken.getsockname(), JobCollector())


@pytest.fixture
def port() -> Iterator[int]:
    server = _server(("127.0.0.1", 0), JobCollector())
    server_thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
    )
    server_thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()
    server_thread.join()


def scraped(port: int) -> bool:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return b"frtop_" in answer.read()


def test_who_keeps_connections_open_shuts_nobody_out(port: int) -> None:
    with ExitStack() as stack:
        for _ in range(MOST_CLIENTS + 2):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            client.sendall(b"GET /metrics HTTP/1.1\r\n")
        assert scraped(port)


def test_who_drips_bytes_is_cut_off(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frtop_tui.features.metrics.command.CLIENT_S", 0.3)
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\nX: ")

        def is_cut_off() -> bool:
            try:
                client.sendall(b"x")
            except OSError:
                return True
            return False

        wait_for(is_cut_off, "the end of its connection", pause_s=0.02)
    assert scraped(port)


@pytest.mark.parametrize("words", [["metrics", "--listen", "9400"], ["metrics", "--listen", ":94"],
                                   ["stream", "--only", "op"], ["stream", "--rank", "x"]
                                   ])  # fmt: skip
def test_wrong_options_say_what_is_right(words: list[str]) -> None:
    with pytest.raises(UsageError):
        parse(words)


def test_gauges_of_hosts_are_in_the_numbers_and_bounded() -> None:
    found = collected(measured(1))
    assert found["frtop_host_cpu_ratio"]["node3",] == 0.61
    assert found["frtop_host_memory_bytes"]["node3",] == 2**40
    assert found["frtop_host_disk_bytes_per_second"]["node3", "read"] == 0
    assert found["frtop_host_disk_bytes_per_second"]["node3", "written"] == pytest.approx(
        3e6, rel=0.002
    )
    assert found["frtop_host_disk_busy_ratio"]["node3",] == 0.02
    assert found["frtop_host_pressure_ratio"]["node3", "cpu"] == 0.03
    assert found["frtop_host_link_bytes_per_second"]["node1", "mlx5_0:1", "sent"] == pytest.approx(
        3e9, rel=0.002
    )
    assert found["frtop_gpu_clock_hertz"]["4", "node1"] == 1.11e9
    assert found["frtop_gpu_busy_ratio"]["3", "node1"] == 0.98
    facts = {kind: count for (kind,), count in found["frtop_host_facts"].items() if count}
    assert facts == {"gpu slow": 1}
    many = collected(measured(1, 70, hosts=100))
    assert "frtop_host_cpu_ratio" not in many
    assert many["frtop_host_facts"]["gpu slow",] == 2


def test_the_page_and_the_dashboard_have_the_metrics_that_there_are() -> None:
    there = {name for name in collected(measured()) if not name.endswith("_created")}
    there -= {"frtop_build_info"}
    page = set(re.findall(r"`(frtop_\w+)`", (DOCS / "features" / "metrics.md").read_text()))
    empty = {"frtop_bytes_total", "frtop_timeout_left_seconds", "frtop_step_seconds",
             "frtop_clock_error_seconds"}  # fmt: skip
    # Of statistics, which this frame has not: see `job_statistics`.
    empty |= {"frtop_op_seconds", "frtop_op_bus_bytes_per_second", "frtop_step_part_seconds",
              "frtop_samples_per_second", "frtop_rank_own_seconds", "frtop_window_seconds",
              "frtop_op_skew_seconds", "frtop_group_skew_seconds", "frtop_reported"}  # fmt: skip
    assert there - page == set()
    assert page - there <= empty
    shown = set(re.findall(r"frtop_\w+", " ".join(target["expr"] for panel in PANELS
                                                  for target in panel["targets"])))  # fmt: skip
    assert shown <= there | empty
    assert {one for one in there if one.startswith(("frtop_host_", "frtop_gpu_"))} <= shown
    assert {"frtop_group_skew_seconds", "frtop_step_part_seconds"} <= shown


def test_panels_of_the_dashboard_have_a_place_of_their_own() -> None:
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    cells = Counter(
        (x, y)
        for place in (panel["gridPos"] for panel in PANELS)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    )
    assert max(cells.values()) == 1
    assert max(x for x, _ in cells) < 24
    sources = [one["datasource"] for panel in PANELS for one in (panel, *panel["targets"])]
    assert all(one == {"type": "prometheus", "uid": "${source}"} for one in sources)


def test_metrics_are_bounded_and_without_paths(tmp_path: Path) -> None:
    found = families_of(write(tmp_path / "a.cap"))
    (skew,) = found["frtop_op_skew_seconds"].samples
    assert skew.value == 0.02
    assert skew.labels["op"] == "all_reduce"
    assert len(found["frtop_op_seconds"].samples) <= 3 * MOST_ROWS
    skews = {one.labels["quantile"]: one for one in found["frtop_group_skew_seconds"].samples}
    assert (skews["0.5"].value, skews["0.5"].labels["group"]) == (0.02, "default_pg")
    assert skews["1"].value >= 0.02
    parts = {one.labels["part"]: one.value for one in found["frtop_step_part_seconds"].samples}
    assert parts["all"] == 0.1
    assert "data" not in parts
    assert found["frtop_rank_own_seconds"].samples[0].labels["rank"] == "2"
    assert not any("/srv" in repr(family) for family in found.values())
    assert "frtop_op_seconds" not in families_of(frame_of())
