"""What the kit for one GPU makes of what it saw. Without a GPU nothing is ever proven."""

from __future__ import annotations

import pytest

from gpu_kit import findings
from gpu_kit.checks import capture, hang, steps, surroundings, zoo
from gpu_kit.facts import Fact
from gpu_kit.findings import Finding, Outcome
from gpu_kit.points import CHECKS, POINTS

STOCK: list[Fact] = [
    *({"fact": "joined", "rank": rank, "torch": "2.11.0", "nccl": "2.28.9", "backend": "nccl",
       "ms_per_op": 15.0, "right": True} for rank in range(4)),
    *({"fact": "before", "rank": rank, "status": [5, -1, 5]} for rank in range(4)),
    *({"fact": "entering", "rank": rank} for rank in range(4)),
]  # fmt: skip
"""Four ranks after five warm-up ops."""


def look(rank: int, name: str, **values: object) -> Fact:
    return {"fact": "look", "rank": rank, "look": name, "look_ms": 1.0, **values}


def statuses(absent: list[int], waiting: list[int]) -> list[Fact]:
    times = {"median_us": 20.0, "p99_us": 40.0, "max_us": 60.0, "looks": 300}
    return [
        look(rank, "status", status=absent if rank == 2 else waiting, times=times)
        for rank in range(4)
    ]


def outcomes(found: list[Finding]) -> dict[str, Outcome]:
    return {one.point: one.outcome for one in found}


def test_waiters_have_enqueued_one_op_more_than_was_completed() -> None:
    found = outcomes(hang.judge([*STOCK, *statuses([5, -1, 5], [6, -1, 5])]))
    assert found["four ranks"] == "expected"
    assert found["status values"] == "expected"
    assert found["status cost"] == "expected"


@pytest.mark.parametrize(
    ("absent", "waiting"), [([6, -1, 5], [6, -1, 5]), ([5, -1, 5], [6, -1, 6])]
)
def test_other_values_are_said(absent: list[int], waiting: list[int]) -> None:
    found = hang.judge([*STOCK, *statuses(absent, waiting)])
    assert outcomes(found)["status values"] == "otherwise"


def test_a_tensor_that_was_read_or_not_is_said() -> None:
    began = [{"fact": "look began", "rank": rank, "look": "read"} for rank in (0, 1, 3)]
    stuck = "device stuck: the copy did not end within 1.0 s"
    facts: list[Fact] = [
        *STOCK, *began,
        look(0, "read", ready=True, ms=0.9, size=1 << 22, bytes="0000803f" * 4),
        look(1, "read", ready=False, error=stuck),
    ]  # fmt: skip
    found = {one.point: one for one in hang.judge(facts)}
    assert found["read item"].outcome == "expected"
    assert "4194304 bytes after 0.9 ms, first values [1.0, 1.0]" in found["read item"].text
    assert found["read synchronize"].outcome == "otherwise"
    assert found["read synchronize"].text == stuck
    assert "no answer of ranks [3]" in found["read pageable"].text


def test_a_look_that_does_not_return_is_no_success() -> None:
    began = [{"fact": "look began", "rank": rank, "look": "dump"} for rank in range(4)]
    found = {one.point: one for one in hang.judge([*STOCK, *began])}
    assert found["dump in a hang"].outcome == "otherwise"
    assert "no answer of ranks [0, 1, 2, 3]" in found["dump in a hang"].text


def test_ranks_that_do_not_join_leave_the_rest_open() -> None:
    log = {"fact": "log", "who": "rank 0", "end": "ncclInvalidUsage: Duplicate GPU detected"}
    (finding,) = hang.judge([log])
    assert finding.outcome == "otherwise"
    assert "Duplicate GPU" in finding.text


def test_a_spinning_kernel_is_busy_at_idle_power() -> None:
    phases = (("idle", 0, 0, 75), ("hang", 10, 100, 120), ("work", 20, 100, 600), ("end", 30, 0, 0))
    facts: list[Fact] = [*STOCK]
    for name, at, percent, watts in phases:
        facts.append({"fact": "phase", "name": name, "at": at})
        figures = {"percent": percent, "watts": watts, "mhz": 1980, "limit": 700}
        facts += [{"fact": "power", "at": at + s, **figures} for s in range(2, 8)]
    assert outcomes(hang.judge(facts))["power"] == "expected"
    (said,) = [one.text for one in hang.judge(facts) if one.point == "power"]
    assert "by frtop's rule a kernel spins: hang; hang, idle power known" in said
    hot = [fact | {"watts": 590} if fact.get("watts") == 120 else fact for fact in facts]
    assert outcomes(hang.judge(hot))["power"] == "otherwise"
    cool = [fact | {"watts": 200} if fact.get("watts") == 600 else fact for fact in facts]
    assert outcomes(hang.judge(cool))["power"] == "otherwise"  # frtop would take work for waiting


def test_points_of_nccl2_have_names_of_their_own() -> None:
    found = hang.judge([*STOCK, *statuses([5, -1, 5], [6, -1, 5])], ["nccl2"])
    assert {one.point for one in found} <= set(POINTS)


def test_a_capture_that_breaks_is_said_and_expected_only_of_a_plain_dump() -> None:
    def captured(variant: str, error: str) -> Fact:
        return {"fact": "captured", "variant": variant, "rank": 0, "world": 1, "error": error,
                "values": [2**-10, 2**-30], "replay_ms": 1.0, "looks": 30, "unretired": 1,
                "other_thread": "", "stuck": False}  # fmt: skip

    facts = [captured("alone", ""), captured("dump", "cudaErrorStreamCaptureInvalidated"),
             captured("status", ""), captured("plain", "cudaErrorStreamCaptureInvalidated"),
             captured("unretired", "") | {"unretired": 0}]  # fmt: skip
    found = outcomes(capture.judge(facts))
    assert found["capture status"] == "expected"
    assert found["capture dump"] == "otherwise"
    assert found["capture plain dump"] == "expected"
    assert found["capture dump of unretired"] == "failed"


def test_unequal_results_are_said() -> None:
    facts = [{"fact": "equal", "kind": "ddp", "rank": 1, "digests": ["a", "b"]}]
    assert outcomes(steps.judge(facts))["equal ddp"] == "otherwise"


def test_a_verdict_that_is_undecided_refutes_nothing() -> None:
    one = {"fact": "zoo", "name": "not_entered/sleeping", "way": "unprepared", "reason": ""}
    facts = [one | {"reached": "undecided"}, one | {"reached": "wrong"}]
    found = zoo.judge(facts, ["not_entered/sleeping"])
    assert [one.outcome for one in found] == ["figure", "otherwise"]


@pytest.mark.parametrize(
    ("fronts", "outcome"),
    [
        ([[0, 61, 61, 60, 1, ""], [1, 60, 60, 60, 1, ""]], "expected"),
        ([[0, 61, 61, 61, 1, ""], [1, 60, 60, 60, 1, ""]], "otherwise"),  # nobody waits
        ([[0, 61, 0, 0, 0, "recorder off"], [1, 60, 60, 60, 1, ""]], "otherwise"),
        ([], "not run"),
    ],
)
def test_the_device_front_of_a_hang(fronts: list[list[object]], outcome: str) -> None:
    one = {"fact": "zoo", "name": "not_entered/sleeping", "way": "prepared", "reason": "",
           "reached": "right", "fronts": fronts}  # fmt: skip
    assert outcomes(zoo.judge([one], ["not_entered/sleeping"]))["device front"] == outcome


def test_a_build_without_nccl_lacks_it() -> None:
    torch = {"fact": "torch", "version": "2.13.0+cpu", "functions": {}, "backends": {}}
    assert outcomes(surroundings.judge([torch]))["functions"] == "otherwise"


def test_nothing_is_proven_without_a_gpu() -> None:
    finding = Finding("four ranks", "expected", "15 ms an op")
    assert findings.word(finding, dry=False) == "proven"
    assert "proven" not in findings.text([finding], {}, dry=True)
    assert findings.document([finding], {}, dry=True)["points"][0]["state"] == "rehearsed"


@pytest.mark.parametrize("module", [capture, hang, steps, surroundings])
def test_cut_off_facts_make_only_known_points(module: object) -> None:
    for finding in module.judge([]):  # type: ignore[attr-defined]
        assert finding.point in POINTS


def test_every_point_belongs_to_one_check() -> None:
    assert len(POINTS) == sum(len(check.points) for check in CHECKS)
