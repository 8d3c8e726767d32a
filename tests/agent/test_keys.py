"""One key per user, made once, used only while nobody else can know it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import zmq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from frtop_probe import keys
from frtop_probe.keys import KeyProblem


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("FRTOP_KEY_FILE", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config"


def test_a_key_is_made_once_and_only_for_its_user(config: Path) -> None:
    first = keys.load(create=True)
    assert first.path == config / "frtop" / "key"
    assert stat.S_IMODE(first.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(first.path.parent.stat().st_mode) == 0o700
    assert keys.load(create=True) == keys.load(create=False) == first
    assert zmq.curve_public(first.secret) == first.public
    assert list(first.path.parent.iterdir()) == [first.path]


def test_the_secret_is_in_no_repr() -> None:
    pair = keys.load(create=True)
    assert pair.secret.decode() not in repr(pair) + str(pair)


def test_without_a_config_home_it_is_under_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert keys.path() == tmp_path / ".config" / "frtop" / "key"


def test_a_named_file_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRTOP_KEY_FILE", str(tmp_path / "mine"))
    assert keys.load(create=True).path == tmp_path / "mine"


def test_many_that_start_at_once_get_the_same_key(config: Path) -> None:
    program = "from frtop_probe import keys; print(keys.load(create=True).public.decode())"
    ranks = [
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        for _ in range(6)
    ]
    said = {rank.communicate()[0] for rank in ranks}
    assert said == {keys.load(create=False).public.decode() + "\n"}
    assert list((config / "frtop").iterdir()) == [config / "frtop" / "key"]


def test_a_missing_key_is_not_made_where_it_would_be_the_wrong_one(config: Path) -> None:
    with pytest.raises(KeyProblem) as problem:
        keys.load(create=False)
    assert str(config / "frtop" / "key") in problem.value.text
    assert "copy" in problem.value.next
    assert not (config / "frtop" / "key").exists()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_key_others_can_read_is_refused(mode: int) -> None:
    path = keys.load(create=True).path
    path.chmod(mode)
    with pytest.raises(KeyProblem) as problem:
        keys.load(create=True)
    assert problem.value.next == f"chmod 600 {path}"


def test_a_key_of_somebody_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    keys.load(create=True)
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    with pytest.raises(KeyProblem, match="another user"):
        keys.load(create=True)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.one_of(st.binary(max_size=100), st.sampled_from([b"{}", b"[]", b'{"public": 1}'])))
def test_a_file_that_holds_no_key_is_said_to(content: bytes) -> None:
    path = keys.load(create=True).path
    whole = path.read_bytes()
    try:
        path.write_bytes(content)
        with pytest.raises(KeyProblem, match="does not hold a key pair"):
            keys.load(create=True)
    finally:
        path.write_bytes(whole)


def test_halves_of_two_pairs_are_no_pair() -> None:
    path = keys.load(create=True).path
    secret = zmq.curve_keypair()[1].decode()
    public = keys.load(create=True).public.decode()
    path.write_text(f'{{"public": "{public}", "secret": "{secret}"}}')
    with pytest.raises(KeyProblem, match="does not hold a key pair"):
        keys.load(create=True)


def test_a_folder_that_cannot_be_made_is_said_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FRTOP_KEY_FILE", str(tmp_path / "file" / "key"))
    with pytest.raises(KeyProblem) as problem:
        keys.load(create=True)
    assert "FRTOP_KEY_FILE" in problem.value.next


def test_listed_keys_come_in_beside_our_own() -> None:
    pair = keys.load(create=True)
    assert keys.authorized(pair) == {pair.public}
    others = [zmq.curve_keypair()[0] for _ in range(20)]
    lines = [f"  {key.decode()}  # ann" if n % 2 else key.decode() for n, key in enumerate(others)]
    listed = pair.path.with_name(keys.AUTHORIZED)
    listed.write_text("# on call\n\n" + "\n".join(lines) + "\n")
    assert keys.authorized(pair) == {pair.public, *others}


@pytest.mark.parametrize("line", ["ann", "x" * 40 + "y", '"' * 40])
def test_a_line_that_is_no_key_is_named(line: str) -> None:
    pair = keys.load(create=True)
    pair.path.with_name(keys.AUTHORIZED).write_text(f"# on call\n{line}\n")
    with pytest.raises(KeyProblem, match="line 2"):
        keys.authorized(pair)


def test_a_list_that_others_can_write_is_refused() -> None:
    pair = keys.load(create=True)
    listed = pair.path.with_name(keys.AUTHORIZED)
    listed.touch()
    listed.chmod(0o666)
    with pytest.raises(KeyProblem) as problem:
        keys.authorized(pair)
    assert problem.value.next == f"chmod go-w {listed}"
