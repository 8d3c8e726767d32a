"""Valid and invalid command lines."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from frtop_tui.cli import main
from frtop_tui.cli.live import require_root
from frtop_tui.cli.parser import parse, parser
from frtop_tui.errors import UsageError


@pytest.mark.parametrize(
    ("words", "connect"),
    [
        ([], ["local"]),
        (["--connect", "node[0-7]"], ["node[0-7]"]),
        (["--connect", "node0", "node1"], ["node0", "node1"]),
        (["diagnose", "--connect", "node0", "node1", "--json"], ["node0", "node1"]),
        (["live"], ["local"]),
        (["--ssh", "node[0-7]"], []),
        (["diagnose", "--ssh", "slurm:7", "--connect", "node9"], ["node9"]),
        (["jobs", "--via", "docker exec -i box sh"], []),
    ],
)
def test_this_host_is_meant_where_no_other_is(words: list[str], connect: list[str]) -> None:
    assert parse(words).connect == connect


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["dignose"], "did you mean `frtop diagnose`"),
        (["xyzzy"], "`frtop --help` lists the commands"),
        (["--conect", "node0"], "unrecognized arguments: --conect"),
        (["--conect", "node0"], "did you mean --connect? `frtop --help`"),
        (["diagnose", "--jsn"], "did you mean --json? `frtop diagnose --help`"),
        (["stacks", "--ranks", "3"], "did you mean --rank? `frtop stacks --help`"),
        (["key", "admit", "--nme", "ann", "x"], "did you mean --name? `frtop key admit --help`"),
        (["--ssh", "node0", "open", "x.cap"], "`frtop open` does not take --ssh: leave it out"),
        (["--ssh", "node0", "run", "--", "true"], "unrecognized arguments: --ssh"),
        (["ls"], "did you mean `frtop jobs`"),
        (["why"], "did you mean `frtop diagnose`"),
        (["bt"], "did you mean `frtop stacks`"),
        (["report"], "did you mean `frtop export`"),
        (["help", "dignose"], "did you mean `frtop diagnose`"),
        (["stacks", "--rank", "x"], "'x' is not a list of ranks"),
        (["tensors", "--rank", "0-3"], "several ranks, and this takes one"),
        (["diagnose", "--python", "/usr/bin/python3"], "--python is for hosts of --ssh"),
        (["diagnose", "--through", "bastion"], "--through is for hosts of --ssh"),
        (["--through", "bastion", "--connect", "local"], "--through is for hosts of --ssh"),
        (["--through", "b", "--connect", "n[0-7]"], "--ssh 'n[0-7]' --through b needs no agent"),
        (["--through", "b", "--connect", "n1", "--ssh", "n2"], "--ssh n1 --through b needs no"),
        (["diagnose", "--pid", "12", "--ssh", "node0"], "frtop jobs --ssh"),
        (["demo", "--fault", "gremlin"], "invalid choice: 'gremlin'"),
        (["diagnose", "--wait", "-3"], "more than 0"),
        (["diagnose", "--wait", "soon"], "'soon': seconds"),
        (["diagnose", "--pid", "me"], "'me' is not the pid of a process"),
        (["capture", "--pid", "0"], "'0' is not the pid of a process"),
        (["--pid", "12", "--job", "train.py"], "both name a job"),
        (["diagnose", "--pid", "12", "--connect", "node0"], "frtop jobs --connect"),
        (["diagnose", "--pid", "12", "hang.cap"], "files were given"),
        (["config", "--pid", "12"], "unrecognized arguments: --pid"),
    ],
)
def test_an_invalid_command_line_gets_a_next_step(words: list[str], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(words)
    assert says in str(caught.value)
    assert "next:" in str(caught.value)


@pytest.mark.parametrize(
    ("words", "own", "hosts"),
    [
        (["--ssh", "a", "b", "stacks", "--json"], "native", ["a", "b"]),
        (["--ssh", "stacks"], "theme", ["stacks"]),
        (["--read-only", "--ssh=a", "stacks"], "native", ["a"]),
        (["--job", "diagnose", "--ssh", "a", "capture"], "redact", ["a"]),
    ],
)
def test_options_may_stand_before_the_command(words: list[str], own: str, hosts: list[str]) -> None:
    options = parse(words)
    assert options.ssh == hosts
    assert hasattr(options, own)


FILE_VERBS = (["diagnose"], ["export", "-f", "json"], ["statistics"], ["stream"], ["metrics"])


@pytest.mark.parametrize("verb", FILE_VERBS, ids=lambda verb: verb[0])
@pytest.mark.parametrize(
    ("rest", "says"),
    [
        (["FILE", "--connect", "h"], "leave out --connect"),
        (["--ssh", "h", "--", "FILE"], "leave out --ssh"),
        (["FILE", "--user", "ann"], "leave out --user"),
        (["--connect", "h", "FILE"], "is a file, and --connect takes it for a host"),
        (["--ssh", "FILE"], "is a file, and --ssh takes it for a host"),
    ],
)
def test_files_and_hosts_together_are_refused(
    verb: list[str], rest: list[str], says: str, tmp_path: Path
) -> None:
    file = tmp_path / "hang.cap"
    file.touch()
    words = [str(file) if word == "FILE" else word for word in rest]
    with pytest.raises(UsageError, match=says):
        parse([*verb, *words])
    assert parse([*verb, str(file)]).paths == [str(file)]


def test_a_folder_may_be_called_like_a_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "node0").mkdir()
    monkeypatch.chdir(tmp_path)
    assert parse(["--ssh", "node0"]).ssh == ["node0"]


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(words) == 0
    return capsys.readouterr().out


def test_help_fits_a_terminal_and_describes_each_option_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    top = said(capsys, "--help")
    _, verbs = parser()
    wide = [line for line in top.splitlines() if len(line) > 80]
    listed = [line.split()[0] for line in top.splitlines() if re.match(r"  [a-z]", line)]
    assert [name for name in listed if name in verbs.choices] == list(verbs.choices)
    for name in verbs.choices:
        own = said(capsys, name, "--help")
        wide += [line for line in own.splitlines() if len(line) > 80]
        assert said(capsys, "help", name) == own
        if "--ssh" in own.split():
            assert "which hosts and which job (`frtop --help` explains):" in own
            assert "hosts to reach by ssh" not in own
    assert not wide
    assert top.count("hosts to reach by ssh") == 1
    assert said(capsys, "help") == said(capsys, "-h") == top


def test_the_version_has_a_short_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "-V") == said(capsys, "--version")


def test_a_file_in_place_of_a_command_can_be_opened(tmp_path: Path) -> None:
    file = tmp_path / "a job.cap"
    file.touch()
    with pytest.raises(UsageError) as error:
        parse([str(file)])
    assert f"`frtop open '{file}'` shows what was recorded" in str(error.value)


@pytest.mark.parametrize("command", [[], ["live"], ["diagnose"], ["capture"]])
def test_a_job_can_be_named_by_a_pid(command: list[str]) -> None:
    assert parse([*command, "--pid", "4711"]).pid == 4711
    assert parse(command).pid is None


def test_a_usage_error_has_its_own_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run"]) == 2
    assert "frtop run -- torchrun" in capsys.readouterr().err


def test_run_names_a_missing_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--", "no-such-program-anywhere"]) == 127
    assert "no such command" in capsys.readouterr().err


def test_an_invalid_key_file_does_not_stop_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = tmp_path / "key"
    key.write_text("{}")
    key.chmod(0o644)
    monkeypatch.setenv("FRTOP_KEY_FILE", str(key))
    said = subprocess.run(
        [sys.executable, "-m", "frtop_tui", "run", "--", sys.executable, "-c", "print('trained')"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (said.returncode, said.stdout) == (0, "trained\n")


def test_a_file_that_cannot_be_executed_has_a_shells_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "train.sh"
    script.write_text("true\n")
    assert main(["run", "--", str(script)]) == 126
    assert "chmod +x" in capsys.readouterr().err


def test_a_user_is_looked_at_on_this_host_or_through_shells() -> None:
    here = parse(["jobs", "--user", "ann", "--python", "/opt/python"])
    assert (here.connect, here.ssh, here.user) == ([], [], "ann")
    assert parse(["diagnose", "--ssh", "root@node0", "--user", "ann"]).user == "ann"
    assert parse(["--user", "ann", "--pid", "7"]).pid == 7
    assert parse(["jobs"]).user == ""


@pytest.mark.parametrize(("words", "says"), [
    (["--user", "ann", "--connect", "node0"], "--user is for this host and for hosts of --ssh"),
    (["--user", "a b"], "'a b' is not the name of a user"),
    (["--user", "a\x1bb"], "is not the name of a user"),
    (["--user", ""], "is not the name of a user"),
    (["--user", "ann", "--ssh", "node0", "--pid", "7"], "--pid names a process of this host"),
])  # fmt: skip
def test_what_cannot_be_meant_with_a_user_is_said(words: list[str], says: str) -> None:
    with pytest.raises(UsageError, match=re.escape(says)):
        parse(words)


@pytest.mark.parametrize(("user", "uid", "says", "step"), [
    ("nosuchuser", 0, "there is no user nosuchuser on this host", "check the name"),
    ("root", 0, "--user root is root itself", "run it as root, without --user"),
    ("nobody", 1, "only root can look as user nobody", "run it as nobody, or as root"),
    ("nobody", 65534, "only root can look as user nobody", "leave out --user"),
])  # fmt: skip
def test_who_may_look_as_a_user_is_said(
    monkeypatch: pytest.MonkeyPatch, user: str, uid: int, says: str, step: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    with pytest.raises(UsageError, match=says) as caught:
        require_root(parse(["jobs", "--user", user]))
    assert caught.value.next_step == step
    require_root(parse(["jobs", "--user", user, "--ssh", "root@node0"]))  # that host says it


def test_hosts_of_a_site_may_be_called_like_a_file_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "node0").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FRTOP_CONNECT", "node0")
    assert parse(["diagnose"]).connect == ["node0"]
    assert parse(["diagnose", "node0"]).connect == ["local"]
