"""The verdict *slow*: its words, cause, cost, confirmation, and what comes before it."""

from __future__ import annotations

from collections import Counter
from typing import Any, get_args

import msgspec
import pytest
from msgspec.structs import replace

from diagnosis.scenes import SECOND, Scene, frame, only
from diagnosis.slow_jobs import Meeting, SteppingJob, data_parallel, over_a_slow_link
from frtop_probe import wire
from frtop_tui.diagnosis.cases.slow.looks import ENOUGH, WAITS
from frtop_tui.diagnosis.causes import LOCATIONS, SlowWord
from frtop_tui.diagnosis.engine import Engine
from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.statistics import JobStatistics
from frtop_tui.text.exit_status import exit_status
from frtop_tui.text.json_document import document
from frtop_tui.text.plain import text


class SlowScene(Scene):
    """A scene whose frames carry statistics, as old as a request takes."""

    def __init__(self, job: SteppingJob, statistics: JobStatistics | None = None) -> None:
        super().__init__(job.world)
        self.engine = Engine(explain=True)
        self.take(statistics or job.statistics())

    def take(self, statistics: JobStatistics) -> None:
        self.now = statistics.until_ns / SECOND + 1
        self.statistics = statistics
        self.step()

    def step(self) -> None:
        """The ranks go on."""
        self.does(range(len(self.actors)), "all_reduce", ago=0.1)

    def frame(self) -> Any:
        return msgspec.structs.replace(super().frame(), statistics=self.statistics)

    def looks_of(self, cores: dict[int, float], ready: dict[int, float] | None = None) -> Frame:
        """Two looks at each rank, 30 s apart, between which it used so many cores.

        Its main thread was ready, but had no processor, for a share of `ready` of the time.
        """
        for at in (0.0, 30.0):
            for rank, actor in self.actors.items():
                used = int(at * cores.get(rank, 0.2) * SECOND)
                waited = int(at * (ready or {}).get(rank, 0.0) * SECOND)
                self.kernel(rank, "R", cpu_ns=used)
                main = wire.Process(actor.pid, "R", "python", cpu_ns=used, ready_ns=used + waited)
                actor.threads = (main,)
                self.hear()
                self.state.apply_snapshots(
                    "node0", wire.SnapshotResponse(1, "node0", (self.look_of(actor),))
                )
            self.pass_time(30.0 if not at else 0.1)
            self.step()
        return self.judge().frame


def slow_job(**fields: Any) -> SteppingJob:
    return data_parallel(**fields).run(150, late={2: 40.0})


def test_a_straggler_makes_the_job_slow() -> None:
    scene = SlowScene(slow_job())
    frame = scene.judge().frame
    verdict = only(frame)
    assert (frame.health, exit_status(frame)) == ("slow", 5)
    assert (verdict.kind, verdict.culprits, verdict.confidence) == ("slow", (2,), "confirmed")
    assert verdict.victims == {0, 1, 3}
    assert verdict.slow is not None
    assert verdict.slow.late_ns == pytest.approx(40e6, rel=0.1)
    assert verdict.slow.share == pytest.approx(40 / 240.5, rel=0.15)
    assert verdict.slow.at_least
    said = "\n".join(text(frame))
    assert "rank 2 (node0 pid 1002) is a straggler: it arrives 39.9 ms late at all_reduce" in said
    assert f"ranks 0-1,3 wait: {100 * verdict.slow.share:.0f} % of the time" in said
    assert "  progress" not in said
    assert (
        "  cost  16 % of the time: 37.3 ms of each step of 241 ms; 3 ranks have lost at least"
        in said
    )
    assert "SLOW since" in said


def test_what_it_costs_grows_from_window_to_window() -> None:
    job = slow_job()
    scene = SlowScene(job)
    first = only(scene.judge().frame)
    job.steps = {rank: those[-100:] for rank, those in job.steps.items()}
    job.ops = {key: ops[-100:] for key, ops in job.ops.items()}
    job.run(200, late={2: 40.0})
    scene.take(job.statistics())
    later = only(scene.judge().frame)
    assert later.since_ns == first.since_ns
    assert first.slow is not None
    assert later.slow is not None
    # 40 ms in each of 350 steps, by three ranks.
    assert later.slow.lost_ns == pytest.approx(3 * 350 * 40e6, rel=0.15)


def test_what_the_steps_show_is_counted_in_steps() -> None:
    job = SteppingJob(4, stride=16)
    job.meetings = [Meeting((job.everybody,), lambda rank, step: 10.0) for _ in range(10)]
    job.run(200, late={1: 40.0})
    assert "of the last 200 steps;" in only(SlowScene(job).judge().frame).headline


def test_of_two_ranks_one_has_lost_time() -> None:
    job = data_parallel(world=2).run(150, late={1: 40.0})
    assert any("1 rank has lost at least" in line for line in text(SlowScene(job).judge().frame))


def test_the_document_has_its_figures() -> None:
    found = document(SlowScene(slow_job()).judge().frame)["verdicts"][0]
    assert found["why"]["cause"] in ("unknown", "compute")
    assert found["slow"]["late_s"] == pytest.approx(0.04, rel=0.1)
    assert found["slow"]["hours_of"] == "rank"
    assert document(SlowScene(slow_job()).judge().frame)["compared_s"] > 30
    assert document(Scene().judge().frame)["verdicts"] == []


def test_what_is_not_sure_yet_is_a_suspicion() -> None:
    job = data_parallel(work=100.0).run(50, late={2: 40.0})  # 7 s
    scene = SlowScene(job)
    frame = scene.judge().frame
    verdict = only(frame)
    assert (frame.health, exit_status(frame)) == ("slow", 4)
    assert (verdict.kind, verdict.culprits, verdict.confidence) == ("slow", (2,), "suspect")
    said = "\n".join(text(frame))
    assert "PERHAPS SLOW since" in said
    assert "SLOW (suspect): rank 2 (node0 pid 1002) is a straggler: it arrives 39.8 ms late" in said
    assert frame.trace is not None
    [finding] = frame.trace.findings
    assert finding.confirmation.startswith("not confirmed: seen for less than 7.5 s")
    scene.take(job.run(30, late={2: 40.0}).statistics())
    frame = scene.judge().frame
    assert (only(frame).confidence, exit_status(frame)) == ("confirmed", 5)


def test_who_was_slow_for_sure_and_still_seems_to_be_stays_confirmed() -> None:
    job = slow_job()
    scene = SlowScene(job)
    assert only(scene.judge().frame).confidence == "confirmed"
    job.steps = {rank: those[-30:] for rank, those in job.steps.items()}
    job.ops = {key: ops[-30:] for key, ops in job.ops.items()}
    scene.take(job.statistics())
    frame = scene.judge().frame
    assert (only(frame).confidence, exit_status(frame)) == ("confirmed", 5)


def test_a_hang_comes_before_slow() -> None:
    scene = SlowScene(slow_job())
    assert scene.judge().frame.health == "slow"
    scene.waits([0, 1, 3], "all_reduce", for_s=30)
    scene.sleeps(2)
    frame = scene.settle(10)
    assert frame.health == "hung"
    assert {verdict.kind for verdict in frame.verdicts} == {"not_entered"}


def test_who_was_slow_stays_so_while_nothing_can_be_compared() -> None:
    """Of thousands of ranks, answers may come too late to be counted together."""
    scene = SlowScene(slow_job())
    assert only(scene.judge().frame).culprits == (2,)
    for ago, slow in ((10, True), (50, True), (70, False)):
        empty = JobStatistics(0, scene.statistics.until_ns + ago * SECOND, 0, (0, 1))
        scene.now = empty.until_ns / SECOND + 1
        scene.statistics, known = empty, scene.statistics
        scene.step()
        assert (scene.judge().frame.health == "slow") is slow
        scene.statistics = known
    scene.take(data_parallel().run(400).statistics())
    assert scene.judge().frame.health == "healthy"


def test_old_statistics_say_nothing_of_now() -> None:
    scene = SlowScene(slow_job())
    assert scene.judge().frame.verdicts
    scene.pass_time(90)
    scene.step()
    assert not scene.judge().frame.verdicts


def test_a_few_ranks_are_looked_at_until_there_are_enough_looks() -> None:
    scene = SlowScene(data_parallel(16).run(150, late={2: 40.0}))
    known = scene.statistics
    asked: list[Counter[int]] = []
    for _ in range(2):
        asked.append(Counter())
        for _ in range(80):
            judgement = scene.judge()
            asked[-1].update(one.key - 1 for one in judgement.look_requests)
            scene.pass_time(0.5)
            scene.statistics = replace(known, until_ns=scene.now_ns - SECOND)
            scene.step()
    assert asked[0].keys() == {0, 1, 2}
    assert max(asked[0].values()) <= ENOUGH + 1
    assert max(asked[1].values()) <= 2


# Causes


def test_data() -> None:
    job = data_parallel()
    job.data = {0: 3.0, 1: 4.0, 2: 42.0, 3: 3.0}
    scene = SlowScene(job.run(150, late={2: 40.0}))
    scene.fetches(2, worker=-2)
    verdict = only(scene.judge().frame)
    assert (verdict.why.cause, verdict.why.layer) == ("data", "data")
    assert "39.0 ms longer in each step" in verdict.why.text
    assert "in the rank itself" in verdict.why.text


def test_compute_by_processor_time() -> None:
    verdict = only(SlowScene(slow_job()).looks_of({2: 0.4}))
    assert verdict.why.cause == "compute"
    assert any("0.40 cores, the others 0.20" in line for line in verdict.evidence)


def test_an_optimizer_that_takes_as_long_as_others_is_not_said_to_take_longer() -> None:
    job = slow_job()
    for rank, steps in job.steps.items():
        own_ns = 1_000_000 - 1000 * (rank == 2)
        job.steps[rank] = [replace(step, optimizer_ns=own_ns) for step in steps]
    verdict = only(SlowScene(job).looks_of({2: 0.4}))
    assert verdict.why.cause == "compute"
    assert "it computes longer than the others between ops" in verdict.why.text


def test_starved() -> None:
    verdict = only(SlowScene(slow_job()).looks_of({2: 0.2}, {2: 0.16}))
    assert verdict.why.cause == "starved"
    assert "no processor, 16 % of the time" in verdict.why.text


def test_a_share_that_is_not_known_is_said_from_to_and_small_causes_do_not_explain_it() -> None:
    """As of a rank without the recorder: who waits for an op, and where steps end, is not known."""
    job = data_parallel().run(600, late={2: 40.0})
    job.stride = 2
    scene = SlowScene(job, job.statistics(steps=False))
    frame = scene.looks_of({2: 0.2}, {2: 0.05})
    verdict = only(frame)
    assert verdict.slow is not None
    assert verdict.slow.share == pytest.approx(40 / 240.5 / 2, rel=0.2)
    assert verdict.slow.most_share == pytest.approx(40 / 240.5, rel=0.2)
    assert "wait: 8.4 to 17 % of the time" in "\n".join(text(frame))
    assert verdict.why.cause == "unknown"


def test_a_full_host_that_is_full_for_all_is_no_cause() -> None:
    verdict = only(SlowScene(slow_job()).looks_of({2: 0.2}, dict.fromkeys(range(4), 0.16)))
    assert verdict.why.cause == "unknown"


def gpus(scene: Scene, mhz: dict[int, int], processes: dict[int, int], throttle: int = 0) -> None:
    for rank, actor in scene.actors.items():
        at_ns = scene._ns(actor, 1.0)
        sample = wire.GpuSample(at_ns, 95, 400_000, 1, mhz.get(rank, 1980), throttle)
        gpu = wire.Gpu(rank, f"GPU-{rank}", processes=processes.get(rank, 1), samples=(sample,))
        actor.gauges = wire.Gauges((gpu,))


def test_throttled() -> None:
    scene = SlowScene(slow_job())
    gpus(scene, {2: 1200}, {}, throttle=0x40)
    verdict = only(scene.judge().frame)
    assert (verdict.why.cause, verdict.why.layer) == ("throttled", "device")
    assert "GPU 2 runs at 1,200 MHz, those of the others at 1,980 MHz: slowed by heat" in (
        verdict.why.text
    )


def test_a_neighbour() -> None:
    scene = SlowScene(slow_job())
    gpus(scene, {}, {2: 2})
    assert only(scene.judge().frame).why.cause == "neighbour"
    scene = SlowScene(slow_job())
    gpus(scene, {}, dict.fromkeys(range(4), 2))
    assert only(scene.judge().frame).why.cause != "neighbour"


def looked_at(scene: SlowScene, sleeps: dict[int, int], seconds: int = 40) -> Frame:
    """Looks as often as asked for; a rank in `sleeps` sleeps in one of so many seconds."""
    for second in range(seconds):
        for rank in scene.actors:
            if rank in sleeps and second % sleeps[rank] == 1:
                scene.sleeps(rank, "train.py:44")
            elif second % 2:
                scene.sleeps(rank, "train.py:48")  # as all ranks do
            else:
                scene.at(rank, frame("train.py:41", "forward", "x = x @ w"), active=True)
        scene.step()
        found = scene.judge().frame
        scene.pass_time(1.0)
    return found


def test_a_rank_that_sleeps_in_each_step_is_found_by_many_looks() -> None:
    verdict = only(looked_at(SlowScene(slow_job()), {2: 4}))
    assert (verdict.why.cause, verdict.why.layer) == ("sleeping", "software")
    assert "it sleeps at train.py:44" in verdict.why.text
    assert "; the others in 0 of " in verdict.why.text
    assert verdict.next.startswith("look at train.py:44")


def test_each_wait_is_a_cause_of_slowness() -> None:
    assert {LOCATIONS[kind].cause for kind in WAITS} <= {*get_args(SlowWord)}


def test_a_sleep_that_all_share_or_that_is_too_rare_is_no_cause() -> None:
    for sleeps in (dict.fromkeys(range(4), 4), {2: 20}):
        assert only(looked_at(SlowScene(slow_job()), sleeps)).why.cause == "unknown"


def test_unknown_says_what_was_not_seen() -> None:
    statistics = slow_job().statistics(steps=False)
    verdict = only(SlowScene(slow_job(), statistics).judge().frame)
    assert verdict.why.cause == "unknown"
    assert verdict.next.startswith("r on rank 2: ten seconds of its stacks as a tree")
    assert any("frtop_probe.step()" in line for line in verdict.missing)
    assert verdict.slow is not None
    assert verdict.slow.step_ns is None


def test_who_is_late_and_was_seen_to_wait_for_a_remote_call_is_no_straggler() -> None:
    """The callee may be slow: c10d does not show how long a caller waits for it."""
    scene = SlowScene(slow_job(), slow_job().statistics(steps=False))
    library = "/lib/python3.11/site-packages/torch/distributed/rpc/api.py:842"
    scene.at(2, frame(library, "rpc_sync", "return fut.wait()"), frame("train.py:28", "main"))
    found = scene.looks_of({2: 0.2})
    assert not found.verdicts
    assert "late again and again: rank 2, perhaps only" in "\n".join(text(found))


def test_a_slow_link_names_the_host_at_its_end() -> None:
    scene = SlowScene(over_a_slow_link())
    for actor in scene.actors.values():
        actor.host = actor.rank
    scene.hosts = [f"node{rank}" for rank in range(4)]
    scene.skews = [0.0] * 4
    verdict = only(scene.judge().frame)
    assert (verdict.kind, verdict.culprits, verdict.why.cause) == ("slow", (1,), "network")
    assert verdict.slow is not None
    assert verdict.slow.late_ns == pytest.approx(32e6, rel=0.1)
    assert "the link of rank 1" in verdict.headline


def test_of_very_many_ranks_not_all_statistics_are_searched() -> None:
    job = data_parallel(512).run(120, late={300: 60.0})
    scene = SlowScene(job)
    assert only(scene.judge().frame).culprits == (300,)
    scene.statistics = data_parallel(512).run(120).statistics()
    assert scene.judge().frame.verdicts  # as of a second ago
    scene.pass_time(7)
    scene.step()
    assert not scene.judge().frame.verdicts
