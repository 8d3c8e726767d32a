"""`frtop run -- COMMAND`: becomes the command, with the recorder prepared."""

from __future__ import annotations

import argparse
import os
import shutil

from frtop_probe import keys
from frtop_tui.errors import FrtopError, KeyTrouble, UsageError
from frtop_tui.prepare import prepare

NOT_FOUND = 127


def run(options: argparse.Namespace) -> int:
    """Replaces this process: signals, terminal and exit status are the command's own."""
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        raise UsageError("nothing to run", "frtop run -- torchrun --nproc-per-node 8 train.py")
    if shutil.which(command[0]) is None:
        error = FrtopError(f"{command[0]}: no such command", "check its name, or name its path")
        error.exit_status = NOT_FOUND
        raise error
    try:
        keys.load(create=True)  # before any rank: they would all make it at once
    except keys.KeyProblem as problem:
        raise KeyTrouble(problem.text, problem.next) from problem
    os.execvpe(command[0], command, prepare(os.environ))  # noqa: S606 - that is the command
