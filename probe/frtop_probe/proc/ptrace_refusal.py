"""Explains why the kernel does not let us read or trace a process, and what to change.

Agents, screens and `frtop doctor` all use these reasons.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Final, Literal

from frtop_probe.proc.process_rights import YAMA, ProcessRights, read_rights, read_yama

TypedWhere = Literal["type", "job script", "pod spec", "docker run", "program"]
ProgramFlaw = Literal["", "unreadable", "capabilities"]
"""Its user may not read the program file, or the file has capabilities of its own (`setcap`)."""


@dataclass(frozen=True, slots=True)
class Change:
    """One line that opens a tier, ready to be typed or written.

    Attributes:
        where: "type" for a command, "job script" for a line in the sbatch or start script,
            "pod spec" for the container's part of the spec (or all of it, from `spec:` on),
            "docker run" for an option (also of podman), "program" for a line in the training
            program.
    """

    where: TypedWhere
    line: str


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Something that closes a tier.

    Attributes:
        code: one stable word.
        text: a sentence.
        changes: any one of them opens the tier.
        of: names of the affected ranks; empty for all, or for the host.
    """

    code: str
    text: str
    changes: tuple[Change, ...] = ()
    of: tuple[str, ...] = ()


CAP_SYS_PTRACE: Final = 19
_INITIAL_PID_NAMESPACE: Final = 0xEFFFFFFC
_INITIAL_USER_NAMESPACE: Final = 0xEFFFFFFD
"""Inodes of the namespaces that the kernel starts with (include/linux/proc_ns.h)."""
_OUTSIDE: Final = Change("type", "frtop    # on the host, outside the container")
_UNCONFINED: Final = (
    Change("docker run", "--security-opt apparmor=unconfined"),
    Change("docker run", "--security-opt label=disable    # SELinux"),
    _OUTSIDE,
)
RESTRICTED: Final = "1"
"""The value of kernel.yama.ptrace_scope with which a process may allow another to trace it."""
_PREPARED: Final = Change(
    "type",
    "frtop run -- COMMAND    # ranks started this way let the agent of their host read them,"
    " unless FRTOP_PTRACER=0",
)
_YAMA_PATH: Final = f"/{YAMA}"
_NAMES: Final = {
    0: "CHOWN", 1: "DAC_OVERRIDE", 2: "DAC_READ_SEARCH", 6: "SETGID", 7: "SETUID",
    12: "NET_ADMIN", 14: "IPC_LOCK", 19: "SYS_PTRACE", 21: "SYS_ADMIN", 23: "SYS_NICE",
    24: "SYS_RESOURCE",
}  # fmt: skip
"""Capabilities that containers of training jobs often have; others are only counted."""
_WORDS: Final = {
    "docker run": "start the container with `{}`",
    "pod spec": "add to the pod's spec `{}`",
    "program": "add to the program `{}`",
    "job script": "add to the job script `{}`",
}
_DEBUGGER: Final = (
    Change(
        "type",
        "kubectl debug -it POD --image=IMAGE --target=CONTAINER --profile=general -- sh"
        "    # its container stays in the pod's list until the pod ends",
    ),
)
"""A container beside the ranks, with SYS_PTRACE."""


def explain(pid: int, root: Path = Path("/"), our_uid: int | None = None) -> str:
    """The likeliest cause, and what to do about it, in one sentence."""
    ours = read_rights("self", root)
    ours = replace(ours, uid=os.geteuid() if our_uid is None else our_uid)
    theirs = replace(read_rights(pid, root), pid=pid)
    found = why_refused(ours, theirs, read_yama(root))
    return f"{found.text}: {' or '.join(map(_step, found.changes[:2]))}; see `frtop doctor`"


def _step(change: Change) -> str:
    return _WORDS.get(change.where, "`{}`").format(change.line)


def add_capability(name: str) -> tuple[Change, ...]:
    """The changes that give a container a capability, or give frtop inside it all capabilities.

    What `kubectl debug` adds to a pod stays there, so that change comes last and says so.
    """
    return (
        Change("docker run", f"--cap-add={name}"),
        Change("pod spec", f"securityContext: {{capabilities: {{add: [{name}]}}}}"),
        Change("type", "docker exec --privileged -it CONTAINER frtop    # without a restart"),
        *(_DEBUGGER if name == "SYS_PTRACE" else ()),
    )


def without_seccomp() -> tuple[Change, ...]:
    """The changes that let a container make all system calls."""
    return (
        Change("docker run", "--security-opt seccomp=unconfined"),
        Change("pod spec", "securityContext: {seccompProfile: {type: Unconfined}}"),
    )


def may_trace_all(rights: ProcessRights) -> bool:
    """Whether a process has CAP_SYS_PTRACE in its own user namespace."""
    return bool(rights.effective >> CAP_SYS_PTRACE & 1)


def is_contained(rights: ProcessRights) -> bool:
    """Whether a process is outside the host's initial pid namespace."""
    return rights.namespaces.get("pid", _INITIAL_PID_NAMESPACE) != _INITIAL_PID_NAMESPACE


def is_in_other_pids(ours: ProcessRights, theirs: ProcessRights | None) -> bool:
    """Whether a process is known to be in a different pid namespace from ours."""
    spaces = [one.namespaces.get("pid") for one in (ours, theirs) if one is not None]
    return len(spaces) == 2 and None not in spaces and spaces[0] != spaces[1]


def why_refused(
    ours: ProcessRights,
    theirs: ProcessRights,
    yama: str = "",
    program: tuple[str, ProgramFlaw] = ("", ""),
) -> Obstacle:
    """Returns the first obstacle, in the order in which the kernel checks.

    Args:
        ours: rights of the process that was refused.
        theirs: rights of the process that it wanted to read.
        yama: kernel.yama.ptrace_scope; "" without Yama.
        program: the other process's program, and what keeps it from being dumpable.
    """
    pid = theirs.pid
    other_space = _other_user_namespace(ours, theirs)
    may = may_trace_all(ours) and not other_space
    if theirs.uid is not None and theirs.uid != ours.uid and not may:
        return other_user(ours, theirs)
    if None not in (theirs.gid, ours.gid) and theirs.gid != ours.gid and not may:
        return Obstacle(
            "group",
            f"process {pid} runs with group {theirs.gid}, frtop with group {ours.gid}",
            (Change("type", f"sudo -g '#{theirs.gid}' frtop"),),
        )
    if theirs.uid == ours.uid and theirs.owner not in (None, ours.uid) and not may:
        return _not_dumpable(pid, *program)
    if other_space:
        return Obstacle(
            "user namespace",
            f"process {pid} is in another user namespace (a rootless container, or frtop is in"
            " one), in which frtop has no rights",
            (Change("type", "frtop    # outside the container, as the user who started it"),),
        )
    more = theirs.permitted & ~ours.permitted
    if more and not may:
        return Obstacle(
            "capabilities",
            f"process {pid} has capabilities that frtop lacks ({_names(more)}): only"
            " CAP_SYS_PTRACE lets frtop trace it",
            add_capability("SYS_PTRACE"),
        )
    return _module(ours, theirs, yama, may=may)


def as_user(ours: ProcessRights, user: str, uid: int | None) -> Change:
    """Returns the command that looks at a user's ranks; if run as root, frtop becomes that user."""
    if ours.uid == 0 and uid:
        return Change("type", f"frtop --user {user}")
    return Change("type", f"sudo -u '#{uid}' frtop")


def other_user(ours: ProcessRights, theirs: ProcessRights) -> Obstacle:
    """Returns the obstacle when the process is another user's: only that user may read it."""
    change = as_user(ours, str(theirs.uid), theirs.uid)
    if _other_user_namespace(ours, theirs):  # its uid has no name here
        change = Change("type", f"nsenter -t {theirs.pid} -U -m -p -n frtop    # or `podman exec`")
    return Obstacle(
        "user",
        f"process {theirs.pid} belongs to uid {theirs.uid}, frtop runs as uid {ours.uid}, and reads"
        " only processes of its own user",
        (change,),
    )


def _not_dumpable(pid: int, program: str, flaw: ProgramFlaw) -> Obstacle:
    text = f"process {pid} cannot be traced (dumpable=0: "
    if program and flaw == "capabilities":
        return Obstacle(
            "dumpable",
            f"{text}its program {program} has capabilities of its own)",
            (Change("type", f"sudo setcap -r {quote(program)}"),),
        )
    if program and flaw:
        return Obstacle(
            "dumpable",
            f"{text}its user may not read its program {program})",
            (Change("type", f"sudo chmod a+r {quote(program)}"),),
        )
    return Obstacle(
        "dumpable",
        f"{text}it changed its user or privileges, or disabled tracing)",
        (Change("program", "import ctypes; ctypes.CDLL(None).prctl(4, 1)  # PR_SET_DUMPABLE"),),
    )


def _module(ours: ProcessRights, theirs: ProcessRights, yama: str, *, may: bool) -> Obstacle:
    """Returns Yama's refusal, else what remains: seccomp or another security module."""
    pid = theirs.pid
    if yama == "3":
        return Obstacle(
            "yama",
            f"{_YAMA_PATH} is 3: nobody may trace until this host is rebooted with another value",
            (Change("type", _SET_YAMA_AT_BOOT),),
        )
    if yama in ("1", "2") and not may:
        restricted = yama == RESTRICTED
        who = "parents" if restricted else "administrators"
        named = ", and whom it names" if restricted else ""
        return Obstacle(
            "yama",
            f"{_YAMA_PATH} is {yama}: only {who} may trace a process{named}",
            (
                Change("type", f"sudo sysctl kernel.yama.ptrace_scope=0{_where(ours)}"),
                *(
                    add_capability("SYS_PTRACE")
                    if is_contained(ours) or is_contained(theirs)
                    else _with_capability(ours)
                ),
                *([_PREPARED] if restricted else []),
            ),
        )
    if not may:
        return Obstacle(
            "no capability",
            "the container denies tracing (no CAP_SYS_PTRACE)",
            (*add_capability("SYS_PTRACE"), _OUTSIDE),
        )
    refused = f"the kernel refused to trace process {pid}, although we have CAP_SYS_PTRACE"
    modules = "a security module (SELinux, AppArmor)"
    if ours.seccomp == 0:
        text = f"{refused}: {modules} of this container or host denies it"
        return Obstacle("module", text, _UNCONFINED)
    return Obstacle(
        "module",
        f"{refused}: a seccomp profile or {modules} of this container or host denies"
        " process_vm_readv",
        (*without_seccomp(), *_UNCONFINED),
    )


def _with_capability(ours: ProcessRights) -> tuple[Change, ...]:
    """Runs frtop as this user with CAP_SYS_PTRACE; on a host, outside any container."""
    if None in (ours.uid, ours.gid):
        return ()
    return (
        Change(
            "type",
            f'sudo env HOME="$HOME" PATH="$PATH" setpriv --reuid={ours.uid} --regid={ours.gid}'
            " --init-groups --inh-caps=+sys_ptrace --ambient-caps=+sys_ptrace frtop"
            "    # end this user's agent first, if one runs",
        ),
    )


def _where(ours: ProcessRights) -> str:
    """Returns where to type a command that changes the host."""
    return "    # on the host, outside the container" if is_contained(ours) else ""


_SET_YAMA_AT_BOOT: Final = (
    "echo kernel.yama.ptrace_scope=0 | sudo tee /etc/sysctl.d/99-zz-frtop.conf    # then reboot"
)


def _other_user_namespace(ours: ProcessRights, theirs: ProcessRights) -> bool:
    """Whether their user namespace differs from ours, so that we lack rights in it."""
    mine, other = ours.namespaces.get("user"), theirs.namespaces.get("user")
    if mine is None:
        return False
    if other is not None:
        return mine != other
    return mine != _INITIAL_USER_NAMESPACE  # processes outside ours are not readable


def _names(mask: int) -> str:
    bits = [bit for bit in range(64) if mask >> bit & 1]
    named = [_NAMES[bit] for bit in bits if bit in _NAMES]
    rest = len(bits) - len(named)
    shown = ", ".join(named[:3])
    more = len(named) - 3 + rest if len(named) > 3 else rest
    return f"{shown} and {more} more" if shown and more else shown or f"{more} of them"
