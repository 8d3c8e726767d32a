"""Shows what the recorder costs a step, and that it changes no result."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Final

from gpu_kit import facts, ranks
from gpu_kit.checks.context import Context
from gpu_kit.facts import Fact
from gpu_kit.findings import Finding, Outcome

JOBS: Final = (
    ("ops", 1, 8.0),
    ("ddp", 4, 12.0),
    ("moe", 4, 12.0),
    ("fsdp", 4, 12.0),
    ("tensor_parallel", 4, 8.0),
)
"""The kind, the number of ranks, and the seconds of measuring."""
START_S: Final = 40.0
KINDS: Final = ("ddp", "fsdp", "tensor_parallel", "moe")
OP_BUDGET_US: Final = 12.0


def run(context: Context) -> None:
    """Runs the jobs one after the other: two at once would disturb each other."""
    for kind, world, seconds in JOBS:
        left = context.left_s - 2.0
        if left < START_S / 2:
            facts.say("no time", kind=kind)
            continue
        folder = context.folder / kind
        variables = {"FRTOP_DIR": str(folder / "f"), "FRTOP_AGENT": "0"}
        folder.mkdir()
        (folder / "f").mkdir(mode=0o700)
        job = ranks.start(
            ["-m", "gpu_kit.programs.steps", kind, str(seconds)], folder,
            world=world, variables=variables,
        )  # fmt: skip
        ended = job.wait(min(left, context.patient(START_S + 2 * seconds)))
        facts.say("job", kind=kind, ended=ended, statuses=job.statuses(), logs=job.logs(400))
        job.kill()


# -- pure from here on


def judge(found: list[Fact], _arguments: Sequence[str] = ()) -> list[Finding]:
    """Turns facts into findings."""
    findings = [_op(found), _looks(found)]
    for kind in KINDS:
        findings += [_step(found, kind), _equal(found, kind)]
    return findings


def _op(found: list[Fact]) -> Finding:
    ops = facts.of(found, "op")
    if not ops:
        return _nothing("cost of an op", found, "ops")
    op = ops[0]
    low, middle, high = _quartiles(op["added_us"])
    text = (
        f"{middle:+.1f} µs ({low:+.1f} … {high:+.1f}) to {op['off_us']:.1f} µs, "
        f"{len(op['added_us'])} pairs of blocks; budget {OP_BUDGET_US:.0f} µs"
    )
    outcome: Outcome = "expected" if middle <= OP_BUDGET_US else "otherwise"
    return Finding("cost of an op", outcome, text, dict(op))


def _looks(found: list[Fact]) -> Finding:
    costs = {fact["look"]: fact for fact in facts.of(found, "look cost")}
    if len(costs) < 2:
        return _nothing("cost of looks", found, "ops")
    text = "; ".join(
        f"{name} {one['median_us']} µs, longest {one['max_us']}, {one['bytes']} bytes"
        for name, one in costs.items()
    )
    return Finding("cost of looks", "figure", text, costs)


def _step(found: list[Fact], kind: str) -> Finding:
    timed = facts.of(found, "timed", kind=kind, rank=0)
    if not timed:
        return _nothing(f"step {kind}", found, kind)
    one = timed[0]
    low, middle, high = (100 * (value - 1) for value in _quartiles(one["ratios"]))
    text = (
        f"off {one['off_ms']:.2f} ms, on {one['on_ms']:.2f} ms; per pair of blocks {middle:+.2f} % "
        f"({low:+.2f} … {high:+.2f}), {len(one['ratios'])} pairs"
    )
    return Finding(f"step {kind}", "figure", text, dict(one))


def _equal(found: list[Fact], kind: str) -> Finding:
    point, said = f"equal {kind}", facts.of(found, "equal", kind=kind)
    if not said:
        return _nothing(point, found, kind)
    unequal = [fact["rank"] for fact in said if fact["digests"][0] != fact["digests"][1]]
    if unequal:
        return Finding(point, "otherwise", f"ranks {unequal} differ in results with the recorder",
                       {"digests": said})  # fmt: skip
    return Finding(point, "expected", f"bit for bit, {len(said)} ranks")


def _nothing(point: str, found: list[Fact], kind: str) -> Finding:
    if facts.of(found, "no time", kind=kind):
        return Finding(point, "not run", "no time was left")
    for job in facts.of(found, "job", kind=kind):
        end = next(iter(job["logs"].values()), "no output")
        return Finding(point, "failed", f"statuses {job['statuses']}: {end[-300:]}")
    return Finding(point, "failed", "its job did not end")


def _quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    if len(values) < 2:
        return (values[0],) * 3
    low, middle, high = statistics.quantiles(values, n=4)
    return low, middle, high
