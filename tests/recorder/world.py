"""Runs a program on some ranks with the recorder prepared, and reads what it left."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import frtop_probe
from frtop_probe.ring.layout import Event
from frtop_probe.ring.reader import EventRow, Ring

ZERO = Path(frtop_probe.__file__).parent / "recorder" / "zero"
DEADLINE_S = 60.0


@dataclass(frozen=True)
class Ended:
    """One process of a world, after its end."""

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
    """Of a process whose rings go to `folder`; `prepared` as `frtop run` would have it."""
    folder.mkdir(mode=0o700, exist_ok=True)
    kept = {k: v for k, v in os.environ.items() if not k.startswith("FRTOP_")}
    kept |= {"FRTOP_DIR": str(folder), "FRTOP_AGENT": "0", "OMP_NUM_THREADS": "1"}
    if prepared:
        kept["PYTHONPATH"] = str(ZERO)
    return kept | more


def run(
    program: str,
    folder: Path,
    *arguments: str,
    ranks: int = 1,
    cwd: Path | None = None,
    **options: Any,
) -> list[Ended]:
    """Runs `program` as that many ranks and waits for all of them."""
    file = folder.parent / "train.py"
    file.write_text(textwrap.dedent(program))
    port = free_port()
    base = environment(folder, **options)
    processes = []
    for rank in range(ranks):
        of_rank = {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
        processes.append(
            subprocess.Popen(
                [sys.executable, "-W", "ignore", str(file), *arguments],
                env=base | of_rank,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd=cwd,
            )
        )
    ended = []
    until = time.monotonic() + DEADLINE_S
    try:
        for process in processes:
            out, err = process.communicate(timeout=max(0.1, until - time.monotonic()))
            ended.append(Ended(process.pid, process.returncode, out, err, folder))
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.communicate()
    return ended


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def ops(ring: Ring, event: Event = Event.OP) -> list[EventRow]:
    """All events of a kind that the ring still holds, oldest first."""
    return [row for row in ring.events(0, ring.shape.slots)[0] if row.event is event]


def kinds(ring: Ring) -> list[str]:
    return [ring.signatures[row.signature]["kind"] for row in ops(ring)]
