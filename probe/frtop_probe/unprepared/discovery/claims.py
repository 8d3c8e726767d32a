"""Reads from a launcher's environment variables which rank of which job a process is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from frtop_probe.unprepared.discovery.command_line import option
from frtop_probe.unprepared.discovery.facts import ProcessFacts

PREPARED_BY: Final = "frtop_probe/recorder/zero"
"""End of the folder that `frtop run` puts first on PYTHONPATH."""
NAMES: Final = frozenset((
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "LOCAL_SIZE", "GROUP_RANK",
    "NODE_RANK", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS",
    "SLURM_STEP_NUM_TASKS", "SLURM_JOB_ID", "SLURM_JOBID", "SLURM_STEP_ID", "SLURM_STEPID",
    "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE",
    "PMI_LOCAL_RANK", "MPI_LOCALRANKID", "PYTHONPATH", "FRTOP_OFF", "FRTOP_DIR",
    "FRTOP_OUTPUT",
))  # fmt: skip
"""The variables that frtop keeps from an environment. They hold no secrets."""
FOR_FRTOP: Final = ("FRTOP_OUTPUT",)
"""Those among them that its user set for frtop: a rank's settings have them."""
_SLURM_BATCH_STEPS: Final = ("4294967291", "4294967294", "batch", "extern", "interactive")
_LOOPBACK: Final = ("localhost", "::1", "[::1]", "0.0.0.0")  # noqa: S104 - compared, not bound


@dataclass(frozen=True, slots=True)
class RankClaim:
    """What an environment says. A child that inherits it makes the same claim.

    Attributes:
        source: "torch" (RANK, as env:// reads it), "lightning", "mpi", "pmi" or "slurm".
        rank: None if only the local rank is known.
        world: words that all ranks of the world share; empty if the environment has none.
        elastic: torchrun's agent set it.
        local_world_size: number of ranks that its launcher started here; None if unknown.
    """

    source: str
    rank: int | None
    world_size: int | None
    local_rank: int | None
    world: tuple[str, ...]
    elastic: bool = False
    local_world_size: int | None = None


def read_claim(facts: ProcessFacts) -> RankClaim | None:
    """Returns what the environment claims; None if it claims no rank."""
    variables = facts.variables
    claim = (
        _torch(variables, facts)
        or _mpi(variables, facts)
        or _slurm(variables, facts)
        or _lightning(variables, facts)
    )
    if claim is None or claim.local_rank is not None:
        return claim
    local = _number_of(option(facts.argv, "--local_rank", "--local-rank"))
    return replace(claim, local_rank=local)


def is_prepared(variables: Mapping[str, str]) -> bool:
    """Returns whether the environment starts frtop's recorder."""
    return variables.get("FRTOP_OFF") != "1" and any(
        part.rstrip("/").endswith(PREPARED_BY)
        for part in variables.get("PYTHONPATH", "").split(":")
    )


def master(variables: Mapping[str, str], facts: ProcessFacts) -> tuple[str, ...]:
    """Returns the store's address as words of an identity.

    A loopback address means a different store in every network namespace of every host, so the
    words include the namespace.
    """
    address, port = variables.get("MASTER_ADDR", ""), variables.get("MASTER_PORT", "")
    if not (address and port):
        return ()
    if address in _LOOPBACK or address.startswith("127."):
        return (f"{address}:{port}", f"net {facts.net_namespace}")
    return (f"{address}:{port}",)


def _torch(variables: Mapping[str, str], facts: ProcessFacts) -> RankClaim | None:
    rank = _number(variables, ("RANK",))
    if rank is None:
        return None
    run_id = variables.get("TORCHELASTIC_RUN_ID", "")
    world = master(variables, facts)
    if run_id and (world or run_id != "none"):
        world = (f"run {run_id}", *world)
    if not world:
        world = _slurm_world(variables)
    return RankClaim(
        "torch",
        rank,
        _number(variables, ("WORLD_SIZE",)),
        _number(variables, ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK")),
        world,
        elastic=bool(run_id),
        local_world_size=_number(variables, ("LOCAL_WORLD_SIZE", "LOCAL_SIZE")),
    )


def _mpi(variables: Mapping[str, str], facts: ProcessFacts) -> RankClaim | None:
    """Open MPI, then hydra of MPICH and Intel; both may run inside a Slurm job."""
    namespace = variables.get("PMIX_NAMESPACE") or variables.get("OMPI_MCA_ess_base_jobid")
    world = master(variables, facts) or ((f"mpi {namespace}",) if namespace else ())
    rank = _number(variables, ("OMPI_COMM_WORLD_RANK",))
    if rank is not None:
        return RankClaim(
            "mpi",
            rank,
            _number(variables, ("OMPI_COMM_WORLD_SIZE",)),
            _number(variables, ("OMPI_COMM_WORLD_LOCAL_RANK",)),
            world or _slurm_world(variables),
        )
    rank = _number(variables, ("PMI_RANK",))
    if rank is None:
        return None
    return RankClaim(
        "pmi",
        rank,
        _number(variables, ("PMI_SIZE",)),
        _number(variables, ("MPI_LOCALRANKID", "PMI_LOCAL_RANK", "SLURM_LOCALID")),
        world or _slurm_world(variables),
    )


def _slurm(variables: Mapping[str, str], facts: ProcessFacts) -> RankClaim | None:
    """A task of srun. The batch script also has SLURM_PROCID=0, but is not a task of a step."""
    rank, step = _number(variables, ("SLURM_PROCID",)), _slurm_world(variables)
    if rank is None or not step:
        return None
    return RankClaim(
        "slurm",
        rank,
        _number(variables, ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")),
        _number(variables, ("SLURM_LOCALID",)),
        (*step, *master(variables, facts)),
    )


def _lightning(variables: Mapping[str, str], facts: ProcessFacts) -> RankClaim | None:
    """Lightning's own launcher sets everything except RANK; the size of a node is unknown."""
    local, node = _number(variables, ("LOCAL_RANK",)), _number(variables, ("NODE_RANK",))
    size, world = _number(variables, ("WORLD_SIZE",)), master(variables, facts)
    if local is None or node is None or size is None or not world:
        return None
    return RankClaim("lightning", local if node == 0 else None, size, local, world)


def _slurm_world(variables: Mapping[str, str]) -> tuple[str, ...]:
    job = variables.get("SLURM_JOB_ID") or variables.get("SLURM_JOBID", "")
    step = variables.get("SLURM_STEP_ID") or variables.get("SLURM_STEPID", "")
    if not job or not step or step in _SLURM_BATCH_STEPS:
        return ()
    return (f"slurm {job}.{step}",)


def _number(variables: Mapping[str, str], names: Iterable[str]) -> int | None:
    return next(
        (n for n in (_number_of(variables.get(name, "")) for name in names) if n is not None), None
    )


def _number_of(text: str) -> int | None:
    """Parses a number that a launcher may have set: decimal, not negative, below 2**31."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None
