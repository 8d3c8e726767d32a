"""Loss scales, dtypes, casts that overflow, and figures by group."""

from __future__ import annotations

from typing import Any

from frtop_probe.features.tensor_checks.messages import NumberSample
from frtop_tui.features.tensor_checks.comparison import Findings, findings
from frtop_tui.features.tensor_checks.finding_words import figure_words, finding_words
from frtop_tui.features.tensor_checks.samples import GroupNames, RankSample
from frtop_tui.job.stack_frames import site_line

GROUP = ("0", "0-2", 0)
EDGE = ("4", "0-1", 0)
NAMES = GroupNames({GROUP: "dp:0", EDGE: "tp:0"})


def sample(rank: int, role: str, step: int, *, group: Any = None, **more: Any) -> RankSample:
    fields: dict[str, Any] = {
        "n": 1, "group": 1 if group else 0, "number": 0, "kind": "all_reduce", "role": role,
        "taken": "optimizer 0", "step": step, "at_ns": step, "site": 0, "dtype": "float32",
        "elements": 8, "size": 32, "seen": 32, "checksum": "a",
    }  # fmt: skip
    return RankSample(rank, NumberSample(**(fields | more)), group)


def update(
    rank: int, step: int, scale: float, *, number: int = 1, found: float = 0.0
) -> list[RankSample]:
    """What one update of a scaler samples."""
    more: dict[str, Any] = {"number": number, "taken": "scaler 0", "kind": "loss scale"}
    return [
        sample(rank, "found_inf", step, maximum=found, minimum=found, **more),
        sample(rank, "loss_scale", step, maximum=scale, minimum=scale, **more),
    ]


def said(found: Findings) -> str:
    words = [*finding_words(found, NAMES, site_line), *figure_words(found, NAMES)]
    return "\n".join(" ".join(one[:2]) for one in words)


def test_a_loss_scale_is_followed_and_its_back_offs_name_ranks() -> None:
    updates = [(1, 1, 1024.0, 0.0), (2, 1, 512.0, 1.0), (2, 2, 256.0, 1.0), (2, 3, 256.0, 0.0)]
    samples = [
        one
        for rank in range(3)
        for step, number, scale, found in updates
        for one in update(rank, step, scale, number=number, found=found if rank < 2 else 0.0)
    ]
    found = findings(samples, 3)
    (scale,) = found.scales
    assert [(one.ranks, one.before, one.after) for one in scale.back_offs] == [
        ((0, 1), 1024.0, 512.0), ((0, 1), 512.0, 256.0),
    ]  # fmt: skip
    assert not found.any_fault
    text = said(found)
    assert "loss scale 1,024 at step 1, 256 at step 2; 4 updates, 2 after an Inf or NaN" in text
    assert "step 2: Inf or NaN in the gradients of ranks 0-1, skipped; from 1,024 to 512" in text


def test_a_rank_with_another_loss_scale_is_named() -> None:
    samples = [
        one
        for rank in range(3)
        for step in range(1, 6)
        for one in update(rank, step, 512.0 if rank == 2 and step > 3 else 1024.0)
    ]
    found = findings(samples, 3)
    assert found.any_fault
    text = said(found)
    assert "rank 2: another loss scale than the rest after step 4: 1,024 on ranks 0-1; 512" in text
    assert "equal at step 3" in text


def test_ranks_that_begin_between_two_updates_of_a_step_accuse_nobody() -> None:
    """They count them from another one on."""
    samples = [*update(0, 4, 512.0), *update(0, 4, 256.0, number=2), *update(0, 5, 256.0)]
    samples += [*update(1, 4, 256.0), *update(1, 5, 256.0)]
    assert findings(samples, 2).scales[0].difference is None


def test_an_inf_that_the_loss_scaler_left_out_is_no_fault_but_one_after_it_is() -> None:
    def inputs(step: int) -> list[RankSample]:
        return [
            sample(rank, "input", step, group=GROUP, number=step, infinities=rank == 1)
            for rank in range(3)
        ]

    caught = inputs(2) + [one for rank in range(3) for one in update(rank, 2, 512.0, found=1.0)]
    found = findings(caught, 3)
    assert not found.any_fault
    assert "Inf rank 1: 1 Inf in its input of all_reduce #2 dp:0" in said(found)
    assert "the loss scaler skipped that step" in said(found)
    found = findings([*caught, *inputs(3)], 3)
    assert found.any_fault
    assert [(one.rank, one.sample.sample.step) for one in found.bad] == [(1, 3)]


def test_what_only_some_ranks_have_said_of_an_update_yet_is_not_shown() -> None:
    samples = [one for rank in range(2) for one in update(rank, 1, 512.0)]
    samples += update(0, 2, 256.0, found=1.0)
    samples += [sample(0, "input", 3, group=GROUP, number=3, infinities=1)]
    found = findings(samples, 2)
    assert found.scales[0].back_offs == ()
    assert (found.any_fault, found.decided_fault) == (True, False)  # its update is to come
    found = findings([*samples, *update(0, 3, 128.0, found=1.0), *update(1, 3, 512.0)], 2)
    assert [one.step for one in found.scales[0].back_offs] == [2, 3]
    assert not found.bad[0].undecided


def test_a_cast_that_overflows_is_told_by_larger_values_in_a_wider_dtype() -> None:
    samples = [
        sample(1, "parameter", 1, kind="head.weight", minimum=-70000.0, maximum=2.0, number=3),
        sample(
            1, "input", 2, group=GROUP, number=7, dtype="float16", infinities=1, minimum=-1.0,
            maximum=60000.0, kind="all_gather_into_tensor",
        ),
    ]  # fmt: skip
    text = said(findings(samples, 3))
    assert "float16 ends at 65504, the largest finite value beside it is 60000" in text
    assert "the rank's parameter head.weight, step 1, is float32 and reaches 70000" in text
    samples[0] = sample(1, "parameter", 1, kind="head.weight", minimum=-1.0, maximum=2.0, number=3)
    text = said(findings(samples, 3))
    assert "float16 ends at" in text
    assert "cast to" not in text


def test_a_rank_with_another_dtype_is_named() -> None:
    samples = [
        sample(
            rank, "input", 5, group=GROUP, number=9, dtype="bfloat16" if rank == 2 else "float32"
        )
        for rank in range(3)
    ]
    text = said(findings(samples, 3))
    assert "dtype rank 2: another dtype than the rest in the input of all_reduce #9 dp:0" in text
    assert "float32 on ranks 0-1; bfloat16 on rank 2" in text


def test_parameters_of_another_dtype_are_named_of_the_same_model_only() -> None:
    def parameters(other: str, *, elements: int = 8) -> list[RankSample]:
        return [
            sample(
                rank, "parameter", 3, number=place, kind=name, shard=True, checksum="",
                dtype="bfloat16" if rank == 1 and place else "float32", elements=elements + rank,
            )
            for rank in range(3)
            for place, name in enumerate(("in.weight", other if rank == 1 else "out.weight"))
        ]  # fmt: skip

    found = findings(parameters("out.weight"), 3)
    (one,) = found.dtypes
    assert (one.odd, one.names) == ((1,), ("out.weight",))
    assert "parameters of optimizer 0, step 3: out.weight, 1 of 2" in said(found)
    assert findings(parameters("experts.weight"), 3).dtypes == ()


def test_figures_are_by_group_kind_and_dtype() -> None:
    samples = [
        sample(rank, "input", step, group=group, number=step, dtype=dtype, magnitude=0.5 * rank,
               norm=float(step + rank), subnormals=2, zeros=1, size=32, seen=16)
        for group, dtype in ((GROUP, "float16"), (EDGE, "bfloat16"))
        for rank in range(2)
        for step in (1, 2)
    ]  # fmt: skip
    found = findings(samples, 2)
    first, second = found.figures
    assert (first.values, first.mean, first.norms, first.last) == (16, 0.25, (1.0, 3.0), (2, 3.0))
    assert (first.group, second.group) == (GROUP, EDGE)
    text = said(found)
    assert "dp:0 all_reduce input, float16, ranks 0-1: 4 samples, 16 values" in text
    assert "mean magnitude 0.25; norm 1 to 3, 3 at step 2; 4 zero (25 %)" in text
    assert "8 below 6.1e-05, the smallest normal (50 %)" in text
    assert "tp:0 all_reduce input, bfloat16" in text


def test_what_was_not_read_says_why() -> None:
    error = "in the memory of a device: a read would wait for the device"
    scale = sample(
        0, "loss_scale", 1, checksum="", error=error, taken="scaler 0", kind="loss scale"
    )
    text = said(findings([sample(0, "input", 1, group=GROUP, checksum="", error=error), scale], 1))
    assert f"1 not read: {error}" in text
    assert f"loss scale not read: {error}" in text
