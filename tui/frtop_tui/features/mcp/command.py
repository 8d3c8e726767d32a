"""Starts the server of `frtop mcp`, if the SDK is installed."""

from __future__ import annotations

import argparse
import sys
from typing import Final

from frtop_tui.errors import Missing, UsageError
from frtop_tui.features.mcp.tools import connection_words

CONFIGURATION: Final = """frtop mcp speaks JSON-RPC with a client that starts it, not with a person
  {"mcpServers": {"frtop": {"command": "frtop", "args": ["mcp"]}}}"""


def run(options: argparse.Namespace) -> int:
    """Returns 0 when the input has ended.

    Raises:
        UsageError: a person sits at the other end.
        Missing: the SDK is not installed.
    """
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError(CONFIGURATION, "that is the entry for a client's configuration")
    try:
        from frtop_tui.features.mcp.server import serve  # noqa: PLC0415 - may be missing
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types", "anyio"):
            raise
        raise Missing("frtop mcp needs the package mcp", "pip install 'frtop[mcp]'") from error
    serve(connection_words(options))
    return 0
