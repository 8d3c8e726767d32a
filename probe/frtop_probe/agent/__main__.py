"""Starts an agent: `python -m frtop_probe.agent`, as recorders do; people type `frtop agent`."""

from __future__ import annotations

import sys

from frtop_probe.agent.agent_lock import is_served
from frtop_probe.agent.options import FOR_OPERATOR, OptionProblem, Options
from frtop_probe.ring.folder import AgentFiles, FolderError, folder


def main() -> int:
    try:
        options = Options.from_environment(
            by_hand=sys.stderr.isatty(), for_operator=FOR_OPERATOR in sys.argv[1:]
        )
    except OptionProblem as problem:
        sys.stderr.write(f"frtop agent: {problem}\n")
        return 2
    if not options.by_hand and _is_served():
        return 0
    from frtop_probe.agent.lifecycle import serve  # noqa: PLC0415 - costs more than all before

    return serve(options)


def _is_served() -> bool:
    """Returns whether an agent already runs: if eight ranks start one, seven stop here."""
    try:
        return is_served(AgentFiles.here(folder()))
    except FolderError:
        return False  # `serve` reports it


if __name__ == "__main__":
    sys.exit(main())
