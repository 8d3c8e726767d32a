"""Why a pipe to a host failed, in plain words with the next step. Pure.

What ssh, kubectl and srun write is English and stable; it is recognised by the patterns here,
and quoted where none fits.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from frtop_tui.errors import FrtopError, Missing, RemoteTrouble, UnknownHost, Unreachable, WrongKey

QUICK_S: Final = 1.0
"""The first pause before a host is tried again; it doubles."""
PERSON_S: Final = 15.0
"""The same where a person has to do something first: a log-in that is refused too often may lock
the account."""
MAX_PAUSE_S: Final = 60.0
MAX_PERSON_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Ending:
    """How a process that should give a shell on `host` ended.

    Attributes:
        host: as the operator named it.
        command: that was run.
        status: its exit status, negative for a signal; None: we ended it.
        errors: its last lines on stderr.
        noise: its last lines on stdout that were none of ours.
        why: why we ended it, "" if it ended by itself.
        started: whether an agent ran there already.
        through: the host on the way, "" without or where its name is not known.
        private: the command has arguments of the operator's own, which may be secrets: what is
            said of a host is in captures, too.
    """

    host: str
    command: tuple[str, ...]
    status: int | None
    errors: Sequence[str] = ()
    noise: Sequence[str] = ()
    why: str = ""
    started: bool = False
    through: str = ""
    private: bool = False

    @property
    def shown(self) -> str:
        """The command as one would type it."""
        if self.private:
            return f"{shlex.quote(self.command[0])} ... as in --via or FRTOP_SSH"
        return shlex.join(self.command)

    @property
    def last(self) -> str:
        """The line that says most, "" if nothing was said."""
        lines = [line for line in (*self.noise, *self.errors) if line]
        return lines[-1] if lines else ""


@dataclass(frozen=True, slots=True)
class Failure:
    """What to tell, and whether a person has to do something before it can go better."""

    error: FrtopError
    needs_person: bool = False

    def pause_s(self, failures: int) -> float:
        """How long to wait before the host is tried again, after so many failures in a row."""
        first, most = (PERSON_S, MAX_PERSON_S) if self.needs_person else (QUICK_S, MAX_PAUSE_S)
        return min(first * 2.0 ** min(failures - 1, 12), most)


def describe(ending: Ending) -> Failure:
    """The failure that an ending means."""
    said = "\n".join((*ending.noise, *ending.errors))
    if ending.through and _ON_THE_WAY in said and _AT_ITS_END not in said:
        failure = describe(replace(ending, host=ending.through, through=""))
        text = f"on the way to {ending.host}: {failure.error.text}"
        return replace(failure, error=type(failure.error)(text, failure.error.next_step))
    for pattern, build in _KNOWN:
        if found := pattern.search(said):
            return build(ending, found)
    if ending.started:
        return Failure(_broke_off(ending))
    return Failure(_unknown(ending))


def cannot_start(host: str, command: tuple[str, ...], error: OSError) -> Failure:
    """The program itself could not be started here."""
    program = command[0]
    if isinstance(error, FileNotFoundError):
        return Failure(
            Missing(
                f"{host}: {program} is not installed here",
                f"install {program}, or name another command that gives a shell there: --via",
            ),
            needs_person=True,
        )
    why = error.strerror or str(error)
    return Failure(
        Unreachable(f"{host}: {program} could not be started: {why}", "close some programs here")
    )


def _broke_off(ending: Ending) -> FrtopError:
    why = ending.why or ending.last or _status(ending)
    return Unreachable(
        f"the connection to {ending.host} broke off: {why}",
        "frtop shows the last known state and tries again",
    )


def _unknown(ending: Ending) -> FrtopError:
    text = f"{ending.host}: no shell there: {ending.why or _status(ending)}"
    if ending.last:
        text += f" ({ending.last})"
    return Unreachable(text, f"see what this says: {ending.shown}")


def _status(ending: Ending) -> str:
    status = ending.status
    program = ending.command[0]
    if status is None:
        return f"{program} was ended"
    return f"{program} ended by signal {-status}" if status < 0 else f"{program} ended: {status}"


def _host_key_changed(ending: Ending, _: re.Match[str]) -> Failure:
    host = ending.host
    offending = re.search(r"Offending \S+ key in (\S+)", "\n".join(ending.errors))
    there = f" ({offending[1]})" if offending else ""
    return Failure(
        WrongKey(
            f"{host} has another host key than the one that ssh knows{there}",
            "somebody may be in between; if the host was installed anew:"
            f" ssh-keygen -R {shlex.quote(host)}, then `ssh {shlex.quote(host)}` once",
        ),
        needs_person=True,
    )


def _host_key_unknown(ending: Ending, _: re.Match[str]) -> Failure:
    return Failure(
        WrongKey(
            f"ssh does not know the host key of {ending.host}",
            f"`ssh {shlex.quote(ending.host)}` once, compare the key that it shows, and answer yes",
        ),
        needs_person=True,
    )


def _unresolved(_: Ending, found: re.Match[str]) -> Failure:
    return Failure(
        UnknownHost(
            f"host name {found[1]!r} does not resolve",
            "check the name; ~/.ssh/config may give it an address (HostName)",
        )
    )


def _refused(ending: Ending, _: re.Match[str]) -> Failure:
    return Failure(
        Unreachable(
            f"{ending.host}: nobody accepts ssh connections there (connection refused)",
            "is sshd running there, and is the port right (Port in ~/.ssh/config)?",
        )
    )


def _no_answer(ending: Ending, found: re.Match[str]) -> Failure:
    if ending.started:
        return Failure(_broke_off(ending))
    return Failure(
        Unreachable(
            f"{ending.host} does not answer ({found[0].lower()})",
            "is it up, and reachable from here? A host on the way: ProxyJump in ~/.ssh/config",
        )
    )


def _closed(ending: Ending, _: re.Match[str]) -> Failure:
    if ending.started:
        return Failure(_broke_off(ending))
    return Failure(
        Unreachable(
            f"{ending.host}: the connection was closed before anybody logged in",
            "frtop tries again; too many at once (MaxStartups of sshd), or a rule forbids us",
        )
    )


def _permission(ending: Ending, found: re.Match[str]) -> Failure:
    host, methods = ending.host, found[1]
    login = f"ssh {shlex.quote(host)}"
    if "password" in methods or "keyboard-interactive" in methods:
        text = f"{host} asks for a password or a code, and frtop never asks for one"
        step = (
            f"give it a key (ssh-copy-id {shlex.quote(host)}; ssh-add), or open one connection that"
            f" frtop may share: {login} with ControlMaster and ControlPath in ~/.ssh/config"
        )
    else:
        text = f"{host} accepts none of the keys of this user ({methods})"
        step = f"`{login}` shows why; a key with a passphrase has to be in ssh-agent: ssh-add"
    return Failure(WrongKey(text, step), needs_person=True)


def _too_many_keys(ending: Ending, _: re.Match[str]) -> Failure:
    return Failure(
        WrongKey(
            f"{ending.host} gave up after too many keys of ssh-agent",
            "name the right one in ~/.ssh/config: IdentityFile and IdentitiesOnly yes",
        ),
        needs_person=True,
    )


def _settings(_: Ending, found: re.Match[str]) -> Failure:
    return Failure(
        Unreachable(f"ssh refuses its settings: {found[0]}", "correct that file"),
        needs_person=True,
    )


def _no_forwarding(ending: Ending, _: re.Match[str]) -> Failure:
    return Failure(
        WrongKey(
            f"{ending.through or 'the host on the way'} lets nobody through to {ending.host}",
            "its sshd forbids it (AllowTcpForwarding, PermitOpen): run frtop there, or ask for it",
        ),
        needs_person=True,
    )


def _no_login(ending: Ending, found: re.Match[str]) -> Failure:
    return Failure(
        RemoteTrouble(
            f"{ending.host} lets this user in and gives no shell: {found[0]}",
            "ask who runs the cluster; often log-in is open only while a job of yours runs there",
        ),
        needs_person=True,
    )


def _no_shell(ending: Ending, found: re.Match[str]) -> Failure:
    return Failure(
        RemoteTrouble(
            f"{ending.host}: there is no `sh` ({found[0]})",
            "frtop needs a shell and a Python there; name another container, or the host itself",
        ),
        needs_person=True,
    )


def _no_container(ending: Ending, found: re.Match[str]) -> Failure:
    programs = (word.rpartition("/")[2] for word in ending.command)
    engine = next((name for name in programs if name in _ENGINES), "")
    listed = f"{engine} ps" if engine else "kubectl get pods"
    return Failure(RemoteTrouble(f"{ending.host}: {found[0]}", f"`{listed}` shows what runs"))


def _forbidden(ending: Ending, found: re.Match[str]) -> Failure:
    return Failure(
        WrongKey(
            f"{ending.host}: {found[0]}",
            "the role needs `create` on `pods/exec`, and `get`, `list` on `pods`",
        ),
        needs_person=True,
    )


def _kube_login(ending: Ending, found: re.Match[str]) -> Failure:
    return Failure(
        WrongKey(f"{ending.host}: kubectl: {found[0]}", "log in to the cluster, as for kubectl"),
        needs_person=True,
    )


_ON_THE_WAY: Final = "UNKNOWN port 65535"
"""In what ssh writes of a connection that a jump host, or a ProxyCommand, should have made."""
_AT_ITS_END: Final = "stdio forwarding failed"
"""Beside it, where the jump host let us in and could not reach the host itself."""
_Build = Callable[[Ending, "re.Match[str]"], Failure]
_NO_ANSWER: Final = (
    r"Connection timed out|Operation timed out|No route to host|Network is unreachable"
    r"|Timeout, server \S+ not responding|Connection to \S+ port \d+ timed out"
)
_BAD_SETTINGS: Final = (
    r"Bad configuration option[^\n]*|Bad owner or permissions on [^\n]*"
    r"|terminating, \d+ bad configuration[^\n]*"
)
_NOT_LET_IN: Final = (
    r"account is currently not available|Access denied[^\n]*|account has expired[^\n]*"
    r"|no active jobs on this node"
)
_WITHOUT_SHELL: Final = (
    r"executable file not found[^\n]*|exec: \"?sh\"?: [^\n]*|exec sh: no such file[^\n]*"
)
_WITHOUT_CONTAINER: Final = (
    r"pods \"[^\"]*\" not found|container not found[^\n]*|No such container[^\n]*"
    r"|container \S+ is not running[^\n]*|can only create exec sessions on running[^\n]*"
)
_ENGINES: Final = frozenset({"docker", "podman", "nerdctl"})
"""They run containers on one host, and list them with `ps`."""
_WITHOUT_LOGIN: Final = (
    r"You must be logged in[^\n]*|Unable to connect to the server[^\n]*|Unauthorized"
)
_CLOSED: Final = (
    r"kex_exchange_identification[^\n]*|Connection (?:closed|reset) by [^\n]*"
    r"|Connection to \S+ closed by remote host"
)
_KNOWN: Final[tuple[tuple[re.Pattern[str], _Build], ...]] = tuple(
    (re.compile(pattern, re.IGNORECASE), build)
    for pattern, build in (
        (r"HOST IDENTIFICATION .*CHANGED", _host_key_changed),
        (r"Host key verification failed|No \S+ host key is known", _host_key_unknown),
        (r"Could not resolve hostname ([^\s:]+)", _unresolved),
        (_BAD_SETTINGS, _settings),
        (r"Too many authentication failures", _too_many_keys),
        (r"Permission denied \(([^)]*)\)", _permission),
        (r"administratively prohibited", _no_forwarding),
        (r"Connection refused", _refused),
        (_NO_ANSWER, _no_answer),
        (_NOT_LET_IN, _no_login),
        (_WITHOUT_SHELL, _no_shell),
        (_WITHOUT_CONTAINER, _no_container),
        (r"is forbidden: [^\n]*", _forbidden),
        (_WITHOUT_LOGIN, _kube_login),
        (_CLOSED, _closed),
    )
)
"""In the order in which they are tried."""
