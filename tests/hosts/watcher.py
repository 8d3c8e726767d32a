"""A live source that prints its frame for every line on stdin."""

from __future__ import annotations

import json
import sys
from typing import Any

from frtop_tui.connect.live import LiveSource
from frtop_tui.connect.pipes.places import places
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.statistics.wanted import StatisticsWanted
from frtop_tui.text.json_document import document


def main(words: list[str]) -> None:
    match words:
        case ["--ssh", *specs]:
            source = LiveSource([], places=places(specs))
        case _:
            source = LiveSource(words)
    source.want_statistics(StatisticsWanted(), whom="verdicts")
    try:
        for _ in sys.stdin:
            print(json.dumps(_content(source.frame())), flush=True)
    finally:
        source.close()


def _content(frame: Frame) -> dict[str, Any]:
    return {
        **document(frame),
        "now_ns": frame.now_ns,
        "hosts": {
            host.name: {
                "state": host.state,
                "problem": str(host.problem or ""),
                "clock_error_ns": host.clock_error_ns,
            }
            for host in frame.hosts
        },
        "waits_s": {str(rank): _waits_s(view, frame) for rank, view in frame.ranks.items()},
    }


def _waits_s(view: JudgedRank, frame: Frame) -> float | None:
    """Returns for how many seconds the rank has been blocked in its op."""
    op = view.blocked_on
    return None if op is None else view.age_s(op.issued_ns, frame.now_ns)


if __name__ == "__main__":
    main(sys.argv[1:])
