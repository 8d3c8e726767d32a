"""`frtop check` of 1,024 scripted ranks on 128 hosts: how long each part takes."""

from __future__ import annotations

import resource
import time
from typing import Final

from frtop_tui.connect.live import LiveSource
from frtop_tui.demo.scripted.job import ScriptedJob
from frtop_tui.features.check.expectations import compared, overall
from frtop_tui.features.check.facts import FEWEST, WARM_UP, facts_of
from frtop_tui.features.check.follow import ReadSteps, StepsRead
from frtop_tui.features.check.plan import plan_of_words
from frtop_tui.features.check.plan_text import plan_text

RANKS: Final = 1024
WORDS: Final = (
    "job.world-size=1024", "step.other-ops=true", "step.seconds=[0, 60]",
    "ops.dp.all_reduce.count=[0, 99]", "ops.tp.all_reduce.count=[0, 99]",
)  # fmt: skip


def main() -> None:
    """Prints seconds; the scripted agents run on the same machine, and take most of them."""
    with ScriptedJob(RANKS, "none") as job:
        source = LiveSource(agents=job.start())
        try:
            _check(source)
        finally:
            source.close()


def _check(source: LiveSource) -> None:
    while True:
        frame = source.frame()
        steps = [view.status.step for view in frame.ranks.values() if view.status is not None]
        if len(steps) == RANKS and min(steps) > WARM_UP + FEWEST:
            break
        time.sleep(0.1)
    order = ReadSteps(tuple(frame.ranks))
    begin, cpu = time.monotonic(), time.process_time()
    source.do(order)
    while True:
        found: StepsRead = source.news()["check"]
        if found.order is order and not found.left:
            break
        time.sleep(0.02)
    took, used = time.monotonic() - begin, time.process_time() - cpu
    each = sum(map(len, found.steps.values())) / max(1, len(found.steps))
    print(f"frtop check of {RANKS:,} scripted ranks, {each:.0f} steps of each:")
    print(f"  reading the steps      {took:5.2f} s, {used:.2f} s of CPU here")
    begin = time.monotonic()
    facts = facts_of(source.frame(), found.steps, found.problems)
    print(f"  facts of the job       {time.monotonic() - begin:5.2f} s")
    begin = time.monotonic()
    outcomes = compared(plan_of_words(WORDS), facts)
    print(f"  {len(WORDS)} expectations         {time.monotonic() - begin:5.2f} s")
    begin = time.monotonic()
    text = plan_text(facts, 0)
    print(f"  a plan                 {time.monotonic() - begin:5.2f} s, {len(text):,} bytes")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"  memory                 {peak:5.0f} MB; overall: {overall(outcomes)}")


if __name__ == "__main__":
    main()
