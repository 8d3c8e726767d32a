"""`frtop run -- COMMAND`: becomes the command, with the recorder prepared."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

from frtop_probe import keys
from frtop_tui.errors import FrtopError, KeyTrouble, UsageError
from frtop_tui.prepare import prepare

NOT_FOUND = 127
NOT_EXECUTABLE = 126


def run(options: argparse.Namespace) -> int:
    """Replaces this process: signals, terminal and exit status are the command's own."""
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        raise UsageError("nothing to run", "frtop run -- torchrun --nproc-per-node 8 train.py")
    if shutil.which(command[0]) is None:
        raise _cannot_run(command[0])
    try:
        keys.load(create=True)  # before any rank: they would all make it at once
    except keys.KeyProblem as problem:
        trouble = KeyTrouble(problem.text, problem.next)
        print(f"frtop: {trouble}\nfrtop: the job runs; no agent will", file=sys.stderr)
    os.execvpe(command[0], command, prepare(os.environ))  # noqa: S606 - that is the command


def _cannot_run(command: str) -> FrtopError:
    """The error, with the status that a shell would give."""
    if Path(command).is_file():
        error = FrtopError(f"{command} cannot be executed", f"chmod +x {command}")
        error.exit_status = NOT_EXECUTABLE
    else:
        error = FrtopError(f"{command}: no such command", "check its name, or name its path")
        error.exit_status = NOT_FOUND
    return error
