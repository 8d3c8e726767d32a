"""Tables of facts as they are on hosts with the usual launchers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from frtop_probe.unprepared.discovery.facts import FoundJob, ProcessFacts
from frtop_probe.unprepared.discovery.jobs import find_jobs

PYTHON = "/opt/conda/bin/python3.11"
GLOO = frozenset(("python", "gloo_tcp_loop", "pt_gloo_runloop"))
NCCL = frozenset(("python", "pt_nccl_watchdg", "pt_nccl_heartbt"))
TORCHRUN = (PYTHON, "/opt/conda/bin/torchrun", "--nproc-per-node", "2", "train.py")
SPAWN = (
    PYTHON,
    "-c",
    "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5, pipe_handle=7)",
    "--multiprocessing-fork",
)
TRACKER = (
    PYTHON, "-c", "from multiprocessing.resource_tracker import main;main(4)"
)  # fmt: skip


def process(
    pid: int,
    parent: int,
    argv: Iterable[str] = (PYTHON, "train.py"),
    environ: dict[str, str] | None = None,
    *,
    comm: str = "python",
    threads: Iterable[str] = (),
    program: str = "python3.11",
    torch: bool | None = None,
) -> ProcessFacts:
    names = frozenset((comm, *threads))
    return ProcessFacts(
        pid=pid, start_ticks=1000 + pid, parent=parent, uid=1000, comm=comm, session=50,
        threads=len(names), program=program, thread_names=names, argv=tuple(argv),
        environ=environ or {}, torch=torch, inner_pid=pid, net_namespace=4026531840,
    )  # fmt: skip


def shell(pid: int, parent: int = 1, environ: dict[str, str] | None = None) -> ProcessFacts:
    return process(pid, parent, (), environ, comm="bash", program="bash")


def elastic(rank: int, size: int = 2, port: int = 29500, run_id: str = "none") -> dict[str, str]:
    """The environment that torchrun's agent gives a worker (local_elastic_agent.py)."""
    return {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size), "GROUP_RANK": "0", "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port), "TORCHELASTIC_RUN_ID": run_id,
        "TORCHELASTIC_RESTART_COUNT": "0",
    }  # fmt: skip


def torchrun_host() -> list[ProcessFacts]:
    """Two ranks with two data workers each, pin-memory threads and a compile pool."""
    agent = process(100, 50, TORCHRUN, comm="pt_elastic", threads=["pt_tcpstore_uv"])
    table = [shell(50), agent]
    for rank in (0, 1):
        pid = 110 + 10 * rank
        table.append(process(pid, 100, (PYTHON, "-u", "train.py"), elastic(rank), threads=GLOO))
        table += [worker(pid + n, pid) for n in (1, 2)]
    table.append(
        process(
            113, 110,
            (PYTHON, "/opt/torch/_inductor/compile_worker/__main__.py", "--workers=32"),
            elastic(0),
        )
    )  # fmt: skip
    return table


def worker(pid: int, rank: int) -> ProcessFacts:
    return process(pid, rank, (), comm="pt_data_worker", program="python3.11")


def spawned(*, threads: Iterable[str] = GLOO, size: int = 2) -> list[ProcessFacts]:
    """mp.spawn: nothing in the environments."""
    parent = process(200, 50, (PYTHON, "-m", "pkg.main"), torch=True)
    ranks = [process(210 + n, 200, SPAWN, threads=threads, torch=True) for n in range(size)]
    return [shell(50), parent, process(201, 200, TRACKER), *ranks]


def without_threads(facts: ProcessFacts) -> ProcessFacts:
    return replace(facts, thread_names=frozenset((facts.comm,)))


def jobs(*tables: Iterable[ProcessFacts]) -> tuple[FoundJob, ...]:
    return find_jobs({facts.pid: facts for table in tables for facts in table})


def job(*tables: Iterable[ProcessFacts]) -> FoundJob:
    (found,) = jobs(*tables)
    return found


def numbers(found: FoundJob) -> list[tuple[int, int | None, int | None, int | None]]:
    """Returns pid, rank, world size and local rank of the ranks."""
    return [(c.pid, c.rank, c.world_size, c.local_rank) for c in found.ranks]


def helpers(found: FoundJob) -> dict[int, str]:
    return {candidate.pid: candidate.role for candidate in found.helpers}
