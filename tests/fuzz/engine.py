"""Makes inputs and counts them: guided by coverage, or by chance from a seed."""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fuzz.bounded import Result, Shared, Trial, run_child
from fuzz.distil import distil
from fuzz.mutations import Mutator
from fuzz.target import TARGETS, Target
from fuzz.targets import ALL

assert ALL
MEMORY: Final = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Where the files of inputs lie: a long run writes gigabytes."""


def run(options: argparse.Namespace, atheris: Any, chunk_s: float) -> int:
    """Returns the exit status: 1 if any input broke a promise."""
    if options.list:
        for one in TARGETS.values():
            print(f"{one.name:16} {one.about}")
        return 0
    chosen = [TARGETS[name] for name in options.target or TARGETS]
    if options.files:
        (target,) = chosen
        return try_again(target, options.files)
    if options.distil:
        for target in chosen:
            count = distil(target, options.found / target.name, MEMORY)
            print(f"{target.name:18} {count} kept")
        return 0
    whole = Result()
    try:
        for target in chosen:
            with tempfile.TemporaryDirectory(prefix="fuzz-") as place:
                result = _run_one(target, options, Path(place), atheris, chunk_s)
            print(row(target.name, result), flush=True)
            whole.add(result)
    except KeyboardInterrupt:
        print("stopped")
    print(row("all", whole))
    return 1 if whole.faults else 0


def _run_one(
    target: Target, options: argparse.Namespace, place: Path, atheris: Any, chunk_s: float
) -> Result:
    """One child after the other; each goes on with what the ones before have found."""
    kept = options.found / target.name if options.found else place
    kept.mkdir(parents=True, exist_ok=True)
    seconds = options.seconds or (3600.0 if options.inputs else 10.0)
    total, seed = Result(), options.seed
    while total.seconds < seconds and not 0 < options.inputs <= total.count:
        task = Task(
            target, kept, seed, min(chunk_s, seconds - total.seconds),
            max(0, options.inputs - total.count),
        )  # fmt: skip
        one = chunk(task, options.failures, atheris)
        total.add(one)
        seed += 1
        if not one.count:
            break
    return total


def row(name: str, one: Result) -> str:
    rate = one.count / one.seconds if one.seconds else 0
    share = 100 * one.taken / one.count if one.count else 0
    return (
        f"{name:18} {one.count:>12,} inputs {one.seconds:7.0f} s {rate:7.0f}/s"
        f"  taken {min(share, 100):3.0f} %  longest {1000 * one.longest_s:7.1f} ms"
        f"  memory +{one.peak >> 20} MiB  faults {one.faults}"
    )


def try_again(target: Target, files: list[Path]) -> int:
    """Tries these inputs in this process, without a net: a fault is a traceback."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=MEMORY)))
        trial = Trial(target, target.prepare(folder, stack), None, Shared(target.most))
        for path in files:
            before = trial.shared.taken
            trial.try_input(path.read_bytes())
            print(f"{path}: {'taken' if trial.shared.taken > before else 'refused'}")
    return 0


@dataclass(frozen=True)
class Task:
    """What a child does: so many `inputs` (0: any number), for at most so many `seconds`."""

    target: Target
    kept: Path
    seed: int
    seconds: float
    inputs: int


def chunk(task: Task, failures: Path, atheris: Any) -> Result:
    """Tries inputs in a child of its own."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as place:
        folder = Path(place)

        def work(trial: Trial) -> None:
            if atheris is None:
                _blind(task, folder, trial)
            else:
                _guided(task, folder, trial, atheris)

        return run_child(task.target, folder, failures, work, task.seconds)


def _blind(task: Task, folder: Path, trial: Trial) -> None:
    seeds = task.target.all_seeds(folder)
    seeds += [path.read_bytes() for path in sorted(task.kept.iterdir())]
    trial.shared.replayed = len(seeds)
    for data in seeds:
        trial.try_input(data)
    end, number = time.monotonic() + task.seconds, 0
    while time.monotonic() < end and not 0 < task.inputs <= number:
        trial.try_input(changed(task.target, seeds, str(task.seed), number))
        number += 1


def changed(target: Target, seeds: list[bytes], seed: str, number: int) -> bytes:
    """Input `number` of a seed."""
    mutator = Mutator(seed, number)
    data = mutator.random.choice(seeds)
    for _ in range(mutator.random.choice((1, 1, 1, 2, 5))):
        data = target.mutate(data, mutator)[: target.most]
    return data


def _guided(task: Task, folder: Path, trial: Trial, atheris: Any) -> None:
    """Never returns: libFuzzer ends the process."""
    target, seed = task.target, task.seed
    seeds = folder / "seeds"
    seeds.mkdir()
    for number, data in enumerate(target.all_seeds(folder)):
        (seeds / f"{number}").write_bytes(data)
    trial.shared.replayed = len([*seeds.iterdir(), *task.kept.iterdir()])

    def mutate(data: bytes, most: int, number: int) -> bytes:
        mutator = Mutator(str(seed), number)
        if mutator.chance(0.25):
            return atheris.Mutate(data, most)  # type: ignore[no-any-return]
        for _ in range(mutator.random.choice((1, 1, 1, 2, 5))):
            data = target.mutate(data, mutator)[:most]
        return data

    with open(os.devnull, "w") as nothing:  # noqa: PTH123
        os.dup2(nothing.fileno(), 2)
    arguments = [
        "fuzz", f"-seed={seed}", f"-max_total_time={max(1, round(task.seconds))}",
        f"-max_len={target.most}", "-rss_limit_mb=0", "-timeout=100000", "-detect_leaks=0",
        f"-artifact_prefix={folder}/", *([f"-runs={task.inputs}"] if task.inputs else []),
        str(task.kept), str(seeds),
    ]  # fmt: skip
    atheris.Setup(arguments, trial.try_input, custom_mutator=mutate)
    atheris.Fuzz()
