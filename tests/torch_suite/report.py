"""Results as text: a line a test while they run, a summary, and a row for the docs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from torch_suite.results import Counts, Judgement, Result, State, count


def line(result: Result) -> str:
    """Returns one line: both states and how long they took, and what the rings hold."""
    pair = result.pairs[0]
    recorder = pair.recorder
    text = (
        f"{result.judgement:9} {pair.without.state:7} {pair.recorded.state:7}"
        f" {pair.without.seconds:6.1f} {pair.recorded.seconds:6.1f} s"
        f" {recorder.rings:3} rings {recorder.ops:6} ops  {result.test}"
    )
    if result.judgement != "equal":
        text += "".join(f"\n    {detail}" for detail in _details(result))
    return text


def text(suite: str, results: Sequence[Result]) -> Iterator[str]:
    """Yields the summary: counts, and by name all tests that are not simply equal."""
    counts = count(results)
    yield f"{suite}: {counts.tests} tests"
    yield f"  without   {_states(counts.without)}  ({counts.seconds[0]:.0f} s)"
    yield f"  recorded  {_states(counts.recorded)}  ({counts.seconds[1]:.0f} s)"
    yield f"  judged    {_states(counts.judged)}"
    yield (
        f"  recorder  {counts.ops} ops in {counts.rings} rings; {counts.with_ops} tests have ops;"
        f" {counts.lost} entries lost"
    )
    for result in results:
        if result.judgement != "equal":
            yield f"  {result.judgement}: {result.test}"
            yield from (f"    {detail}" for detail in _details(result))
    for result in results:
        run = result.pairs[0].without
        if result.judgement == "equal" and run.state not in ("passed", "skipped"):
            yield f"  {run.state} without frtop, too: {result.test}: {run.detail[:150]}"


def row(name: str, counts: Counts) -> str:
    """Returns a row of the table in the docs."""
    cells = (
        name,
        str(counts.tests),
        _states(counts.without),
        _states(counts.recorded),
        _states(counts.judged),
        f"{counts.with_ops} tests, {counts.ops:,} ops",
    )
    return f"| {' | '.join(cells)} |"


def _details(result: Result) -> Iterator[str]:
    for pair in result.pairs:
        yield f"without {pair.without.state}: {pair.without.detail[:200]}"
        yield f"recorded {pair.recorded.state}: {pair.recorded.detail[:200]}"
        yield from pair.recorder.lines
        if not pair.recorder.clean:
            yield f"{pair.recorder.hook_errors} errors in the hook, {pair.recorder.off} off"


def _states(numbers: Mapping[State, int] | Mapping[Judgement, int]) -> str:
    return ", ".join(f"{number} {state}" for state, number in numbers.items())
