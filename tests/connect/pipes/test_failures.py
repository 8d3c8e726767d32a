"""What ssh, kubectl and srun write when they fail, and what is made of it."""

from __future__ import annotations

import pytest

from frtop_tui.connect.pipes.failures import Ending, cannot_start, describe
from frtop_tui.errors import FrtopError

CHANGED = """@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
Offending ED25519 key in /home/ann/.ssh/known_hosts:3
Host key verification failed."""

NO_SHELL = (
    'OCI runtime exec failed: exec failed: unable to start container process: exec: "sh": '
    "executable file not found in $PATH"
)
FORBIDDEN = (
    'Error from server (Forbidden): pods "t" is forbidden: User "u" cannot create resource '
    '"pods/exec"'
)


def ending(said: str, **fields: object) -> Ending:
    known: dict[str, object] = {
        "host": "node3", "command": ("ssh", "node3", "sh"), "status": 255,
        "errors": tuple(said.splitlines()), **fields,
    }  # fmt: skip
    return Ending(**known)  # type: ignore[arg-type]


def test_arguments_of_the_operators_own_command_are_not_repeated() -> None:
    """What is said of a host is in captures, and in lines of the watcher."""
    said = describe(ending("", command=("sshpass", "-p", "SECRET", "ssh", "node3"), private=True))
    assert "SECRET" not in str(said.error)
    assert "see what this says: sshpass ... as in --via or FRTOP_SSH" in str(said.error)


@pytest.mark.parametrize(
    ("said", "text", "step"),
    [
        (CHANGED,
         "has a different host key from the one that ssh knows (/home/ann/.ssh/known_hosts:3)",
         "ssh-keygen -R node3"),
        ("Host key verification failed.", "ssh does not know the host key of node3",
         "`ssh node3` once"),
        ("ssh: Could not resolve hostname node3: Name or service not known",
         "host name 'node3' does not resolve", "check the name"),
        ("ssh: connect to host node3 port 22: Connection refused",
         "accepts no ssh connections", "is sshd running"),
        ("ssh: connect to host node3 port 22: Connection timed out", "does not answer",
         "ProxyJump"),
        ("ssh: connect to host node3 port 22: No route to host", "does not answer", "is it up"),
        ("ann@node3: Permission denied (publickey,password).",
         "wants a password or a code", "ControlMaster"),
        ("ann@node3: Permission denied (keyboard-interactive).",
         "wants a password or a code", "ssh-copy-id node3"),
        ("ann@node3: Permission denied (publickey).", "accepts none of the keys",
         "a key with a passphrase has to be in ssh-agent"),
        ("Received disconnect from 10.0.0.3 port 22:2: Too many authentication failures",
         "too many keys", "IdentitiesOnly"),
        ("kex_exchange_identification: Connection closed by remote host",
         "closed before the log-in", "MaxStartups"),
        ("/home/ann/.ssh/config: line 3: Bad configuration option: foo", "refuses its settings",
         "correct that file"),
        ("This account is currently not available.", "gives no shell", "only while a job"),
        (NO_SHELL, "there is no `sh`", "another container"),
        ('Error from server (NotFound): pods "train-0" not found', "not found",
         "kubectl get pods"),
        (FORBIDDEN, "is forbidden: User", "pods/exec"),
        ("error: You must be logged in to the server (Unauthorized)", "must be logged in",
         "log in"),
        ("something new", "no shell there: ssh ended: 255 (something new)",
         "see what this says: ssh node3 sh"),
        ("", "no shell there: ssh ended: 255", "see what this says"),
    ],
)  # fmt: skip
def test_a_failure_has_plain_words_and_a_next_step(said: str, text: str, step: str) -> None:
    error = describe(ending(said)).error
    assert text in error.text
    assert step in error.next_step
    assert "node3" in error.text or "settings" in error.text


@pytest.mark.parametrize(("command", "said", "step"), [
    (("docker", "exec", "-i", "node3", "sh"),
     "Error response from daemon: Container 8a1f is not running", "`docker ps`"),
    (("sudo", "/usr/bin/podman", "exec", "-i", "node3", "sh"),
     'Error: no container with name or ID "node3" found: no such container', "`podman ps`"),
    (("kubectl", "exec", "-i", "node3", "--", "sh"),
     'error: container not found ("main")', "`kubectl get pods`"),
])  # fmt: skip
def test_a_container_that_is_not_there_is_looked_for_where_it_was(
    command: tuple[str, ...], said: str, step: str
) -> None:
    error = describe(ending(said, command=command)).error
    assert step in error.next_step


def test_noise_of_the_login_scripts_is_quoted() -> None:
    error = describe(ending("", status=1, noise=("Welcome", "module: command not found"))).error
    assert "module: command not found" in error.text


def test_a_connection_that_was_there_broke_off() -> None:
    error = describe(ending("client_loop: send disconnect: Broken pipe", started=True)).error
    assert error.text == (
        "the connection to node3 broke off: client_loop: send disconnect: Broken pipe"
    )
    error = describe(
        ending("", status=None, why="nothing was received for 15 s", started=True)
    ).error
    assert error.text == "the connection to node3 broke off: nothing was received for 15 s"


def test_pauses_double_and_are_longer_where_a_person_has_to_act() -> None:
    quick = describe(ending("ssh: connect to host node3 port 22: Connection refused"))
    person = describe(ending("ann@node3: Permission denied (publickey)."))
    assert [quick.pause_s(n) for n in (1, 2, 3, 99)] == [1, 2, 4, 60]
    assert [person.pause_s(n) for n in (1, 2, 99)] == [15, 30, 300]


def test_a_program_that_is_not_installed_is_named() -> None:
    error = cannot_start("node3", ("kubectl", "exec"), FileNotFoundError("kubectl")).error
    assert isinstance(error, FrtopError)
    assert error.text == "node3: kubectl is not installed here"


WAY = (
    "kex_exchange_identification: Connection closed by remote host\n"
    "Connection closed by UNKNOWN port 65535"
)
PROHIBITED = (
    "channel 0: open failed: administratively prohibited: open failed\nstdio forwarding failed"
)


@pytest.mark.parametrize(
    ("said", "text", "step"),
    [
        ("Host key verification failed.",
         "on the way to node3: ssh does not know the host key of bastion", "`ssh bastion` once"),
        ("ann@bastion: Permission denied (publickey).",
         "on the way to node3: bastion accepts none of the keys", "`ssh bastion`"),
        ("channel 0: open failed: connect failed: Connection refused\nstdio forwarding failed",
         "node3 accepts no ssh connections", "is sshd running"),
        (PROHIBITED, "bastion does not forward connections to node3", "AllowTcpForwarding"),
    ],
)  # fmt: skip
def test_a_host_on_the_way_is_told_from_the_one_behind_it(said: str, text: str, step: str) -> None:
    error = describe(ending(f"{said}\n{WAY}", through="bastion")).error
    assert error.text.startswith(text)
    assert step in error.next_step
