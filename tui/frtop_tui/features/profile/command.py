"""`frtop profile`: torch's profiler inside running ranks, as one trace for Perfetto."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Final

from frtop_tui.cli.files import require_writable
from frtop_tui.cli.live import agrees, await_rank, can_ask, connected, wait_for_ranks
from frtop_tui.cli.output import say, show_progress
from frtop_tui.connect.source import Source
from frtop_tui.errors import FrtopError, UsageError
from frtop_tui.features.profile.allocation_words import allocation_lines
from frtop_tui.features.profile.model import (
    MOST_RANKS,
    ProfileOptions,
    ProfileOrder,
    ProfileProgress,
    Withdrawal,
)
from frtop_tui.features.profile.script_merge import (
    find_traces,
    read_script_traces,
    write_script_merge,
)
from frtop_tui.features.profile.words import (
    consent_lines,
    merge_lines,
    progress_text,
    result_lines,
    standing_text,
)
from frtop_tui.files.flightrecorder.file_names import pattern_of
from frtop_tui.files.output_path import default_name, unused_path
from frtop_tui.job.naming import folded, printable

_OF_RANKS: Final = (
    "steps",
    "seconds",
    "at_step",
    "warm_up",
    "shapes",
    "stacks",
    "memory",
    "execution_trace",
    "separate",
)
"""Options that say how ranks are profiled."""
RANKS_S: Final = 15.0
"""How long all ranks may take to report."""


def run(options: argparse.Namespace) -> int:
    """Returns 0 if all ranks are in the trace, 1 if some are not."""
    wanted = tuple(sorted(options.rank or ()))
    path = Path(options.output) if options.output else None
    if options.paths:
        return _merge(options, wanted, path)
    if options.ranks_from:
        raise UsageError("--ranks-from needs files", "name the traces to merge")
    if path is not None and not options.separate:
        require_writable(path)
    if path is not None and path.exists():
        raise UsageError(f"{path} exists", "name another file, or remove it")
    if options.seconds and (options.at_step or options.warm_up):
        raise UsageError("--at-step and --warm-up count steps", "give --steps instead of --seconds")
    if not options.yes and not can_ask():
        raise UsageError(
            "the ranks do more work while they are profiled, and there is no terminal to ask on",
            "add --yes to accept that",
        )
    order = ProfileOptions(
        steps=0 if options.seconds else options.steps or ProfileOptions().steps,
        seconds=options.seconds or 0.0,
        wait_s=options.wait,
        shapes=options.shapes,
        stacks=options.stacks,
        memory=options.memory,
        execution=options.execution_trace,
        separate=options.separate,
        at_step=options.at_step or 0,
        warm_up=options.warm_up or 0,
    )
    with connected(options) as source:
        return _profile(source, wanted, order, path, ask=not options.yes)


def _merge(options: argparse.Namespace, wanted: tuple[int, ...], path: Path | None) -> int:
    """Merges traces that the script wrote."""
    if given := next((one for one in _OF_RANKS if getattr(options, one)), ""):
        name = given.replace("_", "-")
        raise UsageError(f"--{name} is for ranks that run, not for files", f"leave out --{name}")
    if path is None:
        path = unused_path(Path.cwd() / "frtop-merged-profile.json.gz")
    require_writable(path)
    if path.exists():
        raise UsageError(f"{path} exists", "name another file, or remove it")
    pattern = pattern_of(options.ranks_from)
    merge = read_script_traces(
        find_traces([*map(Path, options.paths)]), pattern, wanted, show_progress
    )
    path, size = write_script_merge(path, merge, show_progress)
    show_progress("")
    say(*map(printable, merge_lines(merge, size)))
    print(path)
    return 1 if merge.missing else 0


def _profile(
    source: Source,
    wanted: tuple[int, ...],
    order: ProfileOptions,
    path: Path | None,
    *,
    ask: bool,
) -> int:
    for rank in wanted:
        await_rank(source, rank)
    # Loads all ranks even if some are named: the others show which ranks stand still.
    frame = wait_for_ranks(source, RANKS_S, show_progress)
    ranks = wanted or tuple(sorted(frame.ranks))
    show_progress("")
    if len(ranks) > MOST_RANKS:
        text = f"{len(ranks)} ranks are too many at once"
        raise UsageError(text, f"name at most {MOST_RANKS}: --rank 0-7")
    if refusal := frame.read_only:
        raise FrtopError(f"no rank may be profiled: {refusal}", "start it without that")
    say(f"{folded(ranks)}:", *consent_lines(order))
    if standing := standing_text(frame, ranks, order):
        say(f"{printable(standing)} `frtop stacks` says where they are.")
    if ask and not agrees("Go on?"):
        print("nothing was ordered", file=sys.stderr)
        return 1
    if path is None:
        suffix = "-profile" if order.separate else "-profile.json.gz"
        path = unused_path(Path.cwd() / default_name(frame, frame.wall_ns, suffix))
    source.do(ProfileOrder(ranks, order, path.absolute()))
    progress = _await(source)
    show_progress("")
    if progress.state != "written":
        problem = progress.problem
        text, step = (problem.text, problem.next) if problem else ("no profile was written", "")
        raise FrtopError(printable(text), step or "`frtop diagnose` says how the job is")
    say(*map(printable, result_lines(progress)))
    for line in allocation_lines(progress.allocations):
        print(printable(line), file=sys.stderr)
    print(progress.path)
    return 1 if any(rank.stage == "failed" for rank in progress.ranks) else 0


def _await(source: Source) -> ProfileProgress:
    """How the order ended. Ctrl-C ends incomplete ranks; a second Ctrl-C ends all."""
    try:
        return _followed(source)
    except KeyboardInterrupt:
        progress: ProfileProgress | None = source.news()["profile"]
        if progress is None or not (progress.can_be_ended or progress.state == "merging"):
            source.do(Withdrawal())
            raise
    show_progress("")
    say("ending it: ranks that are complete are written; Ctrl-C again discards all")
    source.do(Withdrawal(keep=True))
    try:
        return _followed(source)
    except KeyboardInterrupt:
        source.do(Withdrawal())
        raise


def _followed(source: Source) -> ProfileProgress:
    while True:
        progress: ProfileProgress | None = source.news()["profile"]
        if progress is not None:
            if progress.state not in ("running", "merging"):
                return progress
            show_progress(progress_text(progress))
        if (problem := source.frame().problem) is not None and problem.internal:
            raise FrtopError(problem.text, problem.next)
        time.sleep(0.05)
