"""`frtop agent`: this host's agent, in the foreground."""

from __future__ import annotations

import argparse

from frtop_probe.agent.serve import Options, serve


def run(options: argparse.Namespace) -> int:
    return serve(Options.from_environment(port=options.port, bind=options.bind))
