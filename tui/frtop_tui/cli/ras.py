"""`frtop ras`: asks NCCL's RAS once, through one rank, after its risk was said and accepted."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import Final

from frtop_probe import wire
from frtop_tui.cli.live import AppearanceTimer, agrees, can_ask, connect, show_progress
from frtop_tui.connect.base import Source
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.errors import FrtopError, UsageError
from frtop_tui.job.naming import printable
from frtop_tui.ras.document import ras_document
from frtop_tui.ras.risk import risk_lines
from frtop_tui.ras.text import answer_lines

APPEAR_S: Final = 8.0
"""How long to wait until a rank is heard, in seconds."""
LOOK_S: Final = 25.0
ANSWER_S: Final = 55.0
"""How long to wait for an answer, in seconds: somewhat longer than the source does."""
APART_S: Final = 11.0
"""Between two answers: an agent asks at most every 10 s."""
NOT_ASKED: Final = 1

_Got = Callable[[JudgedRank], wire.RasResponse | None]


def run(options: argparse.Namespace) -> int:
    """Returns 0 with an answer, 1 without."""
    source = connect(options)
    try:
        return _run(source, options)
    finally:
        source.close()
        show_progress("")


def _run(source: Source, options: argparse.Namespace) -> int:
    rank = _await_rank(source, options.rank)
    look = _get(source, rank.rank, lambda view: view.ras_look, LOOK_S, look=True)
    _require_answer(look)
    print("\n".join(map(printable, risk_lines(rank, look, twice=options.twice))), file=sys.stderr)
    if not options.yes and not _agreed():
        print("RAS was not asked.", file=sys.stderr)
        return NOT_ASKED
    response = _ask(source, rank)
    _print(source, rank, response, options)
    if options.twice and response.report is not None:
        begin = time.monotonic()
        while (left := begin + APART_S - time.monotonic()) > 0:
            show_progress(f"asking again in {left:.0f} s")
            time.sleep(0.1)
        show_progress("")
        later = _ask(source, rank)
        _print(source, rank, later, options, response)
        response = later
    return 0 if response.report is not None else NOT_ASKED


def _agreed() -> bool:
    if not can_ask():
        raise UsageError(
            "RAS is asked only when a person says so, and this is no terminal",
            "read the risk above, then add --yes",
        )
    return agrees("Ask NCCL's RAS now?")


def _ask(source: Source, rank: JudgedRank) -> wire.RasResponse:
    return _get(source, rank.rank, lambda view: view.ras, ANSWER_S, look=False)


def _get(source: Source, rank: int, got: _Got, wait_s: float, *, look: bool) -> wire.RasResponse:
    """Sends one request, and waits for its response.

    Raises:
        FrtopError: there was none.
    """
    known = source.frame().ranks.get(rank)
    before = got(known) if known is not None else None
    source.ask_ras(rank, look=look)
    begin = time.monotonic()
    doing = f"looking at rank {rank}" if look else f"asking NCCL's RAS through rank {rank}"
    while True:
        view = source.frame().ranks.get(rank)
        response = got(view) if view is not None else None
        if response is not None and response is not before:
            show_progress("")
            return response
        if time.monotonic() - begin > wait_s:
            raise FrtopError(
                f"no answer from the host of rank {rank} in {wait_s:.0f} s",
                "`frtop diagnose` shows which hosts are heard",
            )
        show_progress(doing)
        time.sleep(0.05)


def _print(
    source: Source,
    rank: JudgedRank,
    response: wire.RasResponse,
    options: argparse.Namespace,
    earlier: wire.RasResponse | None = None,
) -> None:
    frame = source.frame()
    view = frame.ranks.get(rank.rank, rank)
    if options.json:
        print(json.dumps(ras_document(frame, view, response, earlier), indent=1), flush=True)
    else:
        print("\n".join(answer_lines(frame, view, response, earlier)), flush=True)


def _require_answer(look: wire.RasResponse) -> None:
    if look.error:
        message, _, step = look.help.partition("; ")
        raise FrtopError(
            f"RAS is not asked: {message or look.error}",
            step or "`frtop diagnose` shows what is known without asking it",
        )


def _await_rank(source: Source, wanted: int | None) -> JudgedRank:
    """The rank to ask through: the named one, else the first that can answer."""
    timer = AppearanceTimer()
    while True:
        frame = source.frame()
        settled = timer.waited_s > 1.0 or (frame.ranks and frame.coverage.complete)
        view = _choose(frame, wanted) if settled else None
        if view is not None:
            return view
        timer.require_visible(frame)
        if timer.waited_s > APPEAR_S:
            subject = "no rank that lives is" if wanted is None else f"rank {wanted} is not"
            raise FrtopError(f"{subject} heard", "`frtop diagnose` lists ranks and hosts")
        show_progress("connecting")
        time.sleep(0.05)


def _choose(frame: Frame, wanted: int | None) -> JudgedRank | None:
    if wanted is not None:
        return frame.ranks.get(wanted)
    may_act = {host.name: host.may_act for host in frame.hosts}
    able = (
        view
        for _, view in sorted(frame.ranks.items())
        if view.state not in ("dead", "done", "unheard", "stopped")
    )
    ordered = sorted(able, key=lambda view: not may_act.get(view.host, True))
    return ordered[0] if ordered else None
