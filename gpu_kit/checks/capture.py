"""Whether a CUDA graph can be captured and replayed while a thread reads the recorder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpu_kit import facts, ranks
from gpu_kit.checks.context import Context
from gpu_kit.facts import Fact
from gpu_kit.findings import Finding, Outcome

VARIANTS: Final = {"alone": 2, "recorder": 2, "status": 1, "dump": 1, "unretired": 1}
"""The variants, with their numbers of ranks. All run at once, each as a job of its own."""
RISKY: Final = "plain"
POINTS: Final = {
    "alone": "capture alone",
    "status": "capture status",
    "dump": "capture dump",
    "unretired": "capture dump of unretired",
    "plain": "capture plain dump",
    "recorder": "capture recorder",
}
SLOWER: Final = 1.05
"""A replay under the recorder may take this much longer: two jobs on one GPU differ by chance."""


def run(context: Context) -> None:
    jobs = {variant: _start(context, variant, world) for variant, world in VARIANTS.items()}
    _end(context, jobs, context.left_s / 2)
    _end(context, {RISKY: _start(context, RISKY, 1)}, context.left_s - 3.0)


def _start(context: Context, variant: str, world: int) -> ranks.Ranks:
    folder = context.folder / variant
    folder.mkdir()
    (folder / "f").mkdir(mode=0o700)
    return ranks.start(
        ["-m", "gpu_kit.programs.capture", variant], folder, world=world,
        variables={"FRTOP_DIR": str(folder / "f"), "FRTOP_AGENT": "0"},
    )  # fmt: skip


def _end(context: Context, jobs: dict[str, ranks.Ranks], seconds: float) -> None:
    for variant, job in jobs.items():
        ended = job.wait(max(1.0, min(seconds, context.left_s - 3.0)))
        facts.say("job", variant=variant, ended=ended, statuses=job.statuses(), logs=job.logs(400))
        job.kill()


# -- pure from here on


def judge(found: list[Fact], _arguments: Sequence[str] = ()) -> list[Finding]:
    """Turns facts into findings."""
    return [_variant(found, variant) for variant in POINTS]


def _variant(found: list[Fact], variant: str) -> Finding:
    point, said = POINTS[variant], facts.of(found, "captured", variant=variant)
    if not said:
        for job in facts.of(found, "job", variant=variant):
            end = next(iter(job["logs"].values()), "no output")
            return Finding(point, "failed", f"statuses {job['statuses']}: {end[-300:]}")
        return Finding(point, "failed", "its job said nothing")
    one = said[0]
    broken = next((fact["error"] for fact in said if fact["error"]), "")
    text = f"{one['looks']} looks, at most {one['unretired']} entries not retired"
    if one["other_thread"]:
        text += f", the other thread: {one['other_thread']}"
    if one["stuck"]:
        text += ", the other thread is stuck"
    if variant == RISKY:
        outcome: Outcome = "expected" if broken else "otherwise" if one["unretired"] else "failed"
        return Finding(point, outcome, f"{broken or 'the capture went well'}; {text}", dict(one))
    if broken:
        return Finding(point, "otherwise", f"{broken}; {text}", dict(one))
    return _unbroken(found, variant, said, text)


def _unbroken(found: list[Fact], variant: str, said: list[Fact], text: str) -> Finding:
    """The finding on a capture that went well: its replays must give the right values."""
    point, one = POINTS[variant], said[0]
    wanted = _wanted(one["world"])
    wrong = [fact["values"] for fact in said if fact["values"] != wanted]
    if wrong:
        return Finding(point, "otherwise", f"replays return {wrong[0]}, not {wanted}; {text}")
    text = f"replays are right, {one['replay_ms']:.2f} ms each; {text}"
    if variant in ("dump", "unretired", "status") and one["looks"] < 5:
        return Finding(point, "failed", f"too few looks; {text}", dict(one))
    if variant == "unretired" and not one["unretired"]:
        return Finding(point, "failed", f"no entry was open; {text}", dict(one))
    alone = facts.of(found, "captured", variant="alone")
    if variant == "recorder" and alone and alone[0]["replay_ms"]:
        ratio = one["replay_ms"] / alone[0]["replay_ms"]
        outcome: Outcome = "expected" if ratio <= SLOWER else "figure"
        return Finding(point, outcome, f"{ratio:.2f} times the time of alone; {text}", dict(one))
    return Finding(point, "expected", text, dict(one))


def _wanted(world: int) -> list[float]:
    """Each of ten layers halves and sums over all ranks."""
    once = (0.5 * world) ** 10
    return [once, once**3]
