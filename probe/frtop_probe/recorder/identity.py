"""Who this rank is, from the environment, the program's arguments, and `torch.distributed`."""

from __future__ import annotations

import os
import platform
import re
import secrets
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

MAX_ARGUMENTS = 64
MAX_ARGUMENT = 500
NONCE_KEY = "frtop/nonce"
TELLING = (
    "CUDA_", "FI_", "GLOO_", "HCCL_", "HIP_", "HSA_", "NCCL_", "OMP_NUM_THREADS", "PYTORCH_",
    "RCCL_", "ROCR_", "SLURM_", "TORCH_", "TORCHINDUCTOR_", "UCX_",
)  # fmt: skip
"""Settings by which ranks behave as they do, by the beginning of their names."""
SECRETIVE = ("AUTH", "CREDENTIAL", "JWT", "KEY", "PASS", "SECRET", "TOKEN")
MAX_SETTINGS = 128
_WITH_PASSWORD = re.compile(r"://[^/\s]*@")


@dataclass(frozen=True, slots=True)
class Who:
    """What the side table says of a rank. -1 and "" where the program has not said yet."""

    rank: int = -1
    local_rank: int = -1
    world_size: int = 0
    master_addr: str = ""
    master_port: int = 0
    run_id: str = ""
    attempt: int = 0
    nonce: str = ""
    name: str = ""
    argv: tuple[str, ...] = field(default=())
    cwd: str = ""
    torch: str = ""
    record: str = ""  # folder for the black box
    settings: tuple[tuple[str, str], ...] = ()

    def payload(self) -> dict[str, Any]:
        return {
            "rank": self.rank,
            "local_rank": self.local_rank,
            "job": {
                "master_addr": self.master_addr,
                "master_port": self.master_port,
                "world_size": self.world_size,
                "run_id": self.run_id,
                "attempt": self.attempt,
                "nonce": self.nonce,
                "name": self.name,
            },
            "argv": list(self.argv),
            "cwd": self.cwd,
            "torch": self.torch,
            "python": platform.python_version(),
            "record": self.record,
            "settings": [list(setting) for setting in self.settings],
        }


def from_environment() -> Who:
    """What a launcher says before the program runs."""
    environment = os.environ
    return Who(
        rank=_number("RANK", -1),
        local_rank=_number("LOCAL_RANK", -1),
        world_size=_number("WORLD_SIZE", 0),
        master_addr=environment.get("MASTER_ADDR", ""),
        master_port=_number("MASTER_PORT", 0),
        run_id=environment.get("TORCHELASTIC_RUN_ID", ""),
        attempt=_number("TORCHELASTIC_RESTART_COUNT", 0),
        name=_program(),
        argv=tuple(argument[:MAX_ARGUMENT] for argument in sys.argv[:MAX_ARGUMENTS]),
        cwd=_cwd(),
        record=_absolute(environment.get("FRTOP_RECORD", "")),
        settings=_settings(),
    )


def with_arguments(who: Who, arguments: dict[str, Any]) -> Who:
    """Adds what is passed to `init_process_group`: it wins over the environment."""
    rank, world = arguments.get("rank", -1), arguments.get("world_size", -1)
    method = arguments.get("init_method") or ""
    scheme, _, rest = str(method).partition("://")
    if scheme == "tcp":
        address, _, port = rest.partition("?")[0].rpartition(":")
        if port.isdigit():
            who = replace(who, master_addr=address, master_port=int(port))
    elif scheme == "file":
        who = replace(who, master_addr=method, master_port=0)
    if isinstance(rank, int) and rank >= 0:
        who = replace(who, rank=rank)
    if isinstance(world, int) and world > 0:
        who = replace(who, world_size=world)
    return who


def with_default_group(who: Who, c10d: Any) -> Who:
    """Adds what is certain once the default group is there, and the job's nonce."""
    if not c10d.is_initialized():
        return who
    who = replace(who, rank=c10d.get_rank(), world_size=c10d.get_world_size())
    if who.local_rank < 0:
        who = replace(who, local_rank=_number("LOCAL_RANK", -1))
    return who if who.nonce else replace(who, nonce=_nonce(c10d))


def _nonce(c10d: Any) -> str:
    """One random word that all ranks of this world agree on: who writes it first wins.

    One round trip to the store that all of them have just met at; no collective.
    """
    try:
        store = c10d._get_default_store()  # noqa: SLF001
        agreed = store.compare_set(NONCE_KEY, "", secrets.token_hex(8))
    except (AttributeError, RuntimeError, NotImplementedError, ValueError):
        return ""
    return agreed.decode(errors="replace") if isinstance(agreed, bytes) else str(agreed or "")


def _settings() -> tuple[tuple[str, str], ...]:
    """What the environment sets of torch and the transports below it; no secrets."""
    chosen = sorted(
        (name, value[:MAX_ARGUMENT])
        for name, value in os.environ.items()
        if name.startswith(TELLING)
        and not any(word in name.upper() for word in SECRETIVE)
        and not _WITH_PASSWORD.search(value)
    )
    return tuple(chosen[:MAX_SETTINGS])


def _program() -> str:
    """The script's name, or the package's when it is run as one."""
    path = Path((getattr(sys, "argv", None) or [""])[0])
    return path.parent.name if path.name == "__main__.py" else path.name


def _number(name: str, default: int) -> int:
    try:
        return int(os.environ[name])
    except (KeyError, ValueError):
        return default


def _cwd() -> str:
    try:
        return str(Path.cwd())
    except OSError:
        return ""


def _absolute(path: str) -> str:
    """The agent lives in another folder. "" stays "": nobody wants a black box."""
    try:
        return str(Path(_cwd(), Path(path).expanduser())) if path else ""
    except RuntimeError:  # no such home
        return ""
