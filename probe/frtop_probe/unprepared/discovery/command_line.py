"""What a command line says: program, launcher, helper of Python or torch, title of an engine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from frtop_probe.program_names import file_name, installed_module, work_of
from frtop_probe.unprepared.discovery import launchers
from frtop_probe.unprepared.discovery.facts import Role
from frtop_probe.unprepared.discovery.launchers import Launcher

_HELPERS: Final[tuple[tuple[str, Role], ...]] = (
    ("from multiprocessing.resource_tracker import main", "resource_tracker"),
    ("from multiprocessing.semaphore_tracker import main", "resource_tracker"),
    ("from multiprocessing.forkserver import main", "fork_server"),
)
_COMPILE_WORKER: Final = "torch/_inductor/compile_worker/"
_WITH_VALUE: Final = ("-W", "-X", "--check-hash-based-pycs")
_TITLE: Final = re.compile(r"(VLLM|sglang|ray)::(\S*)", re.ASCII)
_PART: Final = re.compile(r"_(DP|PP|PCP|TP|DCP|EP|CP|ATTN_CP|MOE_DP)(\d{1,6})(?=_|$)", re.ASCII)
_ENGINES: Final = {"VLLM": "vLLM", "sglang": "SGLang", "ray": "Ray"}
_ENGINE_RANKS: Final = ("Worker", "scheduler")


@dataclass(frozen=True, slots=True)
class Title:
    """The title that an inference engine gives its process, for example VLLM::Worker_TP1.

    Attributes:
        engine: "vLLM", "SGLang" or "Ray".
        is_rank: whether a process with this title has a rank.
        rank: the tensor-parallel rank, if the title has no other kind of parallelism;
            otherwise the title does not show the rank in the world.
        data_parallel: number of the replica, if the title has one.
        work: the class or function that a Ray worker runs; "" if not in the title.
    """

    engine: str
    is_rank: bool
    rank: int | None
    data_parallel: int | None
    work: str


def program_name(argv: Sequence[str]) -> str:
    """Returns the file name of the script, or the module; "" if there is none."""
    kind, value = _program(argv)
    if kind == "file":
        return installed_module(value) or file_name(value)
    return value if kind == "module" else ""


def launcher(argv: Sequence[str]) -> Launcher | None:
    """Returns the launcher that this command line starts; None for anything else."""
    kind, value = _program(argv)
    if kind == "module":
        return launchers.of_module(value)
    return launchers.of_file(value, argv[1:]) if kind == "file" else None


def helper_role(argv: Sequence[str]) -> Role | None:
    """Returns the role of a helper started by Python or torch; None for others."""
    kind, value = _program(argv)
    if kind == "code":
        return next((role for start, role in _HELPERS if value.startswith(start)), None)
    if kind == "file" and _COMPILE_WORKER in value:
        return "compile_worker"
    if kind == "module" and value.startswith("torch._inductor.compile_worker"):
        return "compile_worker"
    return None


def is_spawned(argv: Sequence[str]) -> bool:
    """Returns whether Python's multiprocessing started it with the method "spawn"."""
    kind, value = _program(argv)
    return kind == "code" and "multiprocessing.spawn import spawn_main" in value


def read_title(argv: Sequence[str], comm: str) -> Title | None:
    """Returns what an engine's title says. `comm` contains its first 15 characters."""
    match = _TITLE.match(argv[0] if argv else "") or _TITLE.match(comm)
    if match is None:
        return None
    engine, rest = _ENGINES[match[1]], match[2]
    is_rank = engine != "Ray" and rest.startswith(_ENGINE_RANKS)
    parts = {name: int(number) for name, number in _PART.findall(rest)}
    only_tensor_parallel = "TP" in parts and parts.keys() <= {"TP", "EP", "DCP"}
    cut = not argv and len(comm) == 15  # the last digits may be missing
    return Title(
        engine,
        is_rank,
        parts["TP"] if is_rank and only_tensor_parallel and not cut else None,
        parts.get("DP"),
        work_of(match[0]) if engine == "Ray" else "",
    )


def option(argv: Sequence[str], *names: str) -> str:
    """Returns the value of an option given as `--name=value` or `--name value`."""
    for index, word in enumerate(argv):
        name, equals, value = word.partition("=")
        if name in names:
            return value if equals else next(iter(argv[index + 1 : index + 2]), "")
    return ""


def _program(argv: Sequence[str]) -> tuple[str, str]:
    """Returns what runs: ("module", name), ("code", text), ("file", path) or ("", "").

    Interpreter options come first and may be joined, as in `-um package.train`.
    """
    if not argv:
        return "", ""
    first = PurePosixPath(argv[0]).name
    if not first.startswith(("python", "pypy")):
        return "file", argv[0]
    words = iter(argv[1:])
    for word in words:
        if not word.startswith("-") or word == "-":
            return "file", word
        if word in _WITH_VALUE:
            next(words, None)
        elif word[1] not in "-WX":
            for letter, kind in (("m", "module"), ("c", "code")):
                if letter in word[1:]:
                    joined = word[1:].partition(letter)[2]
                    return kind, joined or next(words, "")
    return "", ""
