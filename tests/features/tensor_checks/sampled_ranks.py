"""Asks ranks that run code of a test for sampled numbers, and compares these."""

from __future__ import annotations

from functools import partial
from typing import Any

from msgspec import structs

from frtop_probe.agent.ring_view import RingView
from frtop_probe.features.tensor_checks.messages import SETTING, NumberSample, NumberState
from frtop_probe.wire.recording import RecordedNow
from frtop_tui.features.tensor_checks.comparison import Findings, findings
from frtop_tui.features.tensor_checks.samples import RankSample
from recorder.interactive_rank import InteractiveRank, Ranks, run
from waiting import wait_for


def watch(ranks: Ranks, **order: Any) -> None:
    wanted = {"every": 1, "ops": 0, "seconds": 60, "inputs": True, "groups": [], "steps": 0}
    for rank in ranks:
        reply, _ = rank.request(ask="ChangeRecording", settings={"numbers": {**wanted, **order}})
        assert reply["error"] == "", reply


def recorded_now(numbers: NumberState) -> RecordedNow:
    return RecordedNow({SETTING: structs.asdict(numbers)})


def state(rank: InteractiveRank) -> NumberState:
    reply, _ = rank.request(ask="ReadSamples", after=2**62)
    return NumberState(**reply["state"])


def is_off(rank: InteractiveRank) -> bool:
    return not state(rank).on


def samples(ranks: Ranks) -> list[RankSample]:
    """All samples, after the watch was ended and counted."""
    watch(ranks)
    group = ("0", "0-2", 0)
    found: list[RankSample] = []
    for number, rank in enumerate(ranks):
        wait_for(partial(is_off, rank), "the samples to be counted")
        reply, _ = rank.request(ask="ReadSamples", after=0)
        assert reply["lost"] == 0
        rows = [NumberSample(**one) for one in reply["samples"]]
        assert not state(rank).failure
        rank.ring.refresh()
        issuer = RingView(rank.ring).issuer
        found += [
            RankSample(
                number,
                one,
                group if one.group else None,
                issuer=issuer(one.issuer),
                at_ns=one.at_ns,
            )
            for one in rows
        ]
    return found


def sampled(ranks: Ranks, program: str, **order: Any) -> Findings:
    run(ranks, "dist.barrier()")
    watch(ranks, **{"ops": 1000, **order})
    run(ranks, program)
    return findings(samples(ranks), len(ranks))
