"""What is told of frames: each change once, and all that is true again after a loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from files.flightrecorder.writer import make_recorders, write_dumps
from frtop_probe import wire
from frtop_probe.statistics.op_bytes import tensor_bytes
from frtop_tui.diagnosis.model import Frame
from frtop_tui.features.stream.frame_events import FrameEvents
from frtop_tui.features.stream.verbs import KINDS
from frtop_tui.files.loader import open_paths
from frtop_tui.job.unix_times import Timeline
from screens.scenes import NOW, WALL, S, hung


def events(*only: str, **fields: Any) -> FrameEvents:
    timeline = Timeline()
    timeline.begin(hung())
    return FrameEvents(timeline, only or KINDS, **fields)


def told(source: FrameEvents, frame: Frame) -> list[dict[str, Any]]:
    return [msgspec.to_builtins(event) for event in source.of(frame)]


def names(source: FrameEvents, frame: Frame) -> list[str]:
    return [one["event"] for one in told(source, frame)]


def later(frame: Frame, seconds: float, **changes: Any) -> Frame:
    passed = int(seconds * S)
    return replace(frame, now_ns=frame.now_ns + passed, wall_ns=frame.wall_ns + passed, **changes)


def test_the_first_frame_tells_all_and_the_same_one_nothing_more() -> None:
    source, frame = events(), hung()
    first = names(source, frame)
    assert first.count("host") == len(frame.hosts)
    assert first.count("state") == len(frame.ranks) == 64
    assert first.count("progress") == len(frame.groups)
    assert first.count("verdict") == len(frame.verdicts)
    assert names(source, later(frame, 5)) == []


def test_a_state_says_what_it_was_and_since_when_by_one_clock() -> None:
    source, frame = events("states"), hung()
    told(source, frame)
    view = replace(frame.ranks[5], state="dead", state_since_ns=NOW + S // 2)
    (found,) = told(source, later(frame, 1, ranks={**frame.ranks, 5: view}))
    assert (found["rank"], found["state"], found["was"]) == (5, "dead", "blocked")
    assert found["since_s"] == WALL / S + 0.5
    assert found["at_s"] == WALL / S + 1
    (gone,) = told(source, later(frame, 2, ranks={n: v for n, v in frame.ranks.items() if n != 5}))
    assert (gone["rank"], gone["state"], gone["was"]) == (5, "gone", "dead")


def test_a_clock_that_is_set_moves_no_event() -> None:
    source, frame = events("verdicts"), hung()
    told(source, frame)
    moved = replace(later(frame, 1, health="dead"), wall_ns=WALL + 3600 * S)
    assert [one["at_s"] for one in told(source, moved)] == [WALL / S + 1]


def test_a_verdict_begins_changes_and_is_over_under_one_number() -> None:
    source, frame = events("verdicts"), hung()
    (verdict,) = frame.verdicts
    quiet = replace(frame, verdicts=(), health="waiting")
    told(source, quiet)
    suspect = replace(verdict, confidence="suspect")
    shown = [
        one
        for step, verdicts in enumerate([(suspect,), (verdict,), (), (verdict,)])
        for one in told(source, later(quiet, step, verdicts=verdicts))
    ]
    assert [(one["id"], one["phase"]) for one in shown] == [
        (1, "begun"), (1, "changed"), (1, "over"), (2, "begun"),
    ]  # fmt: skip
    assert shown[1]["verdict"]["culprits"] == [37]


def test_progress_of_a_group_comes_at_most_once_a_second() -> None:
    source, frame = events("progress"), hung()
    frame = replace(frame, groups=tuple(one for one in frame.groups if one.key.name == "0"))
    assert [one["group"] for one in told(source, frame)] == ["0"]
    for tenth, expected in ((3, 0), (9, 0), (11, 1), (15, 0)):
        groups = tuple(replace(group, number=group.number + tenth) for group in frame.groups)
        assert len(told(source, later(frame, tenth / 10, groups=groups))) == expected


def test_after_a_loss_all_that_is_true_is_told_again() -> None:
    source, frame = events(), hung()
    first = told(source, frame)
    source.forget()
    assert told(source, frame) == first


def test_another_job_begins_anew_and_a_nonce_makes_none() -> None:
    source, frame = events("verdicts"), hung()
    told(source, frame)
    assert frame.job is not None
    known = replace(frame, job=msgspec.structs.replace(frame.job, nonce="n"))
    assert names(source, known) == []
    other = replace(frame, job=msgspec.structs.replace(frame.job, attempt=1))
    assert names(source, other) == ["job", "health", "verdict"]


def test_only_the_ranks_that_were_named() -> None:
    found = told(events("states", ranks=frozenset({3, 4, 99})), hung())
    assert [one["rank"] for one in found if one["event"] == "state"] == [3, 4]


def test_bytes_of_tensors_are_unknown_rather_than_wrong() -> None:
    spec = wire.TensorSpec
    assert tensor_bytes([spec("bfloat16", (3, 5), 2), spec("bool", ())]) == 61
    assert tensor_bytes([spec("float8_e4m3fn", (8,)), spec("complex64", (2,))]) == 24
    assert tensor_bytes([]) == 0
    for wrong in (
        ("float32", (-1,)),
        ("float32", (2**40, 2**40)),
        ("string", (1,)),
        ("int4", (8,)),
    ):
        assert tensor_bytes([spec(*wrong)]) is None
    assert tensor_bytes(None) is None


def test_a_state_has_no_age_where_a_dump_has_no_op(tmp_path: Path) -> None:
    frame = open_paths([write_dumps(tmp_path, make_recorders(3))])
    timeline = Timeline()
    timeline.begin(frame)
    assert {one["since_s"] for one in told(FrameEvents(timeline, {"states"}), frame)} == {None}
