"""`frtop doctor --ssh`: hosts with nothing of ours, in namespaces of their own, through shells."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from features.doctor.surroundings import FRTOP, LIKE_A_RANK, USER, needs_root
from frtop_tui.cli import main
from waiting import wait_for

REMOTE = """
cd {folder}
run='exec env -i PATH=/usr/bin:/bin FRTOP_TEST={folder} FRTOP_DIR={folder}/frtop sh'
case $1 in
    full) echo 'no more processes for you' >&2; exit 3 ;;
    plain) eval "$run" ;;
    ann) rank=0 user='setpriv --reuid={user} --regid={user} --clear-groups'
        run="exec $user env -i PATH=/usr/bin:/bin FRTOP_DIR={folder}/frtop sh" ;;
    *) rank=$1 ;;
esac
unset PYTHONPATH
exec unshare --pid --fork --mount-proc --kill-child sh -c '
    RANK=$1 WORLD_SIZE=3 MASTER_ADDR=h MASTER_PORT=1 {python} rank.py >$1.ready &
    while [ ! -s $1.ready ]; do sleep 0.05; done
    [ $1 != 2 ] || echo 2 >/proc/sys/vm/memfd_noexec
    '"$run" sh "$rank"
"""
"""A shell on a host: each has a rank, in a pid namespace. Host 2 runs no program from memory; on
ann the shell is another user's."""

pytestmark = needs_root


@pytest.fixture
def reach(tmp_path: Path) -> tuple[str, ...]:
    """The options that lead to the hosts."""
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents[:2]:
        parent.chmod(0o755)
    (tmp_path / "rank.py").write_text(LIKE_A_RANK)
    remote = REMOTE.format(folder=tmp_path, python=sys.executable, user=USER)
    (tmp_path / "remote").write_text(remote)
    return ("--via", f"sh {tmp_path}/remote {{host}}", "--ssh")


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*FRTOP, "doctor", *words], capture_output=True, text=True, timeout=90, check=False
    )


def tiers(document: dict[str, Any], host: str) -> dict[str, Any]:
    return {tier["code"]: tier for tier in document["hosts"][host]["tiers"]}


def test_hosts_are_examined_through_their_shells_and_each_is_judged_for_itself(
    reach: Sequence[str], tmp_path: Path
) -> None:
    if not Path("/proc/sys/vm/memfd_noexec").exists():
        pytest.skip("this kernel has no vm.memfd_noexec")
    done = run("--json", *reach, "0", "2", "full", "ann")
    assert done.returncode == 1, done
    document = json.loads(done.stdout)
    assert document["exit_status"] == 1
    assert document["groups"] == [["0"], ["2"], ["ann"]]
    found = tiers(document, "0")
    assert [rank["rank"] for rank in document["hosts"]["0"]["search"]["ranks"]] == [0]
    assert (found["stacks"]["mark"], found["archive"]["mark"]) == ("ok", "ok")
    assert found["stacks"]["basis"] == "py-spy, sent from here, has read a test process"
    assert not {"key", "agent", "ports"} & set(found), "of an installed frtop only"
    found = tiers(document, "2")
    (obstacle,) = found["stacks"]["obstacles"]
    assert obstacle["code"] == "memfd"
    assert [change["line"] for change in obstacle["changes"]] == [
        "sudo sysctl vm.memfd_noexec=0",
        f"{document['hosts']['2']['host']['program']} -m pip install --force-reinstall py-spy",
    ]
    assert found["archive"]["mark"] == "closed"
    assert "no more processes for you" in document["hosts"]["full"]["error"]["text"]
    assert not (tmp_path / "frtop").exists(), "nothing is written there"
    found = tiers(document, "ann")  # who is another user
    assert document["hosts"]["ann"]["host"]["rights"]["uid"] == USER
    assert found["processes"]["mark"] == "closed"
    assert found["processes"]["obstacles"][0]["changes"][0]["line"] == "sudo -u '#0' frtop"


def left(folder: Path) -> list[int]:
    """Processes of the shell's environment."""
    found = []
    mark = f"FRTOP_TEST={folder}\0".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark in path.read_bytes():
                found.append(int(path.parent.name))
    return found


@pytest.fixture
def operator(reach: Sequence[str], tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """One whose doctor is at work on a host."""
    operator = subprocess.Popen(
        [*FRTOP, "doctor", *reach, "plain"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        wait_for(lambda: len(left(tmp_path)) > 1, "the doctor examines that host")
        yield operator
    finally:
        operator.kill()
        operator.communicate()


@pytest.mark.parametrize(
    ("number", "status"),
    [
        (signal.SIGINT, 130),
        pytest.param(signal.SIGTERM, -signal.SIGTERM, marks=pytest.mark.long),
        (signal.SIGKILL, -signal.SIGKILL),
    ],
)
def test_nothing_is_left_there_however_frtop_ends(
    operator: subprocess.Popen[bytes], number: int, status: int, tmp_path: Path
) -> None:
    operator.send_signal(number)
    said, _ = operator.communicate(timeout=60)
    assert (operator.returncode, said) == (status, b"")
    wait_for(lambda: not left(tmp_path), lambda: f"nothing is left: {left(tmp_path)}")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--ssh", "node0", "--pid", "1"), "--pid names a process of this host"),
        (("--through", "node0"), "--through is for hosts of --ssh"),
        (("--pid", "1", "--python", "python3"), "next: leave out one"),
    ],
)
def test_what_cannot_be_meant_is_said(
    words: Sequence[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", *words]) == 2
    assert said in capsys.readouterr().err
