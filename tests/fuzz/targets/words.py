"""What a person types, or writes into a file of settings."""

from __future__ import annotations

import argparse
import io
import os
import shlex
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Final
from unittest.mock import PropertyMock, patch

import zmq

from frtop_probe import keys
from frtop_probe.agent.announcement import read_card
from frtop_probe.keys import KeyProblem
from frtop_probe.ring.folder import AgentFiles
from frtop_probe.ring.rank_ranges import MAX_RANKS, fold, unfold
from frtop_tui.cli import settings
from frtop_tui.cli.parser import parse, parser
from frtop_tui.connect.endpoints import address_of, expand
from frtop_tui.connect.pipes.places import places
from frtop_tui.errors import FrtopError
from frtop_tui.job import naming
from frtop_tui.screens.commands import COMMANDS
from frtop_tui.screens.completion import CommandError, CommandScope, complete, interpret
from frtop_tui.screens.filter import FilterError, matching
from frtop_tui.widgets.grid_layout import natural_key
from fuzz.mutations import as_json, as_text
from fuzz.target import Take, refused, target
from screens.scenes import hung

MOST_HOSTS: Final = 1000
"""Instead of the real bound: a list of as many names as that takes a second."""


def few_hosts(stack: ExitStack) -> None:
    stack.enter_context(patch.object(naming, "MAX_HOSTS", MOST_HOSTS))


def text_of(data: bytes) -> str:
    """As Python gets it from a terminal or `sys.argv`: any bytes are possible."""
    return data.decode("utf-8", "surrogateescape")


def lines(*texts: str) -> list[bytes]:
    return [text.encode() for text in texts]


@target(
    "host lists of --connect, --ssh, --via, --through",
    as_text,
    lambda _: lines(
        "local", "node[0-7]", "node[0-3],node9:7700", "[::1]:7677", "10.0.0.3:7677",
        "gpu[01-12,15]-ib[0-1]", "me@node1:22 slurm:123_4", "k8s:ml/app=train,role in (a,b):main",
        "a1 b2\0docker exec -i {host} sh", "node[1-2]\0\0gate", "n[0-100/2]&n[4-8]", "a^b!c",
    ),
    most=8192,
)  # fmt: skip
def hosts(_: Path, stack: ExitStack) -> Take:
    few_hosts(stack)

    def take(data: bytes) -> bool:
        names, via, through = [*text_of(data).split("\0"), "", ""][:3]
        taken = 0
        for read in (
            lambda: [address_of(name) for name in expand(names.split())],
            lambda: places(names.split(), via, through),
        ):
            try:
                found = read()
            except FrtopError as error:
                refused(error)
                continue
            assert len(found) <= 10 * MOST_HOSTS, f"{len(found)} hosts"
            taken += 1
        return taken > 0

    return take


@target(
    "lists of ranks, such as 0-3,8",
    as_text,
    lambda _: lines("0-36,38-63", "7", "0-999999", "1,2,3"),
    most=8192,
)
def ranks(_: Path, __: ExitStack) -> Take:
    def take(data: bytes) -> bool:
        try:
            found = unfold(text_of(data))
        except ValueError:
            return False
        assert len(found) <= MAX_RANKS
        if len(found) < 10_000 and all(rank >= 0 for rank in found):
            assert unfold(fold(found)) == tuple(sorted(set(found)))
        return True

    return take


@target(
    "filters, typed behind `/`",
    as_text,
    lambda _: lines(
        "late", "!late,dead", "rank:0-7,64 host:node[0-3] group:tp marked", "0-7", "host:node1,b",
        "!group:dp !host:n", "waiting !marked",
    ),
    most=8192,
)  # fmt: skip
def filters(_: Path, stack: ExitStack) -> Take:
    few_hosts(stack)
    frame = hung()

    def take(data: bytes) -> bool:
        text = text_of(data)
        natural_key(text)  # of a host, which may be called so
        try:
            matching(text, frame, {1})
        except FilterError as error:
            return refused(error)
        return True

    return take


@target(
    "commands, typed behind `:`, and their completion",
    as_text,
    lambda _: lines(
        "rank 3", "ranks", "group tp", "lens lag", "host node1", "filter late !marked", "job train",
        "export html /tmp/none/x", "capture", "statistics 30", "h", "tensors", "timeline", "copy",
        "stacks", "settings", "profile 3", "numbers on", "statistics 10 tp",
    ),
    most=8192,
)  # fmt: skip
def commands(_: Path, stack: ExitStack) -> Take:
    few_hosts(stack)
    scope = CommandScope(hung(), {1, 2})

    def take(data: bytes) -> bool:
        text = text_of(data)
        complete(text, COMMANDS, scope)
        try:
            interpret(text, COMMANDS, scope)
        except CommandError as error:
            return refused(error)
        return True

    return take


def _command_lines() -> list[bytes]:
    words = (
        "", "open a.cap b.box --job x", "diagnose --ssh node[0-3] --json", "watch -- true",
        "stacks --rank 0-3", "statistics --window 30 --group tp", "export html -o x.html a.cap",
        "capture --redact -o a.cap", "tensors --rank 2 --op 7", "profile --steps 3 --memory",
        "run --record d -- python a.py", "key add frtop_abc act", "--connect node1:7700",
        "metrics --port 9100", "stream --json", "check plan.toml", "timeline a.cap", "help open",
        "numbers --rank 0 --for 3", "report a.cap", "doctor --ssh node1", "jobs", "demo",
        "--version", "completion bash", "config --json", "output --rank 1", "flame --seconds 2",
    )  # fmt: skip
    return [b"\0".join(word.encode() for word in shlex.split(line)) for line in words]


@target("the command line", as_text, lambda _: _command_lines(), most=8192, quick=60)
def command_line(folder: Path, stack: ExitStack) -> Take:
    few_hosts(stack)
    stack.enter_context(patch.dict(os.environ, {"HOME": str(folder), "FRTOP_SSH": ""}))
    # It takes 25 ms to make, and remembers nothing.
    stack.enter_context(patch("frtop_tui.cli.parser.parser", cache(parser)))

    def take(data: bytes) -> bool:
        words = [word.replace("\0", "") for word in text_of(data).split("\0")] if data else []
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            try:
                parse(words)
            except FrtopError as error:
                return refused(error)
            except SystemExit as end:  # of --help
                return not end.code
        return True

    return take


CONFIG: Final = b"""connect = "node[0-7]"
ssh = ["node8", "slurm:12"]
via = "docker exec -i {host} sh"
theme = "dark"
window = 30
read-only = true
auto-capture = false
folder = "~/captures"
[watch]
every = 10
shell = "mail -s hang me"
"""


@target("the configuration file", as_text, lambda _: [CONFIG, b"theme = 'plain'\n"], most=70_000)
def configuration(folder: Path, _: ExitStack) -> Take:
    path = folder / "config.toml"

    def take(data: bytes) -> bool:
        path.write_bytes(data)
        path.chmod(0o600)
        try:
            found = settings.Settings({"FRTOP_CONFIG": str(path)})
            used = settings.in_use(argparse.Namespace(connect=None, ssh=None), found)
        except FrtopError as error:
            return refused(error)
        settings.document(used, str(path), there=True)
        for key in used:
            assert settings.place(path, data.decode(), key)
        return True

    return take


def _keys(_: Path) -> list[bytes]:
    one, other = (keys.format_public(zmq.curve_keypair()[0]) for _ in range(2))
    plain, secret = zmq.curve_keypair()
    return [
        f"# all\n{one} act ann # till may\n\n{other} read bob\n{plain.decode()} carl\n".encode(),
        b'{\n "public": "%b",\n "secret": "%b"\n}\n' % (plain, secret),
    ]


@target(
    "lists of keys, and the key file",
    as_text,
    _keys,
    most=2000,
)
def key_files(folder: Path, stack: ExitStack) -> Take:
    stack.enter_context(patch.dict(os.environ, {"FRTOP_KEY_FILE": str(folder / "key")}))
    stack.enter_context(patch("frtop_probe.keys.pair._UNFINISHED_S", 0.0))
    pair = keys.load(create=True)
    right = pair.path.read_bytes()

    def take(data: bytes) -> bool:
        taken = 0
        pair.path.write_bytes(data)
        try:
            taken += keys.load(create=False).public == pair.public
        except KeyProblem as problem:
            refused(problem)
        pair.path.write_bytes(right)
        for name, read in ((keys.AUTHORIZED, keys.authorized), (keys.TRUSTED, keys.trusted)):
            path = pair.path.with_name(name)
            path.write_bytes(data)
            path.chmod(0o600)
            try:
                taken += len(read(pair)) > 0
            except KeyProblem as problem:
                refused(problem)
            path.unlink()
        return taken > 0

    return take


CARD: Final = (
    b'{"pid": 1, "host": "h", "address": "10.0.0.3", "pub": 7677, "ask": 7678, "public_key": "k",'
    b' "instance": "i", "version": "0.1.0", "pid_namespace": 4026531836, "net_namespace": 0}'
)


@target("the card of an agent, in a folder that is shared", as_json, lambda _: [CARD], most=4000)
def agent_card(folder: Path, stack: ExitStack) -> Take:
    files = AgentFiles(folder, "1")
    stack.enter_context(patch.object(AgentFiles, "lives", PropertyMock(return_value=True)))

    def take(data: bytes) -> bool:
        files.card.write_bytes(data)
        return read_card(files) is not None

    return take
