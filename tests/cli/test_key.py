"""`frtop key`: its output, and the lists of keys that it writes."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest
import zmq
from zmq.utils import z85

from frtop_probe import atomic_file, keys
from frtop_tui.cli import main

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FRTOP_KEY_FILE", str(tmp_path / "ann" / "key"))
    return tmp_path / "ann" / "key"


@pytest.fixture
def ours() -> keys.KeyPair:
    return keys.load(create=True)


@pytest.fixture
def theirs() -> str:
    return keys.format_public(zmq.curve_keypair()[0])


def test_without_a_key_the_error_names_key_make(file: Path, capsys: Captured) -> None:
    for words in ([], ["show"], ["admit", "x"], ["trust", "x"], ["remove", "x"]):
        assert main(["key", *words]) == 1
        said = capsys.readouterr().err
        assert f"there is no key at {file}" in said
        assert "frtop key make" in said
        assert f"FRTOP_KEY_FILE={file}" in said
    assert not file.exists()


def test_without_a_key_the_error_names_the_home_that_was_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    for name in ("FRTOP_KEY_FILE", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["key"]) == 1
    said = capsys.readouterr().err
    assert f"run frtop with the job's HOME (here HOME={tmp_path})" in said


@pytest.mark.parametrize("act", [["admit", "--read"], ["trust"]])
def test_a_key_in_z85_may_begin_with_a_dash(
    ours: keys.KeyPair, capsys: Captured, act: list[str]
) -> None:
    dashed = z85.encode((63 * 85**4).to_bytes(4, "big") + bytes(range(99, 127))).decode()
    assert dashed.startswith("-")
    assert main(["key", act[0], dashed, *act[1:]]) == 0
    assert main(["key"]) == 0
    assert keys.format_public(dashed.encode()) in capsys.readouterr().out
    assert main(["key", "remove", dashed]) == 0


def test_make_never_replaces_a_key(file: Path, capsys: Captured) -> None:
    assert main(["key", "make"]) == 0
    shown = keys.load(create=False).shown
    assert f"frtop key admit {shown}" in capsys.readouterr().out
    before = file.read_bytes()
    assert main(["key", "make"]) == 0
    assert "you already have a key" in capsys.readouterr().out
    assert file.read_bytes() == before


def test_two_users_run_the_commands_they_are_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """The owner and the one on call, each by what the other's command printed."""
    owner = keys.load(create=True)
    monkeypatch.setenv("FRTOP_KEY_FILE", str(tmp_path / "bob" / "key"))
    main(["key", "make"])
    (for_owner,) = _commands(capsys, "frtop key admit")
    bob = keys.load(create=False)
    monkeypatch.setenv("FRTOP_KEY_FILE", str(owner.path))
    assert main([*for_owner, "--read", "--name", "bob"]) == 0
    (for_bob,) = _commands(capsys, "frtop key trust")
    assert [(one.public, one.right, one.name) for one in keys.authorized(owner)] == [
        (bob.public, "read", "bob")
    ]
    monkeypatch.setenv("FRTOP_KEY_FILE", str(bob.path))
    assert main(for_bob) == 0
    assert [one.public for one in keys.trusted(bob)] == [owner.public]
    for pair, name in ((owner, keys.AUTHORIZED), (bob, keys.TRUSTED)):
        assert stat.S_IMODE(pair.path.with_name(name).stat().st_mode) == 0o600


def _commands(capsys: Captured, begin: str) -> list[list[str]]:
    said = capsys.readouterr().out
    return [line.split()[1:] for line in said.splitlines() if line.strip().startswith(begin)]


def test_show_lists_all_keys(ours: keys.KeyPair, theirs: str, capsys: Captured) -> None:
    main(["key"])
    assert "nobody else" in capsys.readouterr().out
    main(["key", "admit", theirs, "--read", "--name", "bob on call"])
    main(["key", "trust", theirs, "--name", "carol"])
    capsys.readouterr()
    assert main(["key", "show"]) == 0
    said = capsys.readouterr().out
    assert ours.shown in said
    assert str(ours.path) in said
    assert f"read  {theirs}  bob on call" in said
    assert f"{theirs}  carol" in said
    assert "nobody else" not in said
    assert ours.secret.decode() not in said


def test_admitting_again_changes_the_right_and_keeps_the_name(
    ours: keys.KeyPair, theirs: str
) -> None:
    main(["key", "admit", theirs, "--read", "--name", "bob"])
    main(["key", "admit", keys.parse_public(theirs).decode()])  # type: ignore[union-attr]
    (one,) = keys.authorized(ours)
    assert (one.right, one.name) == ("act", "bob")


@pytest.mark.parametrize("act", ["admit", "trust"])
def test_our_own_key_is_recognised(ours: keys.KeyPair, act: str, capsys: Captured) -> None:
    assert main(["key", act, ours.shown]) == 0
    assert "our own key" in capsys.readouterr().out
    assert list(ours.path.parent.iterdir()) == [ours.path]


@pytest.mark.parametrize("act", ["admit", "trust"])
def test_an_invalid_key_is_not_repeated(ours: keys.KeyPair, act: str, capsys: Captured) -> None:
    for word, says in (
        ("nonsense", "not all of it"),
        (ours.shown[:-1], "not all of it"),
        ("\udcff", "not all of it"),
        (ours.secret.decode(), "our secret"),
        (keys.format_public(ours.secret), "our secret"),
    ):
        assert main(["key", act, "--", word]) == 2
        said = capsys.readouterr().err
        assert says in said
        assert "next: " in said
        assert word not in said
    assert list(ours.path.parent.iterdir()) == [ours.path]


@pytest.mark.parametrize("name", ["x" * 81, "a#b", "a\x1b[2J"])
def test_a_name_that_would_break_the_list_is_refused(
    ours: keys.KeyPair, theirs: str, name: str, capsys: Captured
) -> None:
    assert main(["key", "admit", theirs, "--name", name]) == 2
    assert "a name is" in capsys.readouterr().err
    assert keys.authorized(ours) == ()


def test_remove_takes_a_key_or_a_name(ours: keys.KeyPair, theirs: str, capsys: Captured) -> None:
    main(["key", "admit", theirs, "--name", "bob"])
    main(["key", "trust", theirs, "--name", "bob"])
    assert main(["key", "remove", "bob"]) == 0
    assert "from authorized_keys and trusted_keys" in capsys.readouterr().out
    assert (keys.authorized(ours), keys.trusted(ours)) == ((), ())
    main(["key", "admit", theirs])
    assert main(["key", "remove", theirs]) == 0
    assert keys.authorized(ours) == ()
    for word in (theirs, "bob", ours.secret.decode()):
        assert main(["key", "remove", "--", word]) == 2
        said = capsys.readouterr().err
        assert "`frtop key` lists them all" in said
        assert ours.secret.decode() not in said


def test_an_ambiguous_name_removes_no_key(ours: keys.KeyPair, capsys: Captured) -> None:
    both = [keys.format_public(zmq.curve_keypair()[0]) for _ in range(2)]
    for word in both:
        main(["key", "admit", word, "--name", "bob"])
    assert main(["key", "remove", "bob"]) == 2
    said = capsys.readouterr().err
    assert all(word in said for word in both)
    assert len(keys.authorized(ours)) == 2


def test_an_invalid_list_is_reported_after_the_change(
    ours: keys.KeyPair, theirs: str, capsys: Captured
) -> None:
    listed = ours.path.with_name(keys.AUTHORIZED)
    listed.write_text("who is this?\n")
    assert main(["key", "admit", theirs]) == 1
    said = capsys.readouterr()
    assert "admitted" in said.out
    assert "line 1: not a public key" in said.err
    assert listed.read_text().startswith("who is this?\nfrtop_")
    assert main(["key"]) == 1
    said = capsys.readouterr()
    assert ours.shown in said.out
    assert "we look at jobs of" in said.out
    assert "line 1: not a public key" in said.err


def test_a_read_only_home_is_reported(
    ours: keys.KeyPair, theirs: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(*_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(atomic_file, "create", read_only)
    assert main(["key", "admit", theirs]) == 1
    said = capsys.readouterr().err
    assert "cannot be changed: Read-only file system" in said
    assert keys.authorized(ours) == ()
    assert "next: " in said
