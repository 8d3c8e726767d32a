"""`frtop stacks`: the stacks of ranks as text, with `--native` also C and C++."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Final

from msgspec import structs

from frtop_probe import wire
from frtop_tui.cli.live import (
    agrees,
    await_frame,
    await_rank,
    can_ask,
    connected,
    require_ranks,
    wait_for_ranks,
)
from frtop_tui.cli.output import show_progress
from frtop_tui.connect.source import Source
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.errors import FrtopError, UsageError
from frtop_tui.job.naming import printable
from frtop_tui.job.native_stacks import cost
from frtop_tui.text.stacks import merged_lines, own_dump, rank_lines, stacks_document

ALL_REPORTED_S: Final = 5.0
"""How long to wait until all ranks report."""
STACKS_S: Final = 10.0
"""How long to wait for stacks; an agent takes four at a time, each in some 50 ms."""
NATIVE_S: Final = 22.0
"""The same for native stacks of one rank: more than the source waits for its agent."""


def run(options: argparse.Namespace) -> int:
    wanted = sorted(set(options.rank or ()))
    if options.native:
        _require_consent_possible(options, wanted)
    with connected(options) as source:
        if options.native:
            return _print_native(source, wanted, options)
        return _print_stacks(source, wanted, options)


def _require_consent_possible(options: argparse.Namespace, wanted: Sequence[int]) -> None:
    """Raises `UsageError` if no rank is named, or nobody can be asked to agree."""
    if not wanted:
        raise UsageError(
            "--native makes ranks stand still, but none is named", "name them: --native --rank 3"
        )
    if not options.yes and not can_ask():
        raise UsageError(
            "--native makes ranks stand still, but there is no terminal to ask on",
            "add --yes to accept that",
        )


def _print_stacks(source: Source, wanted: Sequence[int], options: argparse.Namespace) -> int:
    before = _await_ranks(source, wanted)
    source.do(wire.SnapshotRequest(), tuple(before))

    def taken(frame: Frame) -> bool:
        views = [(old, frame.ranks.get(rank, old)) for rank, old in before.items()]
        missing = sum(not _has_new_stacks(old, new) for old, new in views)
        show_progress(f"taking stacks: {len(views) - missing} of {len(views)}")
        return not missing

    frame = await_frame(source, taken, STACKS_S)
    show_progress("")
    ranks = [frame.ranks.get(rank, old) for rank, old in before.items()]
    if options.json:
        print(json.dumps(stacks_document(ranks, frame.now_ns, native=False), indent=1))
    elif wanted:
        for rank in ranks:
            print("\n".join(rank_lines(rank, frame.now_ns, native=False)))
    else:
        print("\n".join(merged_lines(frame, sorted(before))))
    return 0 if any((dump := own_dump(rank)) and dump.threads for rank in ranks) else 1


def _has_new_stacks(old: JudgedRank, new: JudgedRank) -> bool:
    """Whether new stacks arrived, or the reason why there are none."""
    if new.exit_info is not None or new.stacks_taken_ns != old.stacks_taken_ns:
        return True
    dump = own_dump(new)
    return new.snapshot is not old.snapshot and dump is not None and bool(dump.error)


def _print_native(source: Source, wanted: Sequence[int], options: argparse.Namespace) -> int:
    found = [await_rank(source, rank) for rank in wanted]
    show_progress("")
    if refusal := source.frame().read_only:
        raise FrtopError(
            f"no rank may be stopped for native stacks: {refusal}", "start it without that"
        )
    for rank in found:
        print(printable(cost(rank)), file=sys.stderr)
    if not options.yes and not agrees("Go on?"):
        print("nothing was done", file=sys.stderr)
        return 1
    done = []
    failed = False
    for rank in found:  # one after the other: never two ranks at once
        view, frame = _take_native(source, rank)
        failed = failed or view.native is None or bool(view.native.dump.error)
        done.append(view)
        if not options.json:
            print("\n".join(rank_lines(view, frame.now_ns, native=True)), flush=True)
    if options.json:
        print(json.dumps(stacks_document(done, source.frame().now_ns, native=True), indent=1))
    return 1 if failed else 0


def _take_native(source: Source, before: JudgedRank) -> tuple[JudgedRank, Frame]:
    rank = before.rank
    source.do(wire.NativeStacksRequest(), (rank,))

    def taken(frame: Frame) -> bool:
        view = frame.ranks.get(rank)
        show_progress(f"taking native stacks of rank {rank}")
        return view is not None and view.native is not before.native

    frame = await_frame(source, taken, NATIVE_S)
    show_progress("")
    view = frame.ranks.get(rank, before)
    if view.native is before.native:
        none = wire.StackDump(view.identity.pid, error="deadline", help="no answer from its agent")
        missing = wire.NativeStacksResponse(0, view.host, view.key, 0, dump=none)
        view = structs.replace(view, native=missing)
    return view, frame


def _await_ranks(source: Source, wanted: Sequence[int]) -> dict[int, JudgedRank]:
    """The named ranks, or all ranks of the job, once they report.

    Raises:
        FrtopError: a named rank does not report, or none does.
    """
    if wanted:
        return {rank: await_rank(source, rank) for rank in wanted}
    frame = wait_for_ranks(source, ALL_REPORTED_S, show_progress)
    require_ranks(frame)
    return dict(sorted(frame.ranks.items()))
