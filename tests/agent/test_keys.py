"""One key per user, made once, used only while nobody else can know it."""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
import string
import subprocess
import sys
import threading
from pathlib import Path
from unittest.mock import patch

import pytest
import zmq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from zmq.utils import z85

from frtop_probe import keys
from frtop_probe.keys import AuthorizedKey, KeyProblem, editing
from frtop_probe.keys.pair import _breaks_off


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


_MANY = """
import errno, os, sys
from frtop_probe import keys
def link(*_):
    raise OSError(errno.EPERM, "no hard links")
if sys.argv[1] == "without":
    os.link = link
print("ready", flush=True)
sys.stdin.readline()
print(keys.load(create=True).shown)
"""


@pytest.mark.parametrize("links", ["with", "without"])
def test_many_that_start_at_once_get_the_same_key(config: Path, links: str) -> None:
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", _MANY, links],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(16)
    ]
    for rank in ranks:
        assert rank.stdout is not None
        assert rank.stdout.readline() == "ready\n"
    said = set()
    for rank in ranks:
        assert rank.stdin is not None
        rank.stdin.write("go\n")
        rank.stdin.flush()
    for rank in ranks:
        said.add(rank.communicate()[0])
    assert said == {keys.load(create=False).shown + "\n"}
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


def test_a_key_file_that_is_being_written_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("frtop_probe.keys.pair._UNFINISHED_S", 20.0)
    whole = keys.load(create=True)
    text = whole.path.read_bytes()
    for cut in (0, 1, 30, text.index(b'"secret"')):
        os.truncate(whole.path, cut)
        writer = threading.Timer(0.05, whole.path.write_bytes, [text])
        writer.start()
        assert keys.load(create=False) == whole
        writer.join()


def test_no_piece_of_a_key_file_is_taken_for_all_of_it() -> None:
    content = {"public": OTHER.decode()[:-2] + "}}", "secret": "{}" * 20}
    text = json.dumps(content, indent=1)
    assert not _breaks_off(text)
    assert all(_breaks_off(text[:cut]) for cut in range(len(text)))


def test_a_disk_that_is_full_leaves_no_half_key(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "write", lambda descriptor, content: len(content) // 2)
    with pytest.raises(KeyProblem, match="No space left"):
        keys.load(create=True)
    assert not list((config / "frtop").iterdir())


def test_a_user_without_a_home_is_told_what_to_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setenv("XDG_CONFIG_HOME", "")
    monkeypatch.setattr(Path, "home", nowhere)
    with pytest.raises(KeyProblem, match="no home") as problem:
        keys.load(create=True)
    assert "FRTOP_KEY_FILE" in problem.value.next


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.one_of(st.binary(max_size=100), st.sampled_from([b"{}", b"[]", b'{"public": 1}'])))
def test_a_file_that_holds_no_key_is_said_to(content: bytes) -> None:
    path = keys.load(create=True).path
    whole = path.read_bytes()
    try:
        path.write_bytes(content)
        with (
            patch("frtop_probe.keys.pair._UNFINISHED_S", 0.0),
            pytest.raises(KeyProblem, match="does not hold a key pair"),
        ):
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


PUBLIC = b"Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID"
OTHER = b"D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs"
SHOWN = keys.shown(PUBLIC)


def test_a_shown_key_survives_a_shell_and_is_no_option() -> None:
    word = keys.shown(b"-" + PUBLIC[1:])
    assert re.fullmatch(r"frtop_[A-Za-z0-9_-]{44}", word)
    assert shlex.quote(word) == word


@given(st.binary(min_size=32, max_size=32))
def test_a_key_is_the_same_in_both_forms(raw: bytes) -> None:
    public = z85.encode(raw)
    assert keys.read(keys.shown(public)) == keys.read(public.decode()) == public


def test_slips_of_the_hand_are_no_key() -> None:
    letters = string.ascii_letters + string.digits + "-_"
    slips = {SHOWN[:at] + one + SHOWN[at + 1 :] for at in range(50) for one in letters} - {SHOWN}
    passed = [slip for slip in slips if keys.read(slip) is not None]
    assert len(passed) < 0.01 * len(slips)
    assert not any(keys.read(SHOWN[:at]) for at in range(50))
    assert not any(keys.read(SHOWN + one) for one in letters)


@given(st.text(max_size=60))
def test_any_text_is_a_key_or_none(text: str) -> None:
    found = keys.read(text)
    assert found is None or len(found) == 40


@pytest.mark.parametrize(
    ("line", "right", "name"),
    [
        ("{}", "read", ""),
        ("{} read", "read", ""),
        ("{} act", "act", ""),
        ("  {}\tact   ann   from  accounting \r", "act", "ann from accounting"),
        ("{} ann@desk", "read", "ann@desk"),
        ("{} Act", "read", "Act"),
        ("{} act # until may", "act", ""),
        ("{} ann #act", "read", "ann"),
        ("{} # act", "read", ""),
    ],
)
@pytest.mark.parametrize("key", [SHOWN, PUBLIC.decode()])
def test_a_line_says_who_may_do_what(line: str, right: str, name: str, key: str) -> None:
    pair = keys.load(create=True)
    pair.path.with_name(keys.AUTHORIZED).write_text(f"# on call\n\n{line.format(key)}\n")
    assert [(one.public, one.right, one.name) for one in keys.authorized(pair)] == [
        (PUBLIC, right, name)
    ]


def test_nobody_is_listed_twice_and_the_lesser_right_holds() -> None:
    pair = keys.load(create=True)
    lines = [f"{SHOWN} act", f"{PUBLIC.decode()} read", f"{SHOWN} act", f"{pair.shown} read"]
    pair.path.with_name(keys.AUTHORIZED).write_text("\n".join(lines))
    assert [(one.public, one.right) for one in keys.authorized(pair)] == [(PUBLIC, "read")]


def test_trusted_keys_have_names() -> None:
    pair = keys.load(create=True)
    assert keys.trusted(pair) == ()
    file = pair.path.with_name(keys.TRUSTED)
    file.write_text(f"{SHOWN} ann b\n# bob\n{keys.shown(OTHER)}\n{SHOWN} twice\n{pair.shown}\n")
    assert [(one.public, one.name) for one in keys.trusted(pair)] == [
        (PUBLIC, "ann b"),
        (OTHER, ""),
    ]


@pytest.mark.parametrize("line", ["ann", "x" * 40 + "y", '"' * 40, "~" * 40, SHOWN[:-1], "\xff\0"])
@pytest.mark.parametrize("name", [keys.AUTHORIZED, keys.TRUSTED])
def test_a_line_that_is_no_key_is_named(name: str, line: str) -> None:
    pair = keys.load(create=True)
    pair.path.with_name(name).write_text(f"# on call\n{line}\n", "latin-1")
    with pytest.raises(KeyProblem, match="line 2"):
        (keys.authorized if name == keys.AUTHORIZED else keys.trusted)(pair)


def test_a_list_that_others_can_write_is_refused() -> None:
    pair = keys.load(create=True)
    listed = pair.path.with_name(keys.AUTHORIZED)
    listed.touch()
    listed.chmod(0o666)
    with pytest.raises(KeyProblem) as problem:
        keys.authorized(pair)
    assert problem.value.next.endswith(f"chmod go-w {listed}")


def test_a_list_that_is_a_pipe_keeps_nobody_waiting() -> None:
    pair = keys.load(create=True)
    os.mkfifo(pair.path.with_name(keys.AUTHORIZED))
    with pytest.raises(KeyProblem, match="is no file"):
        keys.authorized(pair)


def test_a_list_without_end_is_refused() -> None:
    pair = keys.load(create=True)
    pair.path.with_name(keys.AUTHORIZED).write_text("#" * 300_000)
    with pytest.raises(KeyProblem, match="longer than"):
        keys.authorized(pair)


def test_what_is_not_understood_stays_when_a_list_is_changed() -> None:
    pair = keys.load(create=True)
    listed = pair.path.with_name(keys.AUTHORIZED)
    kept = [b"# on call", b"", b"what is \xff this?", PUBLIC + b" ann # till may", b"  # end"]
    listed.write_bytes(b"\r\n".join(kept[:2]) + b"\n" + b"\n".join(kept[2:]))
    editing.admit(pair, AuthorizedKey(PUBLIC, "act"))
    editing.admit(pair, AuthorizedKey(OTHER, "read", "bob"))
    assert listed.read_bytes().splitlines() == [
        *kept[:3],
        f"{SHOWN} act ann  # till may".encode(),
        kept[4],
        f"{keys.shown(OTHER)} read bob".encode(),
    ]
    assert editing.named(pair, "bob") == (OTHER,)
    assert editing.remove(pair, PUBLIC) == (keys.AUTHORIZED,)
    assert editing.remove(pair, PUBLIC) == ()
    editing.remove(pair, OTHER)
    assert listed.read_bytes().splitlines() == [*kept[:3], kept[4]]
    assert stat.S_IMODE(listed.stat().st_mode) == 0o600


def test_a_list_that_others_can_write_is_not_made_good_by_changing_it() -> None:
    pair = keys.load(create=True)
    listed = pair.path.with_name(keys.AUTHORIZED)
    listed.write_text(f"{keys.shown(OTHER)} act\n")
    listed.chmod(0o620)
    with pytest.raises(KeyProblem):
        editing.admit(pair, AuthorizedKey(PUBLIC, "act"))
    assert SHOWN not in listed.read_text()


def test_a_list_that_is_a_link_stays_one(tmp_path: Path) -> None:
    pair = keys.load(create=True)
    listed = pair.path.with_name(keys.AUTHORIZED)
    (tmp_path / "elsewhere").touch(0o600)
    listed.symlink_to(tmp_path / "elsewhere")
    editing.admit(pair, AuthorizedKey(PUBLIC, "act"))
    assert listed.is_symlink()
    assert SHOWN in (tmp_path / "elsewhere").read_text()


def test_many_that_admit_at_once_lose_nobody() -> None:
    pair = keys.load(create=True)
    program = (
        "import sys; from frtop_probe.keys import editing, AuthorizedKey, load, read\n"
        "pair = load(create=False)\n"
        "for word in sys.argv[1:]: editing.admit(pair, AuthorizedKey(read(word), 'act'))"
    )
    publics = [zmq.curve_keypair()[0] for _ in range(24)]
    words = [keys.shown(public) for public in publics]
    children = [
        subprocess.Popen([sys.executable, "-c", program, *words[n : n + 6]])
        for n in range(0, 24, 6)
    ]
    assert [child.wait() for child in children] == [0] * 4
    assert {one.public for one in keys.authorized(pair)} == set(publics)
    assert len(list(pair.path.parent.iterdir())) == 2
