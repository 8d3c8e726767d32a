"""`frtop run -- COMMAND`: runs the command with the recorder prepared.

Unrecorded it becomes the command. Recorded it stays beside it, since in a container, or
a step of a batch system, everything ends with it: the agent gets a moment for its boxes.
"""

from __future__ import annotations

import argparse
import errno
import os
import secrets
import shutil
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from frtop_probe.ring.folder import FolderError, candidates
from frtop_probe.ring.recording import BOX_SUFFIX, RECORD, wait_for_boxes
from frtop_tui.cli.parent import Child, end_like, execute
from frtop_tui.errors import FrtopError, UsageError
from frtop_tui.prepare import prepare

NOT_FOUND = 127
NOT_EXECUTABLE = 126
PATIENCE: Final = 2.0
"""Seconds that the agent gets for its black boxes once the command has ended."""
_LIST: Final = 1.0
"""Seconds for a record folder to say what is in it: it must not keep us for ever."""
_TRY: Final = 10.0
"""Seconds for it to take a file, before the command starts: an automounter takes some."""
Result = TypeVar("Result")


def run(options: argparse.Namespace) -> int:
    """Signals, terminal and exit status are the command's own."""
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        raise UsageError("nothing to run", "frtop run -- torchrun --nproc-per-node 8 train.py")
    if shutil.which(command[0]) is None:
        raise _cannot_run(command[0])
    record = _record(options.record)
    environment = prepare(os.environ, record)
    try:
        if record is None:
            execute(command, environment)
        began, known = time.time_ns(), _boxes(record)
        child = Child(command, environment)
    except OSError as error:
        raise _cannot_run(command[0], error.strerror or "") from error
    return end_like(child.wait(), lambda: _tell(record, known, began))


def _record(named: str | None) -> Path | None:
    """The folder for black boxes, None for none.

    What a person has typed must work; what a site has set for all its jobs must not keep
    this one from running.
    """
    wanted = named or os.environ.get(RECORD)
    if not wanted:
        return None
    try:
        return _folder(wanted, "--record" if named else RECORD)
    except FrtopError as error:
        if named:
            raise
        print(f"frtop: {error}\nfrtop: the job runs all the same", file=sys.stderr, flush=True)
        return None


def _tell(record: Path, known: frozenset[str], began_wall_ns: int) -> None:
    """Waits for boxes that are under way, and says where new ones are."""
    try:
        wait_for_boxes(candidates(), began_wall_ns, PATIENCE)
    except (FolderError, OSError):
        return  # nowhere for an agent to live: no boxes either
    if _boxes(record) - known:
        print(
            f"frtop: black box in {record}; look at it with: frtop open {record}",
            file=sys.stderr,
            flush=True,
        )


def _boxes(record: Path) -> frozenset[str]:
    """Names of the boxes in a folder; none when it does not answer."""
    try:
        found = _within(_LIST, lambda: [path.name for path in record.glob(f"*{BOX_SUFFIX}")])
    except OSError:
        return frozenset()
    return frozenset(found)


def _folder(wanted: str, named_by: str) -> Path:
    """The folder, absolute, made if it is missing; that it can be written to has been tried."""
    try:
        return _within(_TRY, lambda: _tried(Path(wanted)))
    except (OSError, RuntimeError) as error:  # the latter: no such home, links in a circle
        reason = str(error) if isinstance(error, RuntimeError) else error.strerror
        if isinstance(error, FileExistsError):
            reason = "it is no folder"
        raise FrtopError(
            f"no black box can be left in {Path(wanted).absolute()}: {reason}",
            f"name a folder that you may write to with {named_by}, or leave that out",
        ) from error


def _tried(wanted: Path) -> Path:
    record = wanted.expanduser().resolve()
    probe = record / f".frtop-{secrets.token_hex(4)}"
    if not record.is_dir():
        record.mkdir(mode=0o700, parents=True)
    os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    probe.unlink()
    return record


def _within(seconds: float, work: Callable[[], Result]) -> Result:
    """What `work` gives or raises, of files that may never answer.

    Raises:
        TimeoutError: it has not answered.
    """
    results: list[Result] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    for failure in failures:
        raise failure
    if not results:
        raise TimeoutError(errno.ETIMEDOUT, f"it does not answer within {seconds:.0f} s")
    return results[0]


def _cannot_run(command: str, reason: str = "") -> FrtopError:
    """The error, with the status that a shell would give."""
    if reason or os.path.isfile(command):  # noqa: PTH113 - Path's own raises: a name too long
        why = f": {reason}" if reason else ""
        error = FrtopError(f"{command} cannot be executed{why}", f"chmod +x {command}")
        error.exit_status = NOT_EXECUTABLE
    else:
        error = FrtopError(f"{command}: no such command", "check its name, or name its path")
        error.exit_status = NOT_FOUND
    return error
