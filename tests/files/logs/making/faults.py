"""Which faults are made, in which ways of starting a job they make sense, and what is drawn."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from files.logs.judging import Made

TORCHRUN: Final = ("tee", "plain", "files", "agents")
ALONE: Final = ("tee", "plain", "files", "shell", "srun", "mpirun")
"""Ways in which a rank may leave early: agents wait 5 min for each other."""
BARE: Final = ("shell", "srun", "mpirun")
"""One process per rank without torchrun."""
WAYS: Final = (*TORCHRUN, *BARE, "spawn")
DETAIL: Final = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
LONG_S: Final = 20
"""Timeout of ops in jobs that hang: all ranks have to start within it, too."""


@dataclass(frozen=True)
class Fault:
    """A fault, as `train.py` or `ways` know it; `runs` logs are made of it.

    `blamed`: the rank with the fault ("one"), that and one with which it is compared ("pair"), all
    ranks or none of them.
    """

    name: str
    ways: tuple[str, ...] = WAYS
    runs: int = 2
    timeout_s: int = 60
    env: Mapping[str, str] = field(default_factory=dict)
    blamed: str = "one"


@dataclass(frozen=True)
class Run:
    """One job to start: what is known of it, and the options of `train.py` that were drawn."""

    made: Made
    fault: Fault
    options: tuple[str, ...]
    env: Mapping[str, str]


FAULTS: Final = (
    Fault("none", runs=3, blamed="none"),
    Fault("SIGKILL", runs=4),
    Fault("SIGTERM"),
    Fault("SIGINT", (*TORCHRUN, "srun", "mpirun")),  # a shell and spawn have it ignored
    Fault("SIGSEGV"),
    Fault("SIGSEGV, faulthandler"),
    Fault("SIGBUS"),
    Fault("abort"),
    Fault("double free"),
    Fault("terminate", runs=1),
    Fault("fatal Python error"),
    Fault("exception before init", runs=3),
    Fault("no module"),
    Fault("killed before init", timeout_s=LONG_S),
    Fault("exception", runs=4),
    Fault("exception, chained"),
    Fault("exception in all", blamed="all"),
    Fault("assertion"),
    Fault("recursion", runs=1),
    Fault("exception in backward"),
    Fault("exception in a data worker"),
    Fault("data worker killed"),
    Fault("data worker exits", runs=1),
    Fault("data worker crashes", runs=1),
    Fault("exit 3"),
    Fault("exit with text"),
    Fault("exit 0", ALONE, timeout_s=LONG_S),
    Fault("os._exit"),
    Fault("MemoryError"),
    Fault("allocator"),
    Fault("fewer batches", ALONE, timeout_s=LONG_S),
    Fault("unused parameter", timeout_s=LONG_S),
    Fault("SIGSTOP", timeout_s=LONG_S),
    Fault("hang", runs=3, timeout_s=LONG_S),
    Fault("hang, faulthandler", timeout_s=LONG_S),
    Fault("hang, handled exception elsewhere", runs=3, timeout_s=LONG_S),
    Fault("hang, py-spy", timeout_s=LONG_S),
    Fault("skipped collective", timeout_s=LONG_S),
    Fault("other op", runs=1, timeout_s=LONG_S, blamed="pair"),
    Fault("other shape", runs=1, timeout_s=LONG_S, blamed="pair"),
    Fault("other dtype", runs=1, timeout_s=LONG_S, blamed="pair"),
    Fault("other op, DETAIL", runs=3, timeout_s=LONG_S, env=DETAIL, blamed="pair"),
    Fault("other shape, DETAIL", timeout_s=LONG_S, env=DETAIL, blamed="pair"),
    Fault("other dtype, DETAIL", timeout_s=LONG_S, env=DETAIL, blamed="pair"),
    Fault("barrier", timeout_s=LONG_S),
    Fault("barrier, all ranks", runs=3, timeout_s=LONG_S),
    Fault("no new_group", timeout_s=LONG_S),
    Fault("never joins", runs=3, timeout_s=LONG_S),
    Fault("port in use", BARE, timeout_s=LONG_S),
    Fault("port in use for torchrun", ("static",), runs=1, blamed="none"),
    Fault("restart", ("tee", "plain", "files"), runs=3),
    Fault("cancelled", ("tee", "plain", "srun", "mpirun"), runs=3, blamed="none"),
    Fault("time limit", ("srun",), runs=1, timeout_s=600),
    Fault("no second host", ("agents",), runs=1, blamed="none"),
    Fault("second host dies", ("agents",), timeout_s=LONG_S),
)


def runs(seed: int) -> Iterator[Run]:
    """All jobs of a seed. Worlds, ranks, ways and styles of logging are drawn."""
    for fault in FAULTS:
        drawn = random.Random(f"{seed} {fault.name}")
        ways = drawn.sample(fault.ways, len(fault.ways))
        before = set[int]()
        for number in range(fault.runs):
            way = ways[number % len(ways)]
            world = drawn.choice((2, 4) if way == "agents" else (2, 3, 4, 4))
            at = drawn.choice([one for one in range(world) if one not in before] or [0])
            before.add(at)
            yield _run(fault, way, world, at, drawn)


def _run(fault: Fault, way: str, world: int, at: int, drawn: random.Random) -> Run:
    ranks = [at]
    match fault.name:
        case "exception in all":
            ranks = [*range(world)]
        case "port in use":
            ranks = [0]
        case "second host dies":
            ranks = [*range(world // 2, world)]
    guilty = ranks if fault.blamed != "none" else []
    options = ["--fault", fault.name, "--at", ",".join(map(str, ranks))]
    if fault.name == "restart":
        guilty = [(at + 1) % world]
        options[1:] = ["exception", "--at", str(at), "--then", str(guilty[0])]
    also = [0 if at else 1] if fault.blamed == "pair" else []
    options += ["--timeout", str(fault.timeout_s), "--format", str(drawn.randrange(4))]
    options += ["--workers", str(drawn.choice((0, 0, 2)))]
    options += ["--bars"] * drawn.randrange(2) + ["--record"] * drawn.randrange(2)
    env = {**fault.env, **({"PYTHONUNBUFFERED": "1"} if drawn.randrange(2) else {})}
    called = fault.name.replace("os._exit", "os exit").replace(",", "").replace(" ", "-")
    whom = f"{'-'.join(map(str, guilty)) or 'nobody'}-of-{world}"
    made = Made(f"{called}-{whom}-{way}", fault.name, way, world, guilty, also)
    return Run(made, fault, tuple(options), env)
