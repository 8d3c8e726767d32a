"""How the processes of each launcher are recognised. A new launcher is an entry in `LAUNCHERS`.

If its ranks have other variables than those of torch, Slurm and MPI, `claims.py` has to read them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

BY_MULTIPROCESSING: Final = "mp.spawn"
"""The launcher of ranks that a program starts by itself."""


@dataclass(frozen=True, slots=True)
class Launcher:
    """A program that starts ranks.

    Attributes:
        kind: what frtop calls it.
        modules: the modules of it that run, by `python -m` or as files.
        scripts: names of its Python scripts; a second word must be among the first arguments.
        programs: names of its executables or main threads, if these are not Python.
        claims: the sources of `RankClaim` that its ranks have when it is on another host.
        starts_torch: its children are ranks, even before they have imported torch.
    """

    kind: str
    modules: tuple[str, ...] = ()
    scripts: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
    starts_torch: bool = False


LAUNCHERS: Final = (
    Launcher(
        "torchrun",
        modules=("torch.distributed.run", "torch.distributed.launch"),
        scripts=("torchrun",),
        programs=("pt_elastic",),
        starts_torch=True,
    ),
    Launcher(
        "accelerate",
        modules=("accelerate.commands.launch", "accelerate.commands.accelerate_cli"),
        scripts=("accelerate launch", "accelerate-launch"),
        starts_torch=True,
    ),
    Launcher(
        "deepspeed",
        modules=("deepspeed.launcher.launch", "deepspeed.launcher.runner"),
        scripts=("deepspeed", "ds"),
        starts_torch=True,
    ),
    Launcher("horovodrun", modules=("horovod.runner.launch",), scripts=("horovodrun",)),
    Launcher("srun", programs=("srun", "slurmstepd"), claims=("slurm",)),
    Launcher(
        "mpirun",
        programs=(
            "mpirun", "mpiexec", "mpiexec.hydra", "hydra_pmi_proxy",
            "orterun", "orted", "prterun", "prted",
        ),
        claims=("mpi", "pmi"),
    ),
    Launcher("lightning", claims=("lightning",)),
)  # fmt: skip


def of_module(name: str) -> Launcher | None:
    """Finds the launcher that `python -m name` is."""
    return next((one for one in LAUNCHERS if name in one.modules), None)


def of_file(path: str, arguments: Sequence[str]) -> Launcher | None:
    """Finds the launcher that runs from this file: a script, a file of its modules, a program."""
    name = PurePosixPath(path).name

    def is_script(script: str) -> bool:
        own, _, word = script.partition(" ")
        return name == own and (not word or word in arguments[:3])

    return next(
        (
            one
            for one in LAUNCHERS
            if name in one.programs
            or any(path.endswith(f"{module.replace('.', '/')}.py") for module in one.modules)
            or any(map(is_script, one.scripts))
        ),
        None,
    )


def of_thread(name: str) -> Launcher | None:
    """Finds the launcher whose main thread has this name."""
    return next((one for one in LAUNCHERS if name in one.programs), None)


def of_claim(source: str) -> Launcher | None:
    """Finds the launcher that sets the variables of this source of claims."""
    return next((one for one in LAUNCHERS if source in one.claims), None)
