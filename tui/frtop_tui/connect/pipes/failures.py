"""Why a pipe to a host failed, in plain words with the next step. Pure.

What ssh, kubectl and srun write is English and stable; the patterns here recognise it, and if none
fits, it is quoted.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from frtop_tui.errors import FrtopError, Missing, RemoteTrouble, UnknownHost, Unreachable, WrongKey

QUICK_S: Final = 1.0
"""The first pause before we try a host again; it doubles."""
PERSON_S: Final = 15.0
"""The same if a person has to act first: too many refused log-ins may lock the account."""
MAX_PAUSE_S: Final = 60.0
MAX_PERSON_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Ending:
    """How a process that should give a shell on `host` ended.

    Attributes:
        host: as the operator named it.
        command: the command that ran.
        status: its exit status, negative for a signal; None: we ended it.
        errors: its last lines on stderr.
        noise: its last lines on stdout that were not ours.
        why: why we ended it, "" if it ended by itself.
        started: whether an agent ran there already.
        through: the host on the way, "" if there is none or its name is unknown.
        private: the command has the operator's own arguments, which may be secrets: texts about a
        host are in captures, too.
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
        """The most informative line, "" if there is none."""
        lines = [line for line in (*self.noise, *self.errors) if line]
        return lines[-1] if lines else ""


@dataclass(frozen=True, slots=True)
class Failure:
    """The error to show, and whether a person has to act before a retry can succeed."""

    error: FrtopError
    needs_person: bool = False

    def pause_s(self, failures: int) -> float:
        """Seconds to wait before the host is tried again, after this many `failures` in a row."""
        first, most = (PERSON_S, MAX_PERSON_S) if self.needs_person else (QUICK_S, MAX_PAUSE_S)
        return min(first * 2.0 ** min(failures - 1, 12), most)


def describe(ending: Ending) -> Failure:
    said = "\n".join((*ending.noise, *ending.errors))
    if ending.through and _ON_THE_WAY in said and _AT_ITS_END not in said:
        failure = describe(replace(ending, host=ending.through, through=""))
        text = f"on the way to {ending.host}: {failure.error.text}"
        return replace(failure, error=type(failure.error)(text, failure.error.next_step))
    for one in _KNOWN:
        if (found := re.search(one.pattern, said, re.IGNORECASE)) and not (
            ending.started and one.may_break_off
        ):
            return one.failure(ending, found)
    return Failure(_broke_off(ending) if ending.started else _unknown(ending))


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


@dataclass(frozen=True, slots=True)
class _Known:
    """How frtop words something that ssh, kubectl or srun says.

    `text` and `step` may contain `{host}`, `{typed}` (the same for a shell), `{through}`, `{said}`
    and `{part}` (what the pattern found), `{keys}` (ssh's file) and `{listing}` (of containers).
    """

    pattern: str
    error: type[FrtopError]
    text: str
    step: str
    needs_person: bool = True
    may_break_off: bool = False
    """It may also end a connection that was up."""

    def failure(self, ending: Ending, found: re.Match[str]) -> Failure:
        offending = re.search(r"Offending \S+ key in (\S+)", "\n".join(ending.errors))
        programs = (word.rpartition("/")[2] for word in ending.command)
        engine = next((name for name in programs if name in _ENGINES), "")
        words = {
            "host": ending.host,
            "typed": shlex.quote(ending.host),
            "through": ending.through or "the host on the way",
            "said": found[0],
            "part": found[1] if found.re.groups else "",
            "keys": f" ({offending[1]})" if offending else "",
            "listing": f"{engine} ps" if engine else "kubectl get pods",
        }
        error = self.error(self.text.format(**words), self.step.format(**words))
        return Failure(error, self.needs_person)


_ON_THE_WAY: Final = "UNKNOWN port 65535"
"""ssh writes this about a connection that a jump host, or a ProxyCommand, should have made."""
_AT_ITS_END: Final = "stdio forwarding failed"
"""ssh adds this if the jump host let us in but could not reach the host itself."""
_ENGINES: Final = frozenset({"docker", "podman", "nerdctl"})
"""These run containers on one host, and list them with `ps`."""
_KNOWN: Final = (
    _Known(
        r"HOST IDENTIFICATION .*CHANGED",
        WrongKey,
        "{host} has a different host key from the one that ssh knows{keys}",
        "somebody may be in between; if the host was reinstalled: ssh-keygen -R {typed}, then"
        " `ssh {typed}` once",
    ),
    _Known(
        r"Host key verification failed|No \S+ host key is known",
        WrongKey,
        "ssh does not know the host key of {host}",
        "`ssh {typed}` once, compare the key that it shows, and answer yes",
    ),
    _Known(
        r"Could not resolve hostname ([^\s:]+)",
        UnknownHost,
        "host name '{part}' does not resolve",
        "check the name; ~/.ssh/config may give it an address (HostName)",
        needs_person=False,
    ),
    _Known(
        r"Bad configuration option[^\n]*|Bad owner or permissions on [^\n]*"
        r"|terminating, \d+ bad configuration[^\n]*",
        Unreachable,
        "ssh refuses its settings: {said}",
        "correct that file",
    ),
    _Known(
        r"Too many authentication failures",
        WrongKey,
        "{host} gave up after too many keys of ssh-agent",
        "name the right one in ~/.ssh/config: IdentityFile and IdentitiesOnly yes",
    ),
    _Known(
        r"Permission denied \([^)]*(?:password|keyboard-interactive)[^)]*\)",
        WrongKey,
        "{host} wants a password or a code, which frtop never asks for",
        "give it a key (ssh-copy-id {typed}; ssh-add), or open one connection that frtop may share:"
        " ssh {typed} with ControlMaster and ControlPath in ~/.ssh/config",
    ),
    _Known(
        r"Permission denied \(([^)]*)\)",
        WrongKey,
        "{host} accepts none of the keys of this user ({part})",
        "`ssh {typed}` shows why; a key with a passphrase has to be in ssh-agent: ssh-add",
    ),
    _Known(
        r"administratively prohibited",
        WrongKey,
        "{through} does not forward connections to {host}",
        "its sshd forbids it (AllowTcpForwarding, PermitOpen): run frtop there, or ask for it",
    ),
    _Known(
        r"Connection refused",
        Unreachable,
        "{host} accepts no ssh connections (connection refused)",
        "is sshd running there, and is the port right (Port in ~/.ssh/config)?",
        needs_person=False,
    ),
    _Known(
        r"Connection timed out|Operation timed out|No route to host|Network is unreachable"
        r"|Timeout, server \S+ not responding|Connection to \S+ port \d+ timed out",
        Unreachable,
        "{host} does not answer ({said})",
        "is it up, and reachable from here? A host on the way: ProxyJump in ~/.ssh/config",
        needs_person=False,
        may_break_off=True,
    ),
    _Known(
        r"account is currently not available|Access denied[^\n]*|account has expired[^\n]*"
        r"|no active jobs on this node",
        RemoteTrouble,
        "{host} lets this user in but gives no shell: {said}",
        "ask who runs the cluster; often log-in is open only while a job of yours runs there",
    ),
    _Known(
        r"executable file not found[^\n]*|exec: \"?sh\"?: [^\n]*|exec sh: no such file[^\n]*",
        RemoteTrouble,
        "{host}: there is no `sh` ({said})",
        "frtop needs a shell and a Python there; name another container, or the host itself",
    ),
    _Known(
        r"pods \"[^\"]*\" not found|container not found[^\n]*|No such container[^\n]*"
        r"|container \S+ is not running[^\n]*|can only create exec sessions on running[^\n]*",
        RemoteTrouble,
        "{host}: {said}",
        "`{listing}` shows what runs",
        needs_person=False,
    ),
    _Known(
        r"is forbidden: [^\n]*",
        WrongKey,
        "{host}: {said}",
        "the role needs `create` on `pods/exec`, and `get`, `list` on `pods`",
    ),
    _Known(
        r"You must be logged in[^\n]*|Unable to connect to the server[^\n]*|Unauthorized",
        WrongKey,
        "{host}: kubectl: {said}",
        "log in to the cluster, as for kubectl",
    ),
    _Known(
        r"kex_exchange_identification[^\n]*|Connection (?:closed|reset) by [^\n]*"
        r"|Connection to \S+ closed by remote host",
        Unreachable,
        "{host}: the connection was closed before the log-in",
        "frtop tries again; too many at once (MaxStartups of sshd), or a rule forbids us",
        needs_person=False,
        may_break_off=True,
    ),
)
"""In the order in which we try them."""
