"""`frtop agent`: this host's agent, in the foreground."""

from __future__ import annotations

import argparse

from frtop_probe.agent.lifecycle import Options, serve
from frtop_probe.agent.options import OptionProblem
from frtop_tui.errors import UsageError


def run(options: argparse.Namespace) -> int:
    try:
        told = Options.from_environment(
            port=options.port, bind=options.bind, read_only=options.read_only
        )
    except OptionProblem as problem:
        raise UsageError(str(problem), "`frtop agent --help` says what it takes") from problem
    return serve(told)
