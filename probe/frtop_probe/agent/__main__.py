"""Starts an agent: `python -m frtop_probe.agent`, as recorders do; people type `frtop agent`."""

from __future__ import annotations

import argparse
import sys

from frtop_probe.agent.agent_lock import is_served
from frtop_probe.agent.options import FOR_OPERATOR, OptionProblem, Options
from frtop_probe.ring.folder import AgentFiles, FolderError, folder


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m frtop_probe.agent", description=__doc__)
    parser.add_argument("--port", type=int, help="port of updates; requests use the next one")
    parser.add_argument("--bind", metavar="ADDR", help="address to listen on (default: all)")
    parser.add_argument("--with-pid", type=int, metavar="PID", help="leave when this process ends")
    parser.add_argument(
        "--linger", type=float, metavar="SECONDS", help="time to stay after the last rank"
    )
    parser.add_argument("--read-only", action="store_true", help="let nobody act on ranks")
    parser.add_argument(
        FOR_OPERATOR,
        action="store_true",
        help="leave soon after the last screen, if no rank is prepared",
    )
    given = parser.parse_args(arguments)
    try:
        chosen = Options.from_environment(
            bind=given.bind,
            port=given.port,
            with_pid=given.with_pid,
            linger=given.linger,
            by_hand=sys.stderr.isatty(),
            read_only=given.read_only,
            for_operator=given.for_operator,
        )
    except OptionProblem as problem:
        sys.stderr.write(f"frtop agent: {problem}\n")
        return 2
    if not chosen.by_hand and _is_served():
        return 0
    from frtop_probe.agent.lifecycle import serve  # noqa: PLC0415 - costs more than all before

    return serve(chosen)


def _is_served() -> bool:
    """Whether an agent runs already: of eight ranks that start one, seven return here."""
    try:
        return is_served(AgentFiles.here(folder()))
    except FolderError:
        return False  # `serve` reports it


if __name__ == "__main__":
    sys.exit(main())
