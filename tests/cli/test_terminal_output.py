"""What is printed where it could control a terminal, or where the encoding lacks its letters."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from frtop_tui.cli import main, output
from frtop_tui.files import capture
from frtop_tui.files.formats.registry import FORMATS
from screens import scenes

NAME = "prüfe_日本\U0001f600"
EVIL = "x\x1b]0;own\x07\x7f\x9b31m\u202e\u2066"
FILE = "FILE"
VERBS = (
    ("diagnose", FILE), ("diagnose", FILE, "--json"), ("diagnose", FILE, "--explain"),
    ("diagnose", FILE, "--bogus=" + EVIL + NAME), ("statistics", FILE),
    ("statistics", FILE, "--json"), ("metrics", "--once", FILE), ("history",), ("config",),
    ("config", "--json"),
)  # fmt: skip
EXPORTS = tuple(
    ("export", FILE, "-o", "-", "--format", one) for one in FORMATS if not FORMATS[one].is_folder
)


def recorded(path: Path, name: str) -> Path:
    """A capture of a job whose names are such."""
    frame = scenes.hung()
    assert frame.job is not None
    job = replace(frame.job, name=name)
    ranks = {
        rank: replace(view, host=f"{view.host}{name}",
                      identity=replace(view.identity, job=job, argv=(name,)), notes=(name,))
        for rank, view in frame.ranks.items()
    }  # fmt: skip
    hosts = tuple(replace(one, name=f"{one.name}{name}", notes=(name,)) for one in frame.hosts)
    capture.write(path, replace(frame, job=job, ranks=ranks, hosts=hosts), {}, ())
    return path


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("hostile") / "x.cap", EVIL)


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("foreign") / "x.cap", NAME)


class Stream(io.TextIOWrapper):
    """A terminal, or a file."""

    def __init__(self, encoding: str, *, terminal: bool) -> None:
        super().__init__(io.BytesIO(), encoding=encoding, errors="strict")
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal

    def said(self) -> str:
        self.flush()
        assert isinstance(self.buffer, io.BytesIO)
        return self.buffer.getvalue().decode(self.encoding)


@pytest.fixture
def printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., list[str]]]:
    """Runs a verb; returns what it writes to stdout, and to stderr."""
    for name in ("FRTOP_DIR", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("FRTOP_AGENT", "0")

    def run(words: tuple[str, ...], file: Path, encoding: str, *, terminal: bool) -> list[str]:
        streams = [Stream(encoding, terminal=terminal) for _ in range(2)]
        monkeypatch.setattr(sys, "stdout", streams[0])
        monkeypatch.setattr(sys, "stderr", streams[1])
        main([str(file) if word == FILE else word for word in words])
        return [one.said() for one in streams]

    yield run
    monkeypatch.undo()


def harmless(said: str) -> bool:
    return all(line.isprintable() for line in said.replace("\r\x1b[K", "").split("\n"))


@pytest.mark.parametrize("words", [*VERBS, *EXPORTS])
def test_no_verb_controls_a_terminal(
    words: tuple[str, ...], hostile: Path, printed: Callable[..., list[str]]
) -> None:
    out, err = printed(words, hostile, "utf-8", terminal=True)
    assert out or err
    assert harmless(out), out
    assert harmless(err), err
    if out and ("--json" in words or "json" in words):  # its feature may not be there
        json.loads(out)


@pytest.mark.parametrize("words", VERBS)
def test_letters_that_the_encoding_lacks_are_escaped(
    words: tuple[str, ...], foreign: Path, printed: Callable[..., list[str]]
) -> None:
    out, err = printed(words, foreign, "ascii", terminal=False)
    assert out or err
    if words == ("diagnose", FILE, "--json"):
        assert NAME in str(json.loads(out))


def test_micro_is_spelled_where_the_encoding_lacks_it() -> None:
    output.prepare()
    assert "340 µs, Ω".encode("ascii", output.ESCAPING) == rb"340 us, \u03a9"


def on_terminal(words: list[str], environ: dict[str, str]) -> str:
    """What the program writes to a terminal that is its stdin, stdout and stderr."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "frtop_tui", *words], stdin=theirs, stdout=theirs, stderr=theirs,
        env={**os.environ, **environ},
    ) as process:  # fmt: skip
        os.close(theirs)
        said = b"".join(read_all(ours))
        os.close(ours)
        process.wait(60)
    return said.decode()


def read_all(descriptor: int) -> Iterator[bytes]:
    with suppress(OSError):  # the other end was closed
        while data := os.read(descriptor, 65536):
            yield data


def test_a_real_terminal_gets_no_control_characters(hostile: Path) -> None:
    said = on_terminal(["diagnose", str(hostile)], {})
    assert said
    assert harmless(said.replace("\r\n", "\n"))


def test_a_real_pipe_gets_escapes(foreign: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "frtop_tui", "diagnose", str(foreign)], capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"}, timeout=60, check=False,
    )  # fmt: skip
    assert b"pr\\u00fcfe_\\u65e5\\u672c\\ud83d\\ude00" in done.stdout
    assert not done.stderr


@pytest.mark.parametrize(("words", "term"), [(["demo"], "unknown"), ([], "dumb")])
def test_no_screen_is_drawn_where_it_could_not_be_left(words: list[str], term: str) -> None:
    said = on_terminal(words, {"TERM": term})
    assert f"(TERM={term})" in said
    assert "next: frtop d" in said
    assert "\x1b" not in said


@given(st.text())
def test_a_terminal_gets_harmless_lines_and_valid_json(text: str) -> None:
    stream = Stream("utf-8", terminal=True)
    output.TerminalOutput(stream).write(json.dumps({"name": text}, ensure_ascii=False))
    json.loads(stream.said())
    assert harmless(stream.said())


@pytest.mark.long
def test_a_screen_keeps_its_cells_where_letters_are_missing(foreign: Path) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "frtop_tui", "open", str(foreign)], stdin=theirs, stdout=theirs,
        stderr=theirs, env={**os.environ, "TERM": "xterm-256color", "PYTHONIOENCODING": "ascii"},
    ) as process:  # fmt: skip
        os.close(theirs)
        drawn = b""
        while b"HUNG" not in drawn:
            drawn += os.read(ours, 65536)
        os.write(ours, b"q")
        drawn += b"".join(read_all(ours))
        os.close(ours)
        assert process.wait(60) == 0
    assert b"\\u" not in drawn
    assert b"pr?fe_" in drawn


def test_a_terminal_that_goes_away_while_it_prints_is_no_traceback(hostile: Path) -> None:
    ours, theirs = pty.openpty()
    ended, errors = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-m", "frtop_tui", "diagnose", str(hostile), "--json"], stdin=theirs,
        stdout=theirs, stderr=errors, start_new_session=True,
    ) as process:  # fmt: skip
        os.close(theirs)
        os.close(errors)
        os.read(ours, 10)
        os.close(ours)
        assert process.wait(60) == 1
    assert b"Traceback" not in b"".join(read_all(ended))
    os.close(ended)
