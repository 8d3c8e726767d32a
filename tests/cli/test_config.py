"""Settings: the command line before the environment, that before the file; errors say where."""

from __future__ import annotations

from pathlib import Path

import pytest

from frtop_tui.cli import main
from frtop_tui.cli.parser import parse
from frtop_tui.cli.settings import config_path
from frtop_tui.errors import ConfigTrouble
from json_schemas import read_document

FILE = """
connect = ["node[0-7]", "login"]
theme = "contrast"
window = 10
folder = "~/captures"
auto-capture = false
"""


@pytest.fixture(autouse=True)
def _no_settings_of_this_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("FRTOP_CONFIG", "FRTOP_CONNECT", "FRTOP_THEME", "FRTOP_SSH", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def write(folder: Path, text: str) -> Path:
    path = folder / "frtop" / "config.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o600)
    return path


def test_without_a_file_the_defaults_are_used() -> None:
    options = parse([])
    assert (options.connect, options.ssh, options.theme, options.window) == (
        ["local"], [], "auto", 60.0,
    )  # fmt: skip
    assert (options.read_only, options.auto_capture, options.folder) == (False, True, "")


def test_the_file_is_used_where_nothing_else_is_said(tmp_path: Path) -> None:
    write(tmp_path, FILE)
    options = parse([])
    assert (options.connect, options.theme, options.window) == (
        ["node[0-7]", "login"], "contrast", 10.0,
    )  # fmt: skip
    assert (options.folder, options.auto_capture) == ("~/captures", False)


def test_the_environment_comes_before_the_file_and_the_command_line_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, FILE)
    monkeypatch.setenv("FRTOP_THEME", "ansi")
    monkeypatch.setenv("FRTOP_CONNECT", "node9")
    assert (parse([]).theme, parse([]).connect) == ("ansi", ["node9"])
    options = parse(["--theme", "plain", "--connect", "node1"])
    assert (options.theme, options.connect) == ("plain", ["node1"])
    monkeypatch.delenv("FRTOP_THEME")
    monkeypatch.setenv("NO_COLOR", "1")
    assert parse([]).theme == "plain"
    assert parse(["--theme", "dark"]).theme == "dark"


@pytest.mark.parametrize(
    ("words", "connect", "ssh"),
    [
        (["--ssh", "node7"], [], ["node7"]),
        (["diagnose", "--pid", "12"], ["local"], []),
        (["diagnose", "hang.cap"], ["local"], []),
    ],
)
def test_hosts_of_the_file_are_not_meant_where_others_are_named(
    words: list[str], connect: list[str], ssh: list[str], tmp_path: Path
) -> None:
    write(tmp_path, FILE)
    options = parse(words)
    assert (options.connect, options.ssh) == (connect, ssh)


def test_ways_to_hosts_are_used_only_where_hosts_need_them(tmp_path: Path) -> None:
    write(tmp_path, 'via = "docker exec -i {host} sh"\nthrough = "bastion"\npython = "/opt/py"\n')
    options = parse([])
    assert (options.connect, options.via, options.through, options.python) == (
        ["local"], "", "", "",
    )  # fmt: skip
    options = parse(["--ssh", "node1"])
    assert (options.via, options.through, options.python) == (
        "docker exec -i {host} sh", "bastion", "/opt/py",
    )  # fmt: skip


def test_what_the_file_switches_on_can_be_switched_off(tmp_path: Path) -> None:
    write(tmp_path, "read-only = true\n")
    assert parse([]).read_only
    assert not parse(["--no-read-only"]).read_only


@pytest.mark.parametrize(
    ("text", "says", "step"),
    [
        ('theem = "dark"\n', "line 1: no setting theem", "did you mean theme?"),
        ("xyzzy = 1\n", "no setting xyzzy", "known: connect, ssh"),
        ('theme = "drak"\n', "line 1: theme: there is no drak", "did you mean dark?"),
        ('\nwindow = "long"\n', "line 2: window takes a number, not text in", "docs/conf"),
        ("window = -1\n", "line 1: window takes a number of at least 0", "docs/configuration"),
        ("connect = [1]\n", "line 1: connect takes text in quotes, not", "docs/conf"),
        ("theme = dark\n", "(at line 1", "strings need quotes"),
        ('read_only = true\n', "no setting read_only", "did you mean read-only?"),
    ],
)  # fmt: skip
def test_errors_name_file_line_and_the_nearest_key(
    text: str, says: str, step: str, tmp_path: Path
) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigTrouble) as caught:
        parse(["config"])
    assert str(path) in str(caught.value)
    assert says in caught.value.text
    assert step in caught.value.next_step


def test_wrong_variables_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRTOP_THEME", "drak")
    with pytest.raises(ConfigTrouble, match="FRTOP_THEME: 'drak' is not one of auto, dark"):
        parse([])


def test_a_file_that_others_may_write_is_not_read(tmp_path: Path) -> None:
    write(tmp_path, FILE).chmod(0o666)
    with pytest.raises(ConfigTrouble, match="others may write"):
        parse([])


def test_a_file_that_is_named_has_to_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FRTOP_CONFIG", str(tmp_path / "none.toml"))
    with pytest.raises(ConfigTrouble, match="there is no such file"):
        parse([])
    (tmp_path / "none.toml").write_bytes(b"\xff" * 9)
    (tmp_path / "none.toml").chmod(0o600)
    with pytest.raises(ConfigTrouble, match="is not UTF-8"):
        parse([])


def test_a_broken_file_does_not_stop_a_job(tmp_path: Path) -> None:
    write(tmp_path, "broken")
    assert parse(["run", "--", "true"]).command == ["--", "true"]
    assert parse(["agent"]).run


def test_where_the_file_is() -> None:
    assert config_path({"HOME": "/home/a"}) == Path("/home/a/.config/frtop/config.toml")
    assert config_path({"HOME": "/h", "XDG_CONFIG_HOME": "x"}) == Path(
        "/h/.config/frtop/config.toml"
    )
    assert config_path({"FRTOP_CONFIG": "/etc/f.toml", "HOME": "/h"}) == Path("/etc/f.toml")
    assert config_path({}) is None


def test_config_prints_where_each_value_comes_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, FILE)
    monkeypatch.setenv("FRTOP_CONNECT", "node[0-3]")
    assert main(["config", "--theme", "plain"]) == 0
    said = capsys.readouterr().out
    rows = {line.split()[0]: line.split(maxsplit=2)[1:] for line in said.splitlines()}
    assert rows["file"] == [str(path)]
    assert rows["connect"] == ["node[0-3]", "FRTOP_CONNECT"]
    assert rows["theme"] == ["plain", "command line"]
    assert rows["window"] == ["10", f"{path} line 4"]
    assert rows["through"] == ["-", "default"]
    assert main(["config", "--json"]) == 0
    document = read_document(capsys.readouterr().out, "frtop-config-1")
    assert document["settings"]["connect"] == {"value": ["node[0-3]"], "from": "FRTOP_CONNECT"}
