"""Settings that hide what ops of NCCL do on devices are said, each with the variable to set."""

from __future__ import annotations

import inspect

import pytest
from msgspec.structs import replace

from diagnosis.scenes import Scene
from frtop_probe import wire
from frtop_probe.device_settings import (
    OFF_REASON,
    OWN_REASONS,
    READ,
    settings_in_the_way,
    uses_nccl,
)
from frtop_probe.recorder.ops import device_front, device_watch
from frtop_tui.job.coverage import RankCounts
from frtop_tui.job.device_settings import settings_of_rank
from frtop_tui.job.model import ObservedRank

NCCL = ("nccl",)
TIMED = {"TORCH_NCCL_ENABLE_TIMING": "1"}


@pytest.mark.parametrize(
    ("settings", "torch", "code", "why", "variable"),
    [
        ({"TORCH_NCCL_TRACE_BUFFER_SIZE": "0"}, "2.8.0", "recorder off",
         "the Flight Recorder is off: TORCH_NCCL_TRACE_BUFFER_SIZE=0",
         "TORCH_NCCL_TRACE_BUFFER_SIZE=2000"),
        ({"TORCH_FR_BUFFER_SIZE": "0"}, "2.13.0", "recorder off",
         "the Flight Recorder is off: TORCH_FR_BUFFER_SIZE=0", "TORCH_FR_BUFFER_SIZE=2000"),
        ({}, "2.10.0+cu128", "recorder off",
         "the Flight Recorder is off: torch 2.10.0+cu128 has it off by default",
         "TORCH_FR_BUFFER_SIZE=2000"),
        ({}, "2.8.0", "recorder off",
         "the Flight Recorder is off: torch 2.8.0 has it off by default",
         "TORCH_NCCL_TRACE_BUFFER_SIZE=2000"),
        ({"TORCH_NCCL_BLOCKING_WAIT": "1"}, "2.13.0", "blocking wait",
         "TORCH_NCCL_BLOCKING_WAIT=1: no watchdog runs", "TORCH_NCCL_BLOCKING_WAIT=0"),
        ({"NCCL_BLOCKING_WAIT": "True"}, "", "blocking wait",
         "NCCL_BLOCKING_WAIT=True: no watchdog runs", "NCCL_BLOCKING_WAIT=0"),
    ],
)  # fmt: skip
def test_what_blinds_is_said_with_the_variable_to_set(
    settings: dict[str, str], torch: str, code: str, why: str, variable: str
) -> None:
    (found,) = [one for one in settings_in_the_way(NCCL, settings, torch) if one.blinds]
    assert found.code == code
    assert found.why.startswith(why)
    assert found.sentence.startswith(
        "it is not known whether an NCCL op runs on its device, or is over"
    )
    assert found.sentence.endswith(f"; next time set {variable}")


@pytest.mark.parametrize(
    ("settings", "code", "lost"),
    [
        ({"TORCH_NCCL_DUMP_ON_TIMEOUT": "0"}, "no dumps", "nothing is dumped"),
        ({"TORCH_NCCL_ENABLE_MONITORING": "false"}, "no monitor", "nothing is dumped"),
        (
            {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"},
            "no error handling",
            "it is not known when the job would end",
        ),
        ({"TORCH_NCCL_ENABLE_TIMING": "0"}, "no timing", "no dump shows when an NCCL op began"),
    ],
)
def test_what_only_hides_something_beside_is_no_blindness(
    settings: dict[str, str], code: str, lost: str
) -> None:
    found = settings_in_the_way(NCCL, TIMED | settings, "2.13.0")
    assert [one.code for one in found] == [code]
    assert not found[0].blinds
    assert found[0].sentence.startswith(lost)
    assert set(settings) <= set(READ)


def test_with_all_that_can_be_seen_nothing_is_said() -> None:
    assert settings_in_the_way(NCCL, TIMED, "2.13.0") == ()
    assert settings_in_the_way(NCCL, TIMED | {"TORCH_NCCL_BLOCKING_WAIT": "0"}, "2.13.0") == ()
    # Without a version nothing follows from what is not set.
    assert settings_in_the_way(NCCL, {}) == ()


def test_timing_is_off_unless_it_is_set() -> None:
    (found,) = settings_in_the_way(NCCL, {}, "2.13.0")
    assert found.code == "no timing"
    assert "TORCH_NCCL_ENABLE_TIMING is not set (torch warns" in found.why


@pytest.mark.parametrize("backends", [(), ("gloo",), ("cpu:gloo",), ("undefined", "mpi")])
def test_without_nccl_nothing_is_said(backends: tuple[str, ...]) -> None:
    blind = {"TORCH_NCCL_BLOCKING_WAIT": "1", "TORCH_FR_BUFFER_SIZE": "0"}
    assert settings_in_the_way(backends, blind, "2.9.0", reasons={"recorder off": "dp"}) == ()
    assert not uses_nccl(backends)
    assert uses_nccl((*backends, "cpu:gloo,cuda:nccl"))


def test_what_was_seen_counts_more_than_what_is_set() -> None:
    seen = settings_in_the_way(NCCL, TIMED, "2.9.0", records=True)  # set in the program, say
    assert seen == ()
    (found,) = settings_in_the_way(NCCL, TIMED, "2.13.0", records=False)
    assert found.why == "the Flight Recorder is off"


def test_a_reason_of_the_recorder_is_said_where_no_setting_explains_it() -> None:
    reasons = {"not handed over": "dp"}
    (found,) = settings_in_the_way(NCCL, TIMED, "2.13.0", reasons=reasons)
    assert found.blinds
    assert found.sentence == (
        "in dp, it is not known whether an NCCL op runs on its device, or is over:"
        " its backend does not record what it hands over"
    )
    blocking = TIMED | {"TORCH_NCCL_BLOCKING_WAIT": "1"}
    (found,) = settings_in_the_way(NCCL, blocking, "2.13.0", reasons=reasons)
    assert found.variable == "TORCH_NCCL_BLOCKING_WAIT"


def test_that_the_flight_recorder_is_off_is_what_the_recorder_saw() -> None:
    (found,) = settings_in_the_way(NCCL, TIMED, "2.13.0", reasons={"recorder off": "dp"})
    assert (found.code, found.variable) == ("recorder off", "TORCH_FR_BUFFER_SIZE")


def test_messages_hide_one_group_in_many_jobs_and_blind_nobody() -> None:
    (found,) = settings_in_the_way(NCCL, TIMED, "2.13.0", reasons={"p2p": "pp"})
    assert not found.blinds
    assert found.sentence.startswith("in pp, it is not known whether")


def test_an_error_of_the_status_is_said_and_an_unknown_word_is_not() -> None:
    reasons = {"unreadable: ValueError: x": "dp", "destroyed": "tp", "from later": "ep"}
    (found,) = settings_in_the_way(NCCL, TIMED, "2.13.0", reasons=reasons)
    assert found.why == "its status cannot be read (ValueError: x)"


def test_the_words_are_those_of_the_recorder() -> None:
    known = {value for name, value in vars(device_front).items() if name.isupper()}
    assert OFF_REASON in known
    assert set(OWN_REASONS) - {"rocm", "nccl variant"} <= known
    source = inspect.getsource(device_watch)
    assert '"rocm"' in source
    assert '"nccl variant"' in source


def test_a_value_of_any_length_is_cut() -> None:
    (found,) = settings_in_the_way(NCCL, {"TORCH_FR_BUFFER_SIZE": "0" * 500} | TIMED, "2.13.0")
    assert len(found.sentence) < 200


def views(backend: str, *settings: dict[str, str]) -> dict[int, ObservedRank]:
    scene = Scene(len(settings))
    scene.hear()
    found = {}
    for number, view in scene.frame().ranks.items():
        identity = replace(view.identity, torch="2.13.0", settings=tuple(settings[number].items()))
        groups = {1: replace(next(iter(view.groups.values())), backend=backend)}
        found[number] = replace(view, identity=identity, groups=groups)
    return found


def texts(
    ranks: dict[int, ObservedRank], before: dict[int, ObservedRank] | None = None
) -> list[str]:
    counts = RankCounts()
    for number, view in ranks.items():
        old = before[number] if before is not None else None
        if old is not None:
            counts.put(None, old)
        counts.put(old, view)
    notes = counts.coverage(ranks, len(ranks), 0, 0).notes
    return [note.text for note in notes if "NCCL" in note.text]


def test_the_coverage_says_whose_settings_blind() -> None:
    blocking = {"TORCH_NCCL_BLOCKING_WAIT": "1"}
    (text,) = texts(views("nccl", blocking, {}, blocking))
    assert text.startswith("ranks 0,2: it is not known whether an NCCL op runs on its device")
    assert text.endswith("; next time set TORCH_NCCL_BLOCKING_WAIT=0")
    (text,) = texts(views("nccl", blocking, blocking))
    assert text.startswith("it is not known whether an NCCL op")
    assert texts(views("gloo", blocking, blocking)) == []
    assert texts(views("nccl", {}, TIMED)) == []
    # What a rank is in later counts.
    assert texts(views("nccl", blocking), before=views("gloo", blocking))
    assert not texts(views("gloo", blocking), before=views("nccl", blocking))


def test_the_details_of_a_rank_say_all_of_them() -> None:
    (rank,) = views("nccl", {"TORCH_NCCL_BLOCKING_WAIT": "1"}).values()
    assert [one.code for one in settings_of_rank(rank)] == ["blocking wait", "no timing"]
    outside = replace(rank, identity=replace(rank.identity, prepared=False))
    assert settings_of_rank(outside) == ()


def test_what_the_recorder_says_of_groups_is_taken_from_them() -> None:
    (rank,) = views("nccl", TIMED).values()
    ((number, group),) = rank.groups.items()
    blind = replace(rank, groups={number: replace(group, blind="recorder off")})
    assert [one.code for one in settings_of_rank(blind)] == ["recorder off"]
    assert len(texts({0: blind}, before={0: rank})) == 1
    assert texts({0: rank}, before={0: blind}) == []
    old = replace(rank, identity=replace(rank.identity, torch="2.9.1"))
    assert [one.code for one in settings_of_rank(old)] == ["recorder off"]
    watched = wire.GroupProgress(number, 5, 0, 1, watched=True)  # switched on in the program, say
    following = replace(old, group_progress={number: watched})
    assert settings_of_rank(following) == ()
    assert texts({0: following}, before={0: old}) == []
