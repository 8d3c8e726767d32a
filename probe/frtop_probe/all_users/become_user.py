"""Gives up root, for good, and becomes a program. Run as `python -I -S FILE UID KEEP COMMAND...`.

Standard library only, one file: it runs before anything else, with root's rights. With KEEP `1`
one capability stays, CAP_SYS_PTRACE: where Yama keeps a user from tracing their own processes, the
same user's process could not read them either. See docs/all-users.md for what that costs.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import struct
import sys
from collections.abc import Callable
from pathlib import Path

SYS_PTRACE = 19
VERSION_3 = 0x20080522
SET_KEEPCAPS, SET_NO_NEW_PRIVS, CAP_AMBIENT, AMBIENT_RAISE = 8, 38, 47, 2
YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")


def yama_forbids() -> bool:
    """Whether a process may not trace others of its own user."""
    try:
        return int(YAMA.read_text()) > 0
    except (OSError, ValueError):
        return False


def become(uid: int, *, keep_ptrace: bool) -> None:
    """Changes to a user, with the groups that they have.

    Raises:
        OSError: the kernel refuses; nothing else must be run then.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        entry = pwd.getpwuid(uid)
        group, home = entry.pw_gid, entry.pw_dir
        os.initgroups(entry.pw_name, group)
    except KeyError:  # a uid of a container
        group, home = uid, "/"
        os.setgroups([group])
    if keep_ptrace:
        _call(libc.prctl, SET_KEEPCAPS, 1, 0, 0, 0)
    os.setresgid(group, group, group)
    os.setresuid(uid, uid, uid)
    if keep_ptrace and uid:
        bits = 1 << SYS_PTRACE
        header = struct.pack("=Ii", VERSION_3, 0)
        _call(libc.capset, header, struct.pack("=6I", bits, bits, bits, 0, 0, 0))
        _call(libc.prctl, CAP_AMBIENT, AMBIENT_RAISE, SYS_PTRACE, 0, 0)
    _call(libc.prctl, SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if os.getresuid() != (uid, uid, uid) or os.getresgid() != (group, group, group):
        raise OSError(1, "the user was not changed")
    os.environ["HOME"] = home


def _call(function: Callable[..., int], *arguments: object) -> None:
    if function(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def main() -> None:
    uid, keep, command = int(sys.argv[1]), sys.argv[2] == "1", sys.argv[3:]
    os.closerange(3, 1 << 20)
    os.umask(0o077)
    if os.getsid(0) != os.getpid():
        os.setsid()
    os.chdir("/")
    try:
        become(uid, keep_ptrace=keep)
        os.execvp(command[0], command)  # noqa: S606 - given by the agent
    except OSError as error:
        sys.exit(f"{command[0]} cannot be run as user {uid}: {error.strerror}")


if __name__ == "__main__":
    main()
