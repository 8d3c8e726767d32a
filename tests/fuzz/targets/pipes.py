"""Both ends of a pipe to a host, and the programs that list hosts."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

from connect.pipes.test_conversation import BOOT, HELLO, frame, update
from connect.pipes.test_failures import CHANGED, FORBIDDEN, NO_SHELL
from frtop_probe import wire
from frtop_probe.pipe.input import LineReader, LineSplitter
from frtop_probe.pipe.lines import LineError, encoded, tool_block
from frtop_tui.connect.pipes import kubernetes, slurm
from frtop_tui.connect.pipes.conversation import Conversation
from frtop_tui.connect.pipes.failures import Ending, describe
from frtop_tui.connect.pipes.framing import LineStream
from frtop_tui.errors import FrtopError
from fuzz.mutations import Mutator, as_json, as_text
from fuzz.target import Take, refused, target


def _from_agents(_: Path) -> Iterable[bytes]:
    up = frame("up", update())
    answer = frame("res", wire.TimeResponse(1, 5, 6))
    hello = HELLO[:-1] + b', "examines": true, "problems": [{"text": "no", "next": "do"}]}'
    ended = b'frtop-ended {"status": 255, "errors": ["Permission denied (publickey)."]}'
    error = b'frtop-error {"text": "no Python", "next": "--python"}'
    yield b"\n".join(
        (b"Welcome!", BOOT, HELLO, up, answer, b"frtop-pong 12", b"frtop-later x", b"")
    )
    yield b"\n".join((BOOT, hello, b"frtop-more " + up[9:20], b"frtop-doctor {}", error, b""))
    yield b"\n".join((BOOT, b"0: mpi", ended, b""))


def _as_lines(data: bytes, mutator: Mutator) -> bytes:
    """Lines moved or changed; also inside of their base64, or as JSON."""
    if mutator.chance(0.5):
        return as_text(data, mutator)
    lines = data.split(b"\n")
    at = mutator.random.randrange(len(lines))
    word, _, rest = lines[at].partition(b" ")
    try:
        inside = base64.b64decode(rest, validate=True)
        changed = base64.b64encode(mutator.any_bytes(inside))
    except ValueError:
        changed = as_json(rest, mutator)
    return b"\n".join((*lines[:at], word + b" " + changed, *lines[at + 1 :]))


@target("what comes from the other end of a pipe", _as_lines, _from_agents, most=20_000)
def from_agents(_: Path, __: ExitStack) -> Take:
    def take(data: bytes) -> bool:
        stream = LineStream()
        talk = Conversation("node0", frozenset(("node3", "node4")), ("ssh", "node0", "sh"))
        events = 0
        for piece in (data[: len(data) // 2], data[len(data) // 2 :]):
            for line in stream.feed(piece):
                for event in talk.take(line):
                    events += 1
                    if (error := getattr(event, "error", None)) is not None:
                        refused(error)
        return events > 0

    return take


def _to_agents(_: Path) -> Iterable[bytes]:
    request = encoded(b"req", wire.to_frame(wire.StateRequest(1)))
    tool = b"".join(tool_block("py-spy", b"\x7fELF" + b"x" * 90))
    yield b"".join((request, b"ping 5\nto 3 ping 6\nexamine tool python\n", tool, b"bye\n"))


@target("what an agent at the end of a pipe is sent", _as_lines, _to_agents, most=20_000)
def to_agents(_: Path, __: ExitStack) -> Take:
    def take(data: bytes) -> bool:
        splitter, reader = LineSplitter(), LineReader("3")
        try:
            words = [reader.read(line) for line in splitter.feed(data)]
        except LineError as error:
            return refused(error)
        return any(words)

    return take


@target(
    "what ssh, kubectl and srun say when they fail", as_text,
    lambda _: [
        CHANGED.encode(), NO_SHELL.encode(), FORBIDDEN.encode(),
        b"ann@node3: Permission denied (publickey,password).",
        b"ssh: Could not resolve hostname node3: Name or service not known",
        b"open failed: administratively prohibited\nConnection closed by UNKNOWN port 65535",
    ],
    most=4000,
)  # fmt: skip
def failures(_: Path, __: ExitStack) -> Take:
    def take(data: bytes) -> bool:
        said = tuple(data.decode("utf-8", "replace").split("\n"))
        for through in ("", "gate"):
            ending = Ending("node3", ("ssh", "node3", "sh"), 255, said, said[:2], through=through)
            refused(describe(ending).error)
        return True

    return take


def _lists(_: Path) -> Iterable[bytes]:
    statuses = [{"name": "main", "ready": True}]
    metadata = {"name": "train-0", "namespace": "ml", "annotations": {"a": "b"}}
    status = {"phase": "Running", "containerStatuses": statuses}
    yield json.dumps({"items": [{"metadata": metadata, "status": status}]}).encode()
    yield b"node[0-2,7],gpu[01-12]-ib[0-1]\n"
    yield b"node0\nnode1\n"


def _as_list(data: bytes, mutator: Mutator) -> bytes:
    return as_json(data, mutator) if data[:1] == b"{" else as_text(data, mutator)


@target("lists of hosts that squeue and kubectl print", _as_list, _lists, most=20_000)
def host_lists(_: Path, stack: ExitStack) -> Take:
    said = [""]
    for module in (slurm, kubernetes):
        stack.enter_context(patch.object(module, "output_of", lambda *_: said[0]))
    place = kubernetes.parse("k8s:ml/app=train")
    job: Any = slurm.SlurmJob("12")

    def take(data: bytes) -> bool:
        said[0] = data.decode("utf-8", "replace")
        taken = 0
        for find in (job._nodes, place.find):
            try:
                assert len(find()) <= slurm.MAX_NODES
                taken += 1
            except FrtopError as error:
                refused(error)
        return taken > 0

    return take
