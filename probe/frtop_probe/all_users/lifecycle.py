"""Starts and ends the agent of all users: one per host, root's, with a key of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from frtop_probe import keys
from frtop_probe.agent.announcement import own_version
from frtop_probe.agent.options import Options
from frtop_probe.agent.public_card import PublicCard
from frtop_probe.agent.resources import drop_inherited, limit_resources
from frtop_probe.agent.sockets import PortProblem, open_sockets
from frtop_probe.all_users import admitted, card_file
from frtop_probe.all_users.audit import AuditLog
from frtop_probe.all_users.card_file import InUse
from frtop_probe.all_users.host_admission import DEFAULT_FOLDER, HostAdmission
from frtop_probe.all_users.service import AllUsersService
from frtop_probe.all_users.syslog_socket import SyslogSocket
from frtop_probe.keys import KeyPair, KeyProblem

AUDIT: Final = Path("/var/log/frtop/audit.jsonl")


def serve(
    options: Options, folder: Path = DEFAULT_FOLDER, audit: Path = AUDIT, syslog: Path | None = None
) -> int:
    """Runs the agent of all users until a signal; returns the exit status.

    For a process of its own.

    Args:
        options: port, address, whether anybody may act.
        folder: with the host's key and the list.
        audit: the file of the audit.
        syslog: the socket of syslog or the journal, if each line goes there, too.
    """
    if os.geteuid() != 0:
        return _failed(
            "only root can serve the jobs of all users",
            "without --all-users it serves your own; see docs/all-users.md",
        )
    try:
        folder, audit = folder.absolute(), audit.absolute()
        _make_private(folder)
        _make_private(audit.parent)
        os.environ[keys.FILE_VARIABLE] = str(folder / "key")
        pair = keys.load(create=True)
        drop_inherited()
        limit_resources()
        lock = card_file.take_lock()
        log = AuditLog(audit, also=SyslogSocket(syslog) if syslog is not None else None)
        log.check()  # fails now, if it does
        try:
            asyncio.run(_run(options, pair, folder / admitted.FILE, log))
        finally:
            card_file.remove()
            os.close(lock)
    except InUse:
        return _failed("an agent of all users runs on this host already", "nothing to do")
    except (KeyProblem, PortProblem) as problem:
        return _failed(problem.text, problem.next)
    except OSError as error:
        if syslog is not None and error.filename == str(syslog):
            return _failed(
                f"{syslog}: {error.strerror}", "start syslog, or leave out --audit syslog"
            )
        return _failed(f"{error.filename or folder}: {error.strerror}", "make it root's, mode 0700")
    return 0


async def _run(options: Options, pair: KeyPair, file: Path, audit: AuditLog) -> None:
    admission = HostAdmission(pair, file, read_only=options.read_only)
    sockets = open_sockets(options, pair, admission)
    try:
        leaving = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, leaving.set)
        service = AllUsersService(sockets, admission, audit, own_version())
        card_file.write(PublicCard(os.getpid(), sockets.address, sockets.pub, pair.shown))
        await admission.refresh()
        with suppress(OSError):
            sys.stdout.write(
                f"frtop agent of all users on {service.host},"
                f" ports {sockets.pub} and {sockets.ask}\n"
                f"  key    {pair.shown}\n  list   {file}\n  audit  {audit.shown}\n"
            )
            sys.stdout.flush()
        await service.run(leaving)
    finally:
        sockets.close()


def _make_private(folder: Path) -> None:
    """Makes a folder of root's, mode 0700, unless it is there.

    Raises:
        OSError: it cannot be made, or others could write to it.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.stat()
    if found.st_uid != 0 or found.st_mode & 0o022:
        raise PermissionError(1, "other users could write to it", str(folder))


def _failed(text: str, next_step: str) -> int:
    sys.stderr.write(f"frtop agent: {text}\n{next_step}\n")
    return 1
