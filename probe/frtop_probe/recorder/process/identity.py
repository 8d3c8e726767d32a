"""The identity of this rank and its job, from environment, arguments and `torch.distributed`."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import secrets
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from frtop_probe.program_names import file_name, installed_module, work_of

MAX_ARGUMENTS = 64
MAX_ARGUMENT = 500
NONCE_KEY = "frtop/nonce"
NCCL = "libnccl.so.2"
RECORDED_SETTINGS = (
    "CUDA_", "FI_", "FRTOP_OUTPUT", "GLOO_", "HCCL_", "HIP_", "HSA_", "NCCL_", "OMP_NUM_THREADS",
    "PYTORCH_", "RCCL_", "ROCR_", "SLURM_", "TORCH_", "TORCHINDUCTOR_", "UCX_",
)  # fmt: skip
"""Prefixes of environment variables that influence how ranks behave."""
SECRET_WORDS = ("AUTH", "CREDENTIAL", "JWT", "KEY", "PASS", "SECRET", "TOKEN")
MAX_SETTINGS = 128
_WITH_PASSWORD = re.compile(r"://[^/\s]*@")


@dataclass(frozen=True, slots=True)
class RankIdentity:
    """What the side table records about a rank. Unknown fields are -1 or ""."""

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
    nccl: str = ""
    record: str = ""  # folder for the black box
    settings: tuple[tuple[str, str], ...] = ()
    kernels: str = ""  # which kernels record ops; shown among the settings

    def payload(self) -> dict[str, Any]:
        own = (("frtop kernels", self.kernels),) if self.kernels else ()
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
            "nccl": self.nccl,
            "python": platform.python_version(),
            "record": self.record,
            "settings": [list(setting) for setting in (*self.settings, *own)],
        }


def from_environment() -> RankIdentity:
    """Returns the values that the launcher sets before the program runs."""
    environment = os.environ
    return RankIdentity(
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


def with_arguments(identity: RankIdentity, arguments: dict[str, Any]) -> RankIdentity:
    """Adds the arguments of `init_process_group`, which override the environment."""
    rank, world = arguments.get("rank", -1), arguments.get("world_size", -1)
    method = arguments.get("init_method") or ""
    scheme, _, rest = str(method).partition("://")
    if scheme == "tcp":
        address, _, port = rest.partition("?")[0].rpartition(":")
        if port.isdigit():
            identity = replace(identity, master_addr=address, master_port=int(port))
    elif scheme == "file":
        identity = replace(identity, master_addr=method, master_port=0)
    if isinstance(rank, int) and rank >= 0:
        identity = replace(identity, rank=rank)
    if isinstance(world, int) and world > 0:
        identity = replace(identity, world_size=world)
    return identity


def with_versions(identity: RankIdentity, torch: Any) -> RankIdentity:
    """Adds the versions of torch, and of NCCL if it has that. Touches no device."""
    try:
        nccl = _loaded_nccl() or _built_in_nccl(torch)
    except Exception:  # noqa: BLE001 - another torch, another library: then it is not known
        nccl = ""
    return replace(identity, torch=str(torch.__version__), nccl=nccl)


def _loaded_nccl() -> str:
    """The version of the library that this process has loaded; loads nothing. "": none.

    It may be another one than torch was built with.
    """
    try:
        library = ctypes.CDLL(NCCL, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return ""
    code = ctypes.c_int()
    if library.ncclGetVersion(ctypes.byref(code)):
        return ""
    return decoded_nccl(code.value)


def decoded_nccl(code: int) -> str:
    """`2.27.5` of 22705; up to 2.8 the code was 2804."""
    major, rest = divmod(code, 10_000) if code >= 10_000 else divmod(code, 1000)
    return f"{major}.{rest // 100}.{rest % 100}" if major else ""


def _built_in_nccl(torch: Any) -> str:
    """The version that is linked into torch, which has 16 bits for each part; "": none."""
    packed = torch._C._nccl_version()  # noqa: SLF001 - all that torch.cuda.nccl calls
    return f"{packed >> 32}.{packed >> 16 & 0xFFFF}.{packed & 0xFFFF}" if packed >> 32 else ""


def with_default_group(identity: RankIdentity, c10d: Any) -> RankIdentity:
    """Adds what the default group knows, and the job's nonce."""
    if not c10d.is_initialized():
        return identity
    identity = replace(identity, rank=c10d.get_rank(), world_size=c10d.get_world_size())
    if identity.local_rank < 0:
        identity = replace(identity, local_rank=_number("LOCAL_RANK", -1))
    return identity if identity.nonce else replace(identity, nonce=_nonce(c10d))


def _nonce(c10d: Any) -> str:
    """Returns a random word, the same on all ranks of this world: the first writer wins.

    It costs one round trip to the store that all ranks have just used, and no collective.
    """
    try:
        store = c10d._get_default_store()  # noqa: SLF001
        agreed = store.compare_set(NONCE_KEY, "", secrets.token_hex(8))
    except (AttributeError, RuntimeError, NotImplementedError, ValueError):
        return ""
    return agreed.decode(errors="replace") if isinstance(agreed, bytes) else str(agreed or "")


def _settings() -> tuple[tuple[str, str], ...]:
    """Returns settings of torch and its transports from the environment, without secrets."""
    chosen = sorted(
        (name, value[:MAX_ARGUMENT])
        for name, value in os.environ.items()
        if name.startswith(RECORDED_SETTINGS)
        and not any(word in name.upper() for word in SECRET_WORDS)
        and not _WITH_PASSWORD.search(value)
    )
    return tuple(chosen[:MAX_SETTINGS])


def _program() -> str:
    """Returns the program's name; of a framework's own worker, that of what it runs."""
    path = (getattr(sys, "argv", None) or [""])[0]
    is_module = getattr(sys.modules.get("__main__"), "__spec__", None) is not None
    installed = "" if is_module else installed_module(path)
    return (installed and (work_of(_title()) or _actor())) or installed or file_name(path)


def _title() -> str:
    """Returns the first word of the command line, which setproctitle overwrites."""
    try:
        with Path("/proc/self/cmdline").open("rb") as file:
            return file.read(MAX_ARGUMENT).partition(b"\0")[0].decode(errors="replace")
    except OSError:
        return ""


def _actor() -> str:
    """Returns the class of Ray's actor, whose title lacks it in a call with a name; else ""."""
    worker = getattr(sys.modules.get("ray._private.worker"), "global_worker", None)
    actors = getattr(worker, "actors", None)
    return type(next(iter(actors.values()))).__name__ if isinstance(actors, dict) and actors else ""


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
    """Makes a path absolute, because the agent runs in another folder; "" stays ""."""
    try:
        return str(Path(_cwd(), Path(path).expanduser())) if path else ""
    except RuntimeError:  # no such home
        return ""
