"""The group screen, the wait-for graph, lenses and settings, by keys alone."""

from __future__ import annotations

from msgspec.structs import replace

from diagnosis.scenes import Scene
from frtop_probe import wire
from frtop_tui.diagnosis.engine import Engine
from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.statistics import JobStatistics, SampledGroup, SampledOp, StepSplit
from frtop_tui.screens.group import GroupScreen
from frtop_tui.screens.rank import RankScreen
from frtop_tui.screens.ranks import RanksScreen
from frtop_tui.screens.waits import WaitsScreen
from frtop_tui.widgets.lenses import lag
from frtop_tui.widgets.rank_grid import RankGrid

from . import scenes
from .driving import driven

MS = 1_000_000


def sampled(late: int, by_ms: float, *, error_ns: int | None = 0) -> SampledGroup:
    """Ten ops of the world's group to which one rank comes late."""
    ops = [
        SampledOp(
            number,
            {rank: number * 1000 * MS + (int(by_ms * MS) if rank == late else rank * 1000)
             for rank in range(64)},
            True,
            "all_reduce",
            error_ns=error_ns,
        )
        for number in range(10)
    ]  # fmt: skip
    return SampledGroup(scenes.DP_KEY, tuple(range(64)), tuple(ops), 4)


def with_statistics(frame: Frame, *groups: SampledGroup) -> Frame:
    steps = {
        rank: tuple(
            StepSplit(n, 1, (1200 if rank == 12 else 800) * MS, blocked_ns=500 * MS)
            for n in range(5)
        )
        for rank in range(64)
    }
    return replace(frame, statistics=JobStatistics(0, 60 * scenes.S, 0, groups=groups, steps=steps))


async def test_enter_on_a_group_shows_who_is_late_and_goes_to_that_rank() -> None:
    async with driven(scenes.hung(), size=(120, 40)) as app:
        await app.press("shift+tab", "enter")  # from the grid to the groups
        assert isinstance(app.screen, GroupScreen)
        await app.sees("job > dp:0", "64 ranks", "1 late", "63 wait")
        await app.sees("#8812", "0-36,38-63", "1 behind", "timeout 10m00s", "all_reduce #8812")
        await app.sees("arrivals   no statistics yet", "(n next group)", "(p previous)")
        await app.press("n")
        await app.sees("No other group was chosen with it")
        await app.press("enter")  # those that are behind come first
        assert isinstance(app.screen, RankScreen)
        assert app.screen.rank == scenes.CULPRIT
        await app.press("m")
        assert isinstance(app.screen, GroupScreen)
        await app.sees("> dp:0")


async def test_the_path_and_o_name_one_group_of_a_rank_that_waits_and_is_late() -> None:
    frame = scenes.hung()
    waits = scenes.op(30_001, 41208, 252.0, group=scenes.TP, signature=scenes.GATHER)
    view = replace(frame.ranks[scenes.CULPRIT], state="blocked", blocked_on=waits)
    frame = replace(frame, ranks={**frame.ranks, scenes.CULPRIT: view})
    async with driven(frame, size=(120, 40)) as app:
        await app.press("enter")
        await app.sees("job > rank 37  tp:4 · ")
        await app.press("m")
        await app.sees("job > rank 37 > tp:4", "8 ranks")


async def test_groups_that_share_a_line_are_gone_through_with_n_and_p() -> None:
    async with driven(scenes.healthy(), size=(120, 40)) as app:
        await app.press("shift+tab", "down", "enter")
        await app.sees("tp:0", "1 of 8 alike")
        await app.press("n")
        await app.sees("tp:1", "2 of 8 alike")
        await app.press("p", "p")
        await app.sees("tp:7", "8 of 8 alike")
        await app.press("slash")
        assert isinstance(app.screen, RanksScreen)
        assert app.screen.view.filter_text == "rank:56-63"


async def test_who_comes_last_is_said_only_beyond_the_error_of_the_clocks() -> None:
    late = with_statistics(scenes.healthy(), sampled(12, 131.0, error_ns=2 * MS))
    async with driven(late, size=(140, 40)) as app:
        await app.press("shift+tab", "enter")
        await app.sees("one of 4 ops, 10 sampled: from first to last 131 ms (median)")
        await app.sees("clocks ±2.00 ms", "rank 12 in 10 of 10 (131 ms after the first)")
        vague = sampled(12, 1.5, error_ns=2 * MS)
        await app.give(with_statistics(scenes.healthy(), vague))
        await app.sees("the last to arrive is unknown")
        assert "rank 12 in" not in app.text()


async def test_a_group_that_its_members_destroyed_says_so() -> None:
    async with driven(scenes.hung()) as app:
        await app.press("shift+tab", "enter")
        await app.give(replace(scenes.hung(), groups=scenes.hung().groups[1:]))
        await app.sees("dp:0")  # what was last known stays
        await app.press("1")
        await app.app.push_screen(GroupScreen(set(), [scenes.DP_KEY]))
        app.app.tick()
        await app.sees("the job no longer has this group")


def graph_of(scene: Scene) -> Frame:
    engine = Engine(explain=True)
    scene.settle()
    engine.judge(scene.frame())
    return engine.judge(scene.frame()).frame


def hung_in_two_groups() -> Frame:
    """Rank 5 sleeps; its pair waits for it, the row of each waits for the pair's member."""
    scene = Scene(16)
    for base in range(0, 16, 2):
        scene.group(f"p{base}", (base, base + 1), "pair")
    scene.waits([4], "all_gather", for_s=20, group="p4")
    scene.waits([r for r in range(16) if r not in (4, 5)], "all_reduce", for_s=19)
    scene.sleeps(5)
    return graph_of(scene)


async def test_the_waits_are_a_tree_whose_root_is_the_culprit() -> None:
    async with driven(hung_in_two_groups(), size=(100, 30)) as app:
        await app.press("w")
        assert isinstance(app.screen, WaitsScreen)
        assert app.source.explained == [True]
        lines = [line for line in app.text().splitlines() if "wait" in line or "rank 5" in line]
        text = "\n".join(lines)
        assert text.index("rank 5") < text.index("all_gather #1") < text.index("14 wait")
        await app.press("enter")
        assert isinstance(app.screen, RankScreen)
        assert app.screen.rank == 5
        assert app.source.explained == [True, False]
        await app.press("escape")
        await app.press("down", "left")
        await app.sees("+ all_gather #1")
        assert "14 wait" not in app.text()
        await app.press("right")
        await app.sees("14 wait")
        await app.press("down", "enter")
        assert isinstance(app.screen, RanksScreen)
        assert app.screen.view.filter_text == "rank:0-3,6-15"


async def test_a_deadlock_says_where_it_closes_and_a_healthy_job_that_nobody_waits() -> None:
    scene = Scene(2)
    scene.group("a", (0, 1))
    scene.waits([0], "all_reduce", for_s=20)
    scene.waits([1], "all_gather", for_s=20, group="a")
    async with driven(scenes.healthy()) as app:
        await app.press("w")
        await app.sees("finding out who waits for whom")
        await app.give(graph_of(Scene(2)))
        await app.sees("nobody waits for anybody")
        await app.give(graph_of(scene))
        await app.sees("the same again: a deadlock")


def test_who_was_behind_is_still_shown_when_all_ranks_have_ended() -> None:
    frame = scenes.hung()
    ranks = {number: replace(rank, state="dead") for number, rank in frame.ranks.items()}
    groups = (replace(frame.groups[0], late=()),)
    assert lag(replace(frame, ranks=ranks, groups=groups)).amounts == {scenes.CULPRIT: 1}


async def test_one_key_goes_through_the_lenses_and_the_legend_explains_the_letters() -> None:
    frame = with_statistics(scenes.hung(), sampled(12, 131.0))
    frame = replace(
        frame,
        ranks={
            **frame.ranks,
            7: replace(
                frame.ranks[7],
                gauges=wire.Gauges((wire.Gpu(0, samples=(wire.GpuSample(0, 42),)),)),
            ),
        },
    )
    async with driven(frame, size=(100, 30)) as app:
        grid = app.screen.query_one(RankGrid)
        assert [grid.lens_view.letters.get(n) for n in (0,)] == [None]
        await app.press("v")
        await app.sees("ranks by lag", "1 1 op behind 1", ". at the front 63")
        assert grid.lens_view.letters[scenes.CULPRIT] == ("1", "heat1")
        await app.press("v")
        await app.sees("ranks by step time", "within 10 % of 800 ms 63", "50 % and more 1")
        grid.choose(12)
        await app.drawn()
        await app.sees("step 1.20 s")
        await app.press("v")
        await app.sees("ranks by own time", "20 to 49 % 1", "within 5 % of a step of its peers 63")
        await app.sees("own time at most 700 ms, 400 ms more than its peers")
        await app.press("v")
        await app.sees("ranks by arrival skew", "0.1 to 1 s 1", "131 ms after the first")
        await app.press("v")
        await app.sees("ranks by device use", "4 40 % 1", "? not known 63")
        await app.press("v")
        await app.sees("b  blocked 63")


async def test_a_lens_without_data_says_why() -> None:
    async with driven(scenes.hung(), size=(100, 30)) as app:
        await app.press("v")
        for _ in ("step time", "own time", "arrival skew"):
            await app.press("v")
            await app.sees("no statistics yet")
        await app.press("v")
        await app.sees("frtop sees no device of any rank")
        await app.press("v")
        await app.give(replace(scenes.hung(), statistics=JobStatistics(0, 1, 0)))
        await app.press("v")
        for _ in ("step time", "own time"):
            await app.press("v")
            await app.sees("no step ended here: step 2,203 began 4m2")


async def test_settings_that_differ_are_listed_by_value_with_their_ranks() -> None:
    frame = scenes.hung()
    views = {
        n: replace(
            view,
            identity=replace(
                view.identity,
                torch="2.15.0",
                settings=(
                    ("CUDA_VISIBLE_DEVICES", str(n % 8)),
                    ("NCCL_ALGO", "Tree" if n in (3, 9) else "Ring"),
                    ("NCCL_DEBUG", "WARN"),
                    ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "3"),
                ),
            ),
        )
        for n, view in frame.ranks.items()
    }
    async with driven(replace(frame, ranks=views), size=(100, 30)) as app:
        await app.press("V")
        await app.sees("settings: 1 differs", "NCCL_ALGO differs", "Tree  2 ranks  3,9")
        await app.sees("the same on all ranks", "NCCL_DEBUG", "each rank has its own")
        await app.sees("TORCH_NCCL_ASYNC_ERROR_HANDLING 3")
        await app.press("down", "down", "enter")
        assert isinstance(app.screen, RanksScreen)
        assert app.screen.view.filter_text == "rank:3,9"


async def test_the_usual_wait_stands_beside_the_age() -> None:
    frame = scenes.hung()
    waits = frame.ranks[0].pending[0]
    usual = replace(waits, usual_ns=18_200_000, usual_count=90)
    view = replace(frame.ranks[0], pending=(usual,), blocked_on=usual)
    async with driven(replace(frame, ranks={**frame.ranks, 0: view}), size=(140, 40)) as app:
        await app.press("2", "less_than_sign")
        await app.sees("usually", "18.2 ms")
        await app.press("G", "g", "enter")
        await app.sees("usually 18.2 ms")
