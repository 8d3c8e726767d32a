"""frtop looks as a user: it first gives up root for good."""

# The finder runs this as root (`python -I -S -c THIS USER PROGRAM`): it becomes the user, then runs
# the program. The source goes between single quotes, so it must contain none. Old Pythons parse it,
# too, before the finder rejects them. It never opens, runs or imports a file of the user.
import ctypes
import fcntl
import json
import os
import pwd
import resource
import struct
import sys
import termios
from typing import NoReturn, Tuple  # noqa: UP035 - Python 3.6 reads this

SETPCAP, SYS_PTRACE = 8, 19
CAPABILITIES_3 = 0x20080522
PDEATHSIG, SET_DUMPABLE, SET_KEEPCAPS, GET_DUMPABLE = 1, 4, 8, 3
BOUNDING_READ, BOUNDING_DROP, NO_NEW_PRIVS, AMBIENT = 23, 24, 38, 47
AMBIENT_RAISE, AMBIENT_CLEAR_ALL = 2, 4
YAMA = "/proc/sys/kernel/yama/ptrace_scope"
KEYCTL = {"x86_64": 250, "aarch64": 219, "ppc64le": 271}
JOIN_SESSION_KEYRING = 1
PASSED = ("SLURM_PROCID", "FRTOP_UNPREPARED", "FRTOP_READ_ONLY")
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
libc = ctypes.CDLL(None, use_errno=True)


def refuse(text: str, advice: str) -> NoReturn:
    said = json.dumps({"text": text, "next": advice})
    os.write(1, f"frtop-error {said}\n".encode())
    sys.exit(1)


def account(name: str) -> Tuple[int, int]:  # noqa: UP006 - as above
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        number = int(name) if name.isdecimal() else -1
        if not 0 <= number < 2**32 - 1:
            refuse(f"there is no user {name} on {os.uname().nodename}", "check the name")
        try:
            found = pwd.getpwuid(number)
        except KeyError:  # a container may have no entry
            return number, number
    return found.pw_uid, found.pw_gid


def control(*words: int) -> int:
    result = libc.prctl(*map(ctypes.c_ulong, (*words, *(0,) * (5 - len(words)))))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(result)


def status() -> "dict[str, list[str]]":
    with open("/proc/self/status", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
        parts = (line.partition(":") for line in file)
        return {name: words.split() for name, _, words in parts}


def wants_ptrace() -> bool:
    # With 1 or 2 a process of the user cannot read the ranks; with 3 nobody can.
    try:
        with open(YAMA, encoding="ascii") as file:  # noqa: PTH123 - as above
            scope = file.read().strip()
    except (OSError, ValueError):
        return False
    return scope in ("1", "2") and bool(int(status()["CapPrm"][0], 16) >> SYS_PTRACE & 1)


def become(uid: int, gid: int) -> None:
    parent = os.getppid()
    # A process may not trace another with more capabilities: one of them guards this process and
    # its children, even between exec, which makes a process dumpable again, and the first line
    # of a program. SETPCAP allows nothing else: no others are left to pass on.
    stays = 1 << SETPCAP | (1 << SYS_PTRACE if wants_ptrace() else 0)
    for number in range(64):
        try:
            is_held = control(BOUNDING_READ, number)
        except OSError:
            break
        if is_held and not stays >> number & 1:
            control(BOUNDING_DROP, number)
    control(SET_KEEPCAPS, 1)
    # Drop all groups: membership of some (docker, disk) is as good as root, and reading
    # processes of the user needs none.
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    header = struct.pack("=Ii", CAPABILITIES_3, 0)
    sets = struct.pack("=6I", stays, stays, stays, 0, 0, 0)
    if libc.capset(header, sets) != 0:
        raise OSError(ctypes.get_errno(), "capset")
    if os.uname().machine in KEYCTL:  # a process with the keyring of root may read its keys
        libc.syscall(KEYCTL[os.uname().machine], JOIN_SESSION_KEYRING, None)
    control(SET_KEEPCAPS, 0)
    control(AMBIENT, AMBIENT_CLEAR_ALL)
    for number in (SETPCAP, SYS_PTRACE):  # programs that read inherit these
        if stays >> number & 1:
            control(AMBIENT, AMBIENT_RAISE, number)
    control(NO_NEW_PRIVS, 1)
    control(SET_DUMPABLE, 0)
    control(PDEATHSIG, 9)  # changing the user has cleared it
    if os.getppid() != parent:  # the parent ended meanwhile
        os._exit(1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    verify(uid, gid, stays)


def verify(uid: int, gid: int, stays: int) -> None:
    found = status()
    sets = [int(found[name][0], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")]
    if (
        found["Uid"] != [str(uid)] * 4
        or found["Gid"] != [str(gid)] * 4
        or found["Groups"]
        or sets != [stays] * 5
        or found["NoNewPrivs"] != ["1"]
        or control(GET_DUMPABLE) != 0
    ):
        raise OSError(1, "the process did not get the rights that it asked for")


def leave_terminal() -> None:
    # A shell of root would read what this process types into its terminal (TIOCSTI).
    if os.getpgrp() != os.getpid():
        os.setsid()
    elif os.getsid(0) != os.getpid():
        try:
            terminal = os.open("/dev/tty", os.O_RDWR)
        except OSError:  # there is none
            return
        fcntl.ioctl(terminal, termios.TIOCNOTTY)
        os.close(terminal)


def main() -> None:
    name, program = sys.argv[1:3]
    if os.geteuid() != 0:
        me = os.uname().nodename
        refuse(
            f"only root on {me} can look there as user {name}",
            f"log in as root or as {name}: --ssh root@{me} --user {name}, or --ssh {name}@{me}",
        )
    uid, gid = account(name)
    if uid == 0:
        refuse(f"--user {name} is root itself", "leave out --user: root sees the jobs of root")
    os.closerange(3, 1 << 20)
    os.umask(0o077)
    os.chdir("/")
    leave_terminal()
    passed = {name: os.environ[name] for name in PASSED if name in os.environ}
    os.environ.clear()
    os.environ.update(passed, HOME="/", PATH=PATH, LC_ALL="C", FRTOP_AS_USER=name)
    try:
        become(uid, gid)
    except OSError as error:
        refuse(
            f"root could not be given up for user {name}: {error.strerror or error}",
            "this takes CAP_SETUID, CAP_SETGID and CAP_SETPCAP; without them, log in as that user",
        )
    if not (os.access(sys.executable, os.X_OK) and os.access(os.__file__, os.R_OK)):
        os.write(1, b"frtop-closed\n")
        sys.exit(1)
    del sys.argv[1:]
    exec(compile(program, "frtop", "exec"), {"__name__": "__main__"})  # noqa: S102 - of the finder


if __name__ == "__main__":
    main()
