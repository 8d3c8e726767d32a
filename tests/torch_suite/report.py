"""Results as text: a line a test while they run, and a summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from torch_suite.results import Result


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
    """Yields the summary of first pairs, and by name all tests that are not simply equal."""
    first = [result.pairs[0] for result in results]
    without, recorded = [pair.without for pair in first], [pair.recorded for pair in first]
    recorders = [pair.recorder for pair in first]
    yield f"{suite}: {len(results)} tests"
    for name, runs in (("without ", without), ("recorded", recorded)):
        seconds = sum(run.seconds for run in runs)
        yield f"  {name}  {_counted(run.state for run in runs)}  ({seconds:.0f} s)"
    yield f"  judged    {_counted(result.judgement for result in results)}"
    yield (
        f"  recorder  {sum(one.ops for one in recorders)} ops in"
        f" {sum(one.rings for one in recorders)} rings,"
        f" {sum(one.native for one in recorders)} of native kernels;"
        f" {sum(one.ops > 0 for one in recorders)} tests have ops;"
        f" {sum(one.lost for one in recorders)} entries lost"
    )
    for result in results:
        if result.judgement != "equal":
            yield f"  {result.judgement}: {result.test}"
            yield from (f"    {detail}" for detail in _details(result))
    for result in results:
        run = result.pairs[0].without
        if result.judgement == "equal" and run.state not in ("passed", "skipped"):
            yield f"  {run.state} without frtop, too: {result.test}: {run.detail[:150]}"


def _details(result: Result) -> Iterator[str]:
    for pair in result.pairs:
        yield f"without {pair.without.state}: {pair.without.detail[:200]}"
        yield f"recorded {pair.recorded.state}: {pair.recorded.detail[:200]}"
        yield from pair.recorder.lines
        if not pair.recorder.clean:
            yield f"{pair.recorder.hook_errors} errors in the hook, {pair.recorder.off} off"


def _counted(words: Iterable[str]) -> str:
    return ", ".join(f"{number} {word}" for word, number in Counter(words).most_common())
