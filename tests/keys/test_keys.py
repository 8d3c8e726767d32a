"""One private key per user, made once, and the lists of other users' keys."""

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
from hypothesis import given
from hypothesis import strategies as st
from zmq.utils import z85

from frtop_probe import keys
from frtop_probe.keys import AuthorizedKey, KeyProblem, editing
from frtop_probe.keys.pair import _is_incomplete


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("FRTOP_KEY_FILE", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config"


def test_a_key_is_made_once_and_is_private(config: Path) -> None:
    first = keys.load(create=True)
    assert first.path == config / "frtop" / "key"
    assert stat.S_IMODE(first.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(first.path.parent.stat().st_mode) == 0o700
    assert keys.load(create=True) == keys.load(create=False) == first
    assert zmq.curve_public(first.secret) == first.public
    assert first.secret.decode() not in repr(first) + str(first)
    assert list(first.path.parent.iterdir()) == [first.path]


def test_without_xdg_config_home_the_key_is_under_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert keys.path() == tmp_path / ".config" / "frtop" / "key"


def test_the_variable_overrides_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRTOP_KEY_FILE", str(tmp_path / "mine"))
    assert keys.load(create=True).path == tmp_path / "mine"


_MANY = """
import errno, os, sys
from frtop_probe import keys
def link(*_):
    raise OSError(errno.EPERM, "no hard links")
if sys.argv[1] == "without":
    os.link = link
wait, go = os.pipe()
for _ in range(16):
    if not os.fork():
        os.close(go)
        os.read(wait, 1)
        os.write(1, keys.load(create=True).shown.encode() + b"\\n")
        os._exit(0)
os.close(go)
for _ in range(16):
    os.wait()
"""


@pytest.mark.parametrize("links", ["with", "without"])
def test_concurrent_processes_get_the_same_key(config: Path, links: str) -> None:
    command = [sys.executable, "-c", _MANY, links]
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    assert printed == 16 * f"{keys.load(create=False).shown}\n"
    assert list((config / "frtop").iterdir()) == [config / "frtop" / "key"]


def test_a_missing_key_is_not_made_without_create(config: Path) -> None:
    with pytest.raises(KeyProblem) as problem:
        keys.load(create=False)
    assert str(config / "frtop" / "key") in problem.value.text
    assert "copy" in problem.value.next
    assert not (config / "frtop" / "key").exists()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_key_readable_by_others_is_refused(mode: int) -> None:
    path = keys.load(create=True).path
    path.chmod(mode)
    with pytest.raises(KeyProblem) as problem:
        keys.load(create=True)
    assert problem.value.next == f"chmod 600 {path}"


def test_a_key_of_another_user_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    keys.load(create=True)
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    with pytest.raises(KeyProblem, match="another user"):
        keys.load(create=True)


def test_an_incomplete_key_file_is_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("frtop_probe.keys.pair._UNFINISHED_S", 20.0)
    complete = keys.load(create=True)
    text = complete.path.read_bytes()
    for cut in (0, 1, 30, text.index(b'"secret"')):
        os.truncate(complete.path, cut)
        writer = threading.Timer(0.05, complete.path.write_bytes, [text])
        writer.start()
        assert keys.load(create=False) == complete
        writer.join()


def test_every_prefix_of_a_key_file_is_incomplete() -> None:
    content = {"public": OTHER_PUBLIC.decode()[:-2] + "}}", "secret": "{}" * 20}
    text = json.dumps(content, indent=1)
    assert not _is_incomplete(text)
    assert all(_is_incomplete(text[:cut]) for cut in range(len(text)))


def test_a_user_without_a_home_is_told_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setenv("XDG_CONFIG_HOME", "")
    monkeypatch.setattr(Path, "home", nowhere)
    with pytest.raises(KeyProblem, match="no home") as problem:
        keys.load(create=True)
    assert "FRTOP_KEY_FILE" in problem.value.next


@given(st.one_of(st.binary(max_size=100), st.sampled_from([b"{}", b"[]", b'{"public": 1}'])))
def test_a_malformed_key_file_is_refused(content: bytes) -> None:
    path = keys.load(create=True).path
    complete = path.read_bytes()
    try:
        path.write_bytes(content)
        with (
            patch("frtop_probe.keys.pair._UNFINISHED_S", 0.0),
            pytest.raises(KeyProblem, match="does not hold a key pair"),
        ):
            keys.load(create=True)
    finally:
        path.write_bytes(complete)


def test_keys_that_do_not_match_are_refused() -> None:
    path = keys.load(create=True).path
    secret = zmq.curve_keypair()[1].decode()
    public = keys.load(create=True).public.decode()
    path.write_text(f'{{"public": "{public}", "secret": "{secret}"}}')
    with pytest.raises(KeyProblem, match="does not hold a key pair"):
        keys.load(create=True)


def test_a_folder_that_cannot_be_made_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FRTOP_KEY_FILE", str(tmp_path / "file" / "key"))
    with pytest.raises(KeyProblem) as problem:
        keys.load(create=True)
    assert "FRTOP_KEY_FILE" in problem.value.next


PUBLIC = b"Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID"
OTHER_PUBLIC = b"D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs"
FORMATTED = keys.format_public(PUBLIC)


def test_a_formatted_key_needs_no_quoting_and_is_no_option() -> None:
    word = keys.format_public(b"-" + PUBLIC[1:])
    assert re.fullmatch(r"frtop_[A-Za-z0-9_-]{44}", word)
    assert shlex.quote(word) == word


@given(st.binary(min_size=32, max_size=32))
def test_both_forms_parse_to_the_same_key(raw: bytes) -> None:
    public = z85.encode(raw)
    assert (
        keys.parse_public(keys.format_public(public))
        == keys.parse_public(public.decode())
        == public
    )


def test_typing_errors_are_detected() -> None:
    letters = string.ascii_letters + string.digits + "-_"
    slips = {FORMATTED[:at] + one + FORMATTED[at + 1 :] for at in range(50) for one in letters} - {
        FORMATTED
    }
    passed = [slip for slip in slips if keys.parse_public(slip) is not None]
    assert len(passed) < 0.01 * len(slips)
    assert not any(keys.parse_public(FORMATTED[:at]) for at in range(50))
    assert not any(keys.parse_public(FORMATTED + one) for one in letters)


@given(st.text(max_size=60))
def test_any_text_parses_to_a_key_or_none(text: str) -> None:
    found = keys.parse_public(text)
    assert found is None or len(found) == 40


@pytest.mark.parametrize(
    ("line", "right", "name"),
    [
        ("{}", "read", ""),
        ("{} read", "read", ""),
        ("{} act", "act", ""),
        ("  {}\tact   ann   from  accounting \r", "act", "ann from accounting"),
        ("{} ann@laptop", "read", "ann@laptop"),
        ("{} Act", "read", "Act"),
        ("{} act # until may", "act", ""),
        ("{} ann #act", "read", "ann"),
        ("{} # act", "read", ""),
    ],
)
@pytest.mark.parametrize("key", [FORMATTED, PUBLIC.decode()])
def test_lines_of_authorized_keys(line: str, right: str, name: str, key: str) -> None:
    pair = keys.load(create=True)
    pair.path.with_name(keys.AUTHORIZED).write_text(f"# on call\n\n{line.format(key)}\n")
    assert [(one.public, one.right, one.name) for one in keys.authorized(pair)] == [
        (PUBLIC, right, name)
    ]


def test_a_key_listed_twice_has_the_lesser_right() -> None:
    pair = keys.load(create=True)
    lines = [
        f"{FORMATTED} act",
        f"{PUBLIC.decode()} read",
        f"{FORMATTED} act",
        f"{pair.shown} read",
    ]
    pair.path.with_name(keys.AUTHORIZED).write_text("\n".join(lines))
    assert [(one.public, one.right) for one in keys.authorized(pair)] == [(PUBLIC, "read")]


def test_trusted_keys_have_names() -> None:
    pair = keys.load(create=True)
    assert keys.trusted(pair) == ()
    file = pair.path.with_name(keys.TRUSTED)
    file.write_text(
        f"{FORMATTED} ann b\n# bob\n{keys.format_public(OTHER_PUBLIC)}\n"
        f"{FORMATTED} twice\n{pair.shown}\n"
    )
    assert [(one.public, one.name) for one in keys.trusted(pair)] == [
        (PUBLIC, "ann b"),
        (OTHER_PUBLIC, ""),
    ]


@pytest.mark.parametrize(
    "line", ["ann", "x" * 40 + "y", '"' * 40, "~" * 40, FORMATTED[:-1], "\xff\0"]
)
@pytest.mark.parametrize("name", [keys.AUTHORIZED, keys.TRUSTED])
def test_a_malformed_line_is_reported_with_its_number(name: str, line: str) -> None:
    pair = keys.load(create=True)
    pair.path.with_name(name).write_text(f"# on call\n{line}\n", "latin-1")
    with pytest.raises(KeyProblem, match="line 2"):
        (keys.authorized if name == keys.AUTHORIZED else keys.trusted)(pair)


def test_a_list_writable_by_others_is_refused_and_not_changed() -> None:
    pair = keys.load(create=True)
    list_file = pair.path.with_name(keys.AUTHORIZED)
    list_file.write_text(f"{keys.format_public(OTHER_PUBLIC)} act\n")
    for mode in (0o666, 0o620):
        list_file.chmod(mode)
        with pytest.raises(KeyProblem) as problem:
            keys.authorized(pair)
        assert problem.value.next.endswith(f"chmod go-w {list_file}")
        with pytest.raises(KeyProblem):
            editing.admit(pair, AuthorizedKey(PUBLIC, "act"))
    assert FORMATTED not in list_file.read_text()


def test_what_is_no_file_or_too_long_is_refused_as_a_list() -> None:
    pair = keys.load(create=True)
    list_file = pair.path.with_name(keys.AUTHORIZED)
    os.mkfifo(list_file)
    with pytest.raises(KeyProblem, match="not a regular file"):
        keys.authorized(pair)
    list_file.unlink()
    list_file.write_text("#" * 300_000)
    with pytest.raises(KeyProblem, match="longer than"):
        keys.authorized(pair)


def test_comments_and_malformed_lines_survive_a_change() -> None:
    pair = keys.load(create=True)
    list_file = pair.path.with_name(keys.AUTHORIZED)
    lines = [b"# on call", b"", b"what is \xff this?", PUBLIC + b" ann # till may", b"  # end"]
    list_file.write_bytes(b"\r\n".join(lines[:2]) + b"\n" + b"\n".join(lines[2:]))
    editing.admit(pair, AuthorizedKey(PUBLIC, "act"))
    editing.admit(pair, AuthorizedKey(OTHER_PUBLIC, "read", "bob"))
    assert list_file.read_bytes().splitlines() == [
        *lines[:3],
        f"{FORMATTED} act ann  # till may".encode(),
        lines[4],
        f"{keys.format_public(OTHER_PUBLIC)} read bob".encode(),
    ]
    assert editing.find_by_name(pair, "bob") == (OTHER_PUBLIC,)
    assert editing.remove(pair, PUBLIC) == (keys.AUTHORIZED,)
    assert editing.remove(pair, PUBLIC) == ()
    editing.remove(pair, OTHER_PUBLIC)
    assert list_file.read_bytes().splitlines() == [*lines[:3], lines[4]]
    assert stat.S_IMODE(list_file.stat().st_mode) == 0o600


def test_a_list_behind_a_symlink_is_changed_in_place(tmp_path: Path) -> None:
    pair = keys.load(create=True)
    list_file = pair.path.with_name(keys.AUTHORIZED)
    (tmp_path / "elsewhere").touch(0o600)
    list_file.symlink_to(tmp_path / "elsewhere")
    editing.admit(pair, AuthorizedKey(PUBLIC, "act"))
    assert list_file.is_symlink()
    assert FORMATTED in (tmp_path / "elsewhere").read_text()


def test_concurrent_changes_lose_no_entry() -> None:
    pair = keys.load(create=True)
    program = (
        "import os, sys; from frtop_probe.keys import editing, AuthorizedKey, load, parse_public\n"
        "pair = load(create=False)\n"
        "words = sys.argv[1:]\n"
        "for n in range(4):\n"
        "    if not os.fork():\n"
        "        for word in words[n::4]:\n"
        "            editing.admit(pair, AuthorizedKey(parse_public(word), 'act'))\n"
        "        os._exit(0)\n"
        "assert [os.wait()[1] for _ in range(4)] == [0] * 4\n"
    )
    publics = [zmq.curve_keypair()[0] for _ in range(24)]
    words = [keys.format_public(public) for public in publics]
    subprocess.run([sys.executable, "-c", program, *words], check=True)
    assert {one.public for one in keys.authorized(pair)} == set(publics)
    assert len(list(pair.path.parent.iterdir())) == 2
