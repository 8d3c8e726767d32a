"""Runs a program as one or several ranks with the recorder prepared, and opens their rings."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import frtop_probe
from free_port import free_port
from frtop_probe import wire
from frtop_probe.agent.ring_view import RingView
from frtop_probe.recorder.ops.reduce_ops import UNTOLD
from frtop_probe.ring.layout import Event, MarkKind, StatusCell
from frtop_probe.ring.marks import MarkRow, read_marks
from frtop_probe.ring.reader import EventRow, Ring
from recorder.warm_ranks import WarmRank

PROBE = Path(frtop_probe.__file__).parents[1]
ZERO = PROBE / "frtop_probe" / "recorder" / "zero"
DEADLINE_S = 150.0
GLOO = "[Gloo] "
"""Begins lines that gloo of torch 2.8 prints to stdout."""


FAKE = """
    import os, signal, sys, threading, time
    import torch, torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore
    def init():
        dist.init_process_group("fake", rank=0, world_size=8, store=FakeStore())
    def wait_for_heartbeats(count):
        from frtop_probe.recorder.process.lifecycle import lifecycle
        from frtop_probe.ring.layout import StatusCell
        cells, deadline = lifecycle.recorder.ring.cells, time.monotonic() + 30
        beats = cells[StatusCell.HEARTBEATS]
        while cells[StatusCell.HEARTBEATS] < beats + count:
            assert time.monotonic() < deadline
            time.sleep(0.01)
"""
"""Begins a program whose backend communicates nothing."""


@dataclass(frozen=True)
class FinishedRank:
    """A rank after its process has ended."""

    pid: int
    code: int
    out: str
    err: str
    folder: Path

    @property
    def ring(self) -> Ring:
        (path,) = self.folder.glob(f"{self.pid}-*.ring")
        return Ring(path)

    @property
    def rings(self) -> list[Path]:
        return sorted(self.folder.glob("*.ring"))


def environment(folder: Path, *, prepared: bool = True, **more: str) -> dict[str, str]:
    """Returns the environment of a rank with its ring in `folder`, prepared as by `frtop run`."""
    folder.mkdir(mode=0o700, exist_ok=True)
    variables = {k: v for k, v in os.environ.items() if not k.startswith("FRTOP_")}
    variables |= {"FRTOP_DIR": str(folder), "FRTOP_AGENT": "0", "OMP_NUM_THREADS": "1"}
    variables["FRTOP_NATIVE"] = os.environ["FRTOP_NATIVE"]
    if prepared:
        variables["PYTHONPATH"] = f"{ZERO}{os.pathsep}{PROBE}"
    return variables | more


def run(
    program: str,
    folder: Path,
    *arguments: str,
    ranks: int = 1,
    cwd: Path | None = None,
    **options: Any,
) -> list[FinishedRank]:
    """Runs `program` as this many ranks and waits for all of them."""
    file = folder.parent / "train.py"
    file.write_text(textwrap.dedent(program))
    base = environment(folder, **options)
    base |= {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    with ExitStack() as stack:
        nothing = stack.enter_context(Path(os.devnull).open())
        processes = []
        for rank in range(ranks):
            out, errors = (stack.enter_context(TemporaryFile("w+")) for _ in range(2))
            process = start(
                file,
                arguments,
                base | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdin=nothing.fileno(),
                stdout=out.fileno(),
                stderr=errors.fileno(),
                cwd=cwd,
            )
            stack.callback(end, process)
            processes.append((process, out, errors))
        deadline = time.monotonic() + DEADLINE_S
        finished = []
        for process, out, errors in processes:
            code = process.wait(timeout=max(0.1, deadline - time.monotonic()))
            out.seek(0)
            errors.seek(0)
            said = "".join(line for line in out if not line.startswith(GLOO))
            finished.append(FinishedRank(process.pid, code, said, errors.read(), folder))
        return finished


def on_fake(tmp_path: Path, program: str, **options: Any) -> FinishedRank:
    """Runs a program that begins with `FAKE`."""
    (ended,) = run(FAKE + program, tmp_path / "rings", **options)
    assert ended.code == 0, ended.err
    return ended


def start(
    file: Path,
    arguments: Sequence[str],
    environ: Mapping[str, str],
    *,
    stdin: int,
    stdout: int,
    stderr: int,
    cwd: Path | None = None,
) -> WarmRank | subprocess.Popen[bytes]:
    """Starts a rank; warm where the recorder is prepared, for that takes a tenth of the time."""
    if "FRTOP_OFF" not in environ and environ.get("PYTHONPATH", "").startswith(str(ZERO)):
        return WarmRank(file, arguments, environ, (stdin, stdout, stderr), cwd)
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", str(file), *arguments],
        env=dict(environ), stdin=stdin, stdout=stdout, stderr=stderr, cwd=cwd,
    )  # fmt: skip


def end(process: WarmRank | subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait(DEADLINE_S)


def run_python(
    folder: Path, *arguments: str, cwd: Path | None = None, prepared: bool = False, **more: str
) -> subprocess.CompletedProcess[str]:
    """Runs an interpreter, by default without preparation, and waits for it."""
    return subprocess.run(
        [sys.executable, *arguments],
        env=environment(folder, prepared=prepared, **{"RANK": "0"} | more),
        capture_output=True,
        text=True,
        timeout=30,
        cwd=cwd,
        check=False,
    )


def code(text: str) -> tuple[str, str]:
    """Returns the arguments that run a text."""
    return "-c", textwrap.dedent(text)


def only_ring(folder: Path) -> Ring:
    (path,) = folder.glob("*.ring")
    return Ring(path)


def ops(ring: Ring, event: Event = Event.OP) -> list[EventRow]:
    """Returns all events of a kind that the ring still holds, oldest first."""
    return [row for row in ring.events(0, ring.shape.slots)[0] if row.event is event]


def marks(ring: Ring, *kinds: MarkKind) -> list[MarkRow]:
    """Returns all marks of these kinds (none given: of all) that the ring still holds."""
    return [row for row in read_marks(ring) if not kinds or row.kind in kinds]


def notes(ring: Ring) -> list[str]:
    """Returns all notes but the one that torch 2.8 causes."""
    return [note for note in ring.notes.values() if note != UNTOLD]


def kinds(ring: Ring) -> list[str]:
    return [kind(ring, row) for row in ops(ring)]


def kind(ring: Ring, row: EventRow) -> str:
    return str(ring.forms[row.key.form]["kind"])


def issuers(ring: Ring) -> list[tuple[str, wire.Issuer | None]]:
    """Kind and issuer of each op."""
    view = RingView(ring)
    return [(kind(ring, row), view.issuer(row.issuer)) for row in ops(ring)]


def signature(ring: Ring, row: EventRow) -> wire.Signature:
    found = RingView(ring).signature(row.key, row.reduce)
    assert found is not None
    return found


def checked(ended: list[FinishedRank]) -> list[FinishedRank]:
    for one in ended:
        assert one.code == 0, one.err
        assert one.ring.cell(StatusCell.HOOK_ERRORS) == 0
    return ended
