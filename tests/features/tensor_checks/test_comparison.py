"""Whose bytes differ, where a NaN came from, and when nothing may be concluded."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from frtop_probe import wire
from frtop_probe.features.tensor_checks.messages import NumberSample, SamplesResponse
from frtop_tui.features.tensor_checks.comparison import Findings, findings
from frtop_tui.features.tensor_checks.finding_words import (
    brief_finding,
    figure_words,
    finding_words,
    next_step,
)
from frtop_tui.features.tensor_checks.samples import GroupNames, RankSample, SampledRank
from frtop_tui.job.stack_frames import site_line

GROUP = ("0", "0-3", 0)
LINE = wire.Site("/home/me/train.py", 231, "step")


def op(
    rank: int, number: int, checksum: str, *, kind: str = "all_reduce", role: str = "output",
    taken: str = "wait", nans: int = 0, elements: int = 8, error: str = "",
) -> RankSample:  # fmt: skip
    sample = NumberSample(
        number, 1, number, kind, role, taken, number // 2, 10**9, 3, "float32", elements,
        4 * elements, 4 * elements, checksum, nans, error=error,
    )  # fmt: skip
    return RankSample(rank, sample, GROUP, LINE)


def step(
    rank: int, number: int, sums: str, *, role: str = "parameter", zeros: int = 0
) -> list[RankSample]:
    """One parameter for each letter of `sums`."""
    return [
        RankSample(
            rank,
            NumberSample(
                1, 0, place, f"parameter {place}", role, "optimizer 0", number, 10**9, 0, "float32",
                8, 32, 32, checksum, zeros=zeros,
            ),
            None,
        )
        for place, checksum in enumerate(sums)
    ]  # fmt: skip


def said(found: Findings) -> str:
    names = GroupNames({GROUP: "dp:0"})
    return "\n".join(" ".join(one[:2]) for one in finding_words(found, names, site_line))


def test_the_rank_with_other_bytes_is_named_from_its_first_op_on() -> None:
    samples = [op(rank, n, f"{n}") for rank in range(4) for n in range(1, 6)]
    samples += [op(rank, n, "x" if rank == 2 else f"{n}") for rank in range(4) for n in (6, 8)]
    samples += [op(rank, 7, "7") for rank in range(4)]
    found = findings(samples, 4)
    (one,) = found.ops
    assert (one.number, one.odd, one.equal_before, one.differing) == (6, (2,), 5, 2)
    text = said(found)
    assert "rank 2: other bytes than the rest after all_reduce #6 dp:0, step 3 train.py:231" in text
    assert "equal on all at #5 (step 2); 2 of 8 compared ops differ" in text


def test_of_two_halves_nobody_is_named() -> None:
    found = findings([op(rank, 1, "ab"[rank % 2]) for rank in range(4)], 4)
    assert found.ops[0].odd == ()
    assert "no side is the majority" in said(found)
    assert "it may have begun before" in said(found)


def test_ops_whose_results_differ_by_nature_are_not_compared() -> None:
    kinds = ("reduce_scatter_tensor", "all_to_all_single", "scatter", "reduce", "gather", "strange")
    samples = [op(r, n, f"{r}", kind=kind) for r in range(4) for n, kind in enumerate(kinds)]
    found = findings(samples, 4)
    assert not found.any_fault
    assert (dict(found.equal_ops), found.incomplete) == ({}, 0)


def test_what_the_program_changes_after_each_op_accuses_nobody() -> None:
    """An accumulation into the result, say: it differs from the first op on."""
    samples = [op(r, n, f"{r} {n}", taken="late") for r in range(4) for n in range(1, 9)]
    found = findings(samples, 4)
    assert (found.ops, found.unclear) == ((), 8)
    assert "nothing is concluded" in said(found)


def test_what_was_read_later_is_named_once_it_was_equal_before() -> None:
    samples = [op(r, n, "a", taken="step") for r in range(4) for n in (1, 2)]
    samples += [op(r, 3, "b" if r == 1 else "a", taken="step") for r in range(4)]
    found = findings(samples, 4)
    assert found.ops[0].odd == (1,)
    assert "the op caused it, or the program since then" in said(found)


def test_results_of_other_sizes_or_without_figures_are_not_compared() -> None:
    samples = [op(r, 1, f"{r}", elements=8 + r) for r in range(4)]
    samples += [op(r, 2, "" if r else "a", error="full" if r else "") for r in range(4)]
    found = findings(samples, 4)
    assert (found.ops, found.incomplete) == ((), 2)


def test_the_first_nan_is_named_by_the_input_that_had_it() -> None:
    samples = [
        op(r, n, f"{r}", role="input", nans=5 if (r == 1 and n == 3) or n > 3 else 0)
        for r in range(4) for n in range(1, 6)
    ]  # fmt: skip
    found = findings(samples, 4)
    assert [(one.rank, one.sample.sample.number) for one in found.bad] == [(1, 3)]
    assert "rank 1: 5 NaN in its input of all_reduce #3 dp:0, step 1 train.py:231" in said(found)
    assert "none in that of ranks 0,2-3" in said(found)


def inputs(
    steps: int, sums: str, *, elements: int = 4096, least: float = -1.0, kind: str = "all_reduce"
) -> list[RankSample]:
    """Two ops a step, with inputs of these checksums by rank."""
    found = [
        op(rank, n, f"{n} {one}", role="input", kind=kind, elements=elements, taken="issue")
        for n in range(2 * steps) for rank, one in enumerate(sums)
    ]  # fmt: skip
    return [
        replace(one, sample=msgspec.structs.replace(one.sample, minimum=least, maximum=1.0))
        for one in found
    ]


def test_equal_gradients_before_the_reduction_step_after_step_are_of_the_same_data() -> None:
    found = findings(inputs(3, "aaaa"), 4)
    (one,) = found.same
    assert (one.ops, one.steps) == (6, (0, 2))
    assert found.any_fault
    assert not found.named
    assert "all ranks have equal inputs of all_reduce dp:0 train.py:231" in said(found)
    assert "without a DistributedSampler" in said(found)
    assert "on purpose" in said(found)  # tensor parallel reduces gradients of what all ranks hold


@pytest.mark.parametrize(
    "samples",
    [
        pytest.param(inputs(3, "aaab"), id="other data on one"),
        pytest.param(inputs(2, "aaaa"), id="few steps"),
        pytest.param(inputs(9, "aaaa", elements=8), id="a loss, a norm"),
        pytest.param(inputs(9, "aaaa", least=1.0), id="ones"),
        pytest.param(inputs(9, "aaaa", kind="broadcast"), id="a broadcast"),
        pytest.param(inputs(9, "aaa"), id="a member is not sampled"),
        pytest.param(inputs(9, "aaaa")[:-4] + inputs(9, "aaab")[-4:], id="equal for a while"),
    ],
)
def test_equal_inputs_that_may_have_another_reason_are_no_finding(
    samples: list[RankSample],
) -> None:
    assert not findings(samples, 4).same


def test_the_module_stands_beside_the_op_or_it_is_said_how_to_know_it() -> None:
    samples = [
        op(r, n, f"{r}" if n == 3 else "a", nans=n > 1 and r == 1, role=role)
        for r in range(4) for n in (1, 3) for role in ("input", "output")
    ]  # fmt: skip
    assert "then the module of an op is known" in said(findings(samples, 4))
    issuer = wire.Issuer("backward", "layers.3.mlp", "Net")
    text = said(findings([replace(one, issuer=issuer) for one in samples], 4))
    assert text.count("all_reduce #3 dp:0 (backward of layers.3.mlp), step 1 train.py:231") == 2
    assert "is not recorded" not in text


def test_a_parameter_is_named_with_its_rank_and_step() -> None:
    samples = [one for r in range(4) for n in (1, 2) for one in step(r, n, "abc")]
    samples += [one for r in range(4) for one in step(r, 3, "axc" if r == 3 else "abc")]
    found = findings(samples, 4)
    (one,) = found.steps
    assert (one.role, one.step, one.odd, one.equal_before) == ("parameter", 3, (3,), 2)
    text = said(found)
    assert "rank 3: other parameters than the rest after step 3 of optimizer 0: par" in text
    assert "parameter 1 (float32, 8 values)" in text


def test_two_replicas_that_differ_are_named_where_equal_gradients_show_that_they_are_some() -> None:
    """Their gradients are reduced, so they are equal; which parameters are right is not known."""
    parameters = [one for r in range(2) for one in step(r, 1, f"a{r}")]
    gradients = [one for r in range(2) for one in step(r, 1, "gh", role="gradient")]
    zeros = [one for r in range(2) for one in step(r, 1, "00", role="gradient", zeros=8)]
    (one,) = findings(gradients + parameters, 2).steps
    assert one.odd == ()
    assert "replicas have different parameters after step 1" in said(
        findings(gradients + parameters, 2)
    )
    assert "no side is the majority" in said(findings(gradients + parameters, 2))
    nans = [replace(one, sample=msgspec.structs.replace(one.sample, nans=8)) for one in gradients]
    for samples in (parameters, zeros + parameters, nans + parameters):
        assert findings(samples, 2).steps == ()


def test_ranks_that_are_no_replicas_accuse_nobody() -> None:
    sharded = [one for r in range(4) for n in (1, 2) for one in step(r, n, f"{r}b{r}")]
    mesh = [one for r in range(4) for one in step(r, 1, "xyz" if r < 2 else "abc")]
    zeros = [one for r in range(4) for one in step(r, 1, "x" if r == 2 else "a", zeros=8)]
    stages = [one for r in range(4) for one in step(r, 1, "ab" if r < 3 else "abc")]
    for samples in (sharded, mesh, zeros, stages):
        assert findings(samples, 4).steps == ()
    assert "no replicas, so nothing is concluded" in said(findings(sharded, 4))


def test_shards_and_samples_without_figures_are_not_called_replicas_or_none() -> None:
    shards = [
        replace(one, sample=msgspec.structs.replace(one.sample, shard=True, checksum=""))
        for r in range(4) for one in step(r, 1, "ab")
    ]  # fmt: skip
    text = said(findings(shards, 4))
    assert "parameters of optimizer 0 were not compared: each rank has its own shard" in text
    unread = [
        replace(one, sample=msgspec.structs.replace(one.sample, error="full", checksum=""))
        if r == 2 else one
        for r in range(4) for one in step(r, 1, "ab")
    ]  # fmt: skip
    text += said(findings(unread, 4))
    assert "parameters of optimizer 0 were not compared: no figures of rank 2" in text
    assert "no replicas" not in text


def test_steps_that_only_some_have_sampled_are_not_compared() -> None:
    """Of a mesh a majority of those may hold one shard."""
    samples = [one for r in (0, 1, 2) for one in step(r, 1, "xyz" if r < 2 else "abc")]
    assert findings(samples, 4).steps == ()


def test_samples_are_taken_once() -> None:
    group = wire.Group(1, "0", "default_pg", "gloo", "0-3")
    numbers = SampledRank()
    samples = tuple(op(0, n, "a").sample for n in (1, 2, 3))
    response = SamplesResponse(1, "a", 1, samples, ((3, LINE),))
    assert numbers.add(0, response, {1: group}) == 3
    assert numbers.add(0, response, {1: group}) == 0
    assert (numbers.samples[0].group, numbers.samples[0].site) == (GROUP, LINE)


OTHER = ("1", "0-3", 0)


def test_the_group_that_had_a_nan_first_comes_first() -> None:
    """Its times are those of the operator's clock, as steps of all are 0 where nobody counts."""
    late = [replace(op(r, 2, "", role="input", nans=1), at_ns=50 + r) for r in range(2)]
    early = [
        replace(op(r, 9, "", role="input", nans=r == 1), group=OTHER, at_ns=10 + r)
        for r in range(2)
    ]  # fmt: skip
    none = [replace(one, sample=msgspec.structs.replace(one.sample, step=0)) for one in late]
    first = [replace(one, sample=msgspec.structs.replace(one.sample, step=0)) for one in early]
    found = findings([*none, *first], 2)
    assert [(one.sample.group, one.rank) for one in found.bad] == [
        (OTHER, 1), (GROUP, 0), (GROUP, 1),
    ]  # fmt: skip


def test_ranks_with_a_nan_in_one_op_are_one_line() -> None:
    samples = [
        op(r, n, f"{r}", role="input", nans=3 + r) for r in range(4) for n in (4, 5)
    ]  # fmt: skip
    text = said(findings(samples, 4))
    assert text.count(" of all_reduce") == 1
    assert "ranks 0-3: 3 to 6 NaN each in their inputs of all_reduce #4 dp:0, step 2" in text
    assert "nothing was sampled before: it may have begun earlier" in text
    clean = [op(r, 3, f"{r}", role="input") for r in range(4)]
    assert "may have begun" not in said(findings([*clean, *samples], 4))


def test_a_finding_has_host_and_pid_and_what_to_run_next() -> None:
    samples = [op(r, n, "x" if r == 2 and n > 1 else "a") for r in range(4) for n in (1, 2)]
    found = findings(samples, 4)
    names, places = GroupNames({GROUP: "dp:0"}), {2: "PID 17 on node4", 3: "PID 18 on node4"}
    text = "\n".join(" ".join(one[:2]) for one in finding_words(found, names, site_line, places))
    assert "where rank 2 is PID 17 on node4" in text
    assert "PID 18" not in text
    assert next_step(found) in text
    assert brief_finding(found, names).startswith("rank 2: other bytes than the rest after")
    healthy = findings([op(r, 1, "a") for r in range(4)], 4)
    assert (next_step(healthy), brief_finding(healthy, names)) == ("", "")


def test_equal_gradients_are_not_called_equal_replicas_where_parameters_differ() -> None:
    samples = [one for r in range(4) for n in (1, 2) for one in step(r, n, "ab", role="gradient")]
    samples += [one for r in range(4) for one in step(r, 1, "ab")]
    samples += [one for r in range(4) for one in step(r, 2, "ax" if r == 3 else "ab")]
    text = said(findings(samples, 4))
    assert "gradients equal bit by bit at 2 steps\n" in text
    assert "parameters equal bit by bit at 1 step, until they differed" in text
    assert "replicas equal" not in text


def test_one_rank_alone_has_nothing_to_compare_with() -> None:
    samples = [op(0, 1, "a"), *step(0, 1, "ab"), *step(0, 1, "ab", role="gradient")]
    text = said(findings(samples, 1))
    assert "only rank 0 was asked: nothing to compare with" in text
    assert "some members only" not in text
    assert "differ on all ranks" not in text


def test_figures_say_of_how_many_finite_values_they_are() -> None:
    values = {"elements": 100, "size": 400, "seen": 400, "magnitude": 0.0, "norm": 0.0}
    one = op(0, 1, "a", nans=97)
    half = replace(one, sample=msgspec.structs.replace(one.sample, **values))
    none = replace(one, sample=msgspec.structs.replace(one.sample, elements=97, size=388, seen=388))
    names = GroupNames({GROUP: "dp:0"})

    def figures(sample: RankSample) -> str:
        return "".join(line.text for line in figure_words(findings([sample], 1), names))

    assert "mean magnitude of 3 finite values 0; norm of these 0 to 0" in figures(half)
    assert "97 NaN (97 %)" in figures(half)
    assert "mean" not in figures(none)
    assert "norm" not in figures(none)
