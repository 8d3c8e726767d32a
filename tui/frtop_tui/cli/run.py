"""The commands on a job's hosts: `frtop run -- COMMAND` and `frtop agent`.

`frtop run` sets up the recorder and becomes the command. With `--record` it stays as the command's
parent: a container or a batch step ends with it, so it gives the agent time to write black boxes.
"""

from __future__ import annotations

import argparse
import errno
import os
import secrets
import shlex
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

from frtop_probe.proc import daemon_thread
from frtop_probe.ring.box_lock import BOX_SUFFIX, RECORD, wait_for_boxes
from frtop_probe.ring.folder import FolderError, candidates
from frtop_tui.cli.parent import Child, execute, exit_like
from frtop_tui.errors import FrtopError, UsageError
from frtop_tui.prepare import prepare
from frtop_tui.registry import contributions

NOT_FOUND = 127
NOT_EXECUTABLE = 126
BOX_S: Final = 2.0
"""Seconds that the agent gets for its black boxes after the command has ended."""
_LIST_S: Final = 1.0
"""Longest time, in seconds, to list a record folder, whose file system may hang."""
_PROBE_S: Final = 10.0
"""Longest time, in seconds, to create a file there: an automounter needs some."""
Result = TypeVar("Result")


def run(options: argparse.Namespace) -> int:
    """`frtop run`; signals, terminal and exit status are the command's own."""
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        raise UsageError("nothing to run", "frtop run -- torchrun --nproc-per-node 8 train.py")
    if shutil.which(command[0]) is None:
        raise _cannot_run(command[0])
    record = _record(options.record)
    environment = prepare(
        os.environ,
        record,
        device_tensors=options.device_tensors,
        phases=options.phases,
        modules=options.modules,
        longer_ring=options.longer_ring,
        report=options.report,
    )
    for beside in contributions("verbs", "BESIDE_RUN"):
        if problem := beside.start(options):
            _say(f"frtop: {problem}")
    try:
        if record is None:
            execute(command, environment)
        began, known = time.time_ns(), _boxes(record)
        child = Child(command, environment)
    except OSError as error:
        raise _cannot_run(command[0], error.strerror or "") from error
    return exit_like(child.wait(), lambda: _report_boxes(record, known, began))


def run_agent(options: argparse.Namespace) -> int:
    """`frtop agent`, in the foreground."""
    from frtop_probe.agent.lifecycle import serve  # noqa: PLC0415 - needs pyzmq
    from frtop_probe.agent.options import OptionProblem, Options  # noqa: PLC0415

    try:
        agent_options = Options.from_environment(
            bind=options.bind or "", read_only=options.read_only
        )
    except OptionProblem as problem:
        raise UsageError(str(problem), "`frtop agent --help` lists its options") from problem
    return serve(agent_options)


def _record(named: str | None) -> Path | None:
    """The folder for black boxes, or None.

    A folder on the command line must work; one that a site sets must not keep the job from running.
    """
    wanted = named or os.environ.get(RECORD)
    if not wanted:
        return None
    try:
        return _folder(wanted, "--record" if named else RECORD)
    except FrtopError as error:
        if named:
            raise
        _say(f"frtop: {error}\nfrtop: the job runs without black boxes")
        return None


def _report_boxes(record: Path, known: frozenset[str], began_wall_ns: int) -> None:
    """Waits for boxes that are being written, and prints where new ones are."""
    try:
        wait_for_boxes(candidates(), began_wall_ns, BOX_S)
    except (FolderError, OSError):
        return  # no folder for an agent: no boxes
    if _boxes(record) - known:
        _say(f"frtop: black box in {record}; to look at it: frtop open {shlex.quote(str(record))}")


def _say(text: str) -> None:
    """Prints to stderr; a full disk must neither stop nor end the job."""
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def _boxes(record: Path) -> frozenset[str]:
    """Names of boxes in a folder; none if its file system does not answer."""
    try:
        found = _within(_LIST_S, lambda: [path.name for path in record.glob(f"*{BOX_SUFFIX}")])
    except OSError:
        return frozenset()
    return frozenset(found)


def _folder(wanted: str, named_by: str) -> Path:
    """The absolute path of the folder, which is created if missing, and writable."""
    try:
        return _within(_PROBE_S, lambda: _probe_folder(Path(wanted)))
    except (OSError, RuntimeError) as error:  # RuntimeError: no such home, or a loop of links
        reason = str(error) if isinstance(error, RuntimeError) else error.strerror
        if isinstance(error, FileExistsError):
            reason = "not a folder"
        raise FrtopError(
            f"black boxes cannot be written to {Path(wanted).absolute()}: {reason}",
            f"give a writable folder with {named_by}, or leave that out",
        ) from error


def _probe_folder(wanted: Path) -> Path:
    record = wanted.expanduser().resolve()
    probe = record / f".frtop-{secrets.token_hex(4)}"
    if not record.is_dir():
        record.mkdir(mode=0o700, parents=True)
    os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    probe.unlink()
    return record


def _within(seconds: float, work: Callable[[], Result]) -> Result:
    """Runs `work` on a file system that may hang; returns or raises what it does.

    Raises:
        TimeoutError: it took longer than `seconds`.
    """
    results: list[Result] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001 - raised in the waiting thread
            failures.append(error)

    daemon_thread.start(run, "frtop files").join(seconds)
    for failure in failures:
        raise failure
    if not results:
        raise TimeoutError(errno.ETIMEDOUT, f"no answer within {seconds:.0f} s")
    return results[0]


def _cannot_run(command: str, reason: str = "") -> FrtopError:
    """The error, with the exit status that a shell would give."""
    if reason or os.path.isfile(command):  # noqa: PTH113 - Path's own raises: a name too long
        why = f": {reason}" if reason else ""
        error = FrtopError(f"{command} cannot be executed{why}", f"chmod +x {shlex.quote(command)}")
        error.exit_status = NOT_EXECUTABLE
    else:
        error = FrtopError(f"{command}: no such command", "check its name, or give its path")
        error.exit_status = NOT_FOUND
    return error
