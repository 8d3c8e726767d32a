"""Transports that move data past c10d, and the signs by which we recognise them.

Nobody observes what is issued there. A sign shows that a process has such a transport at hand, and
takes blame away: it never shows which rank is at fault. So a sign is good enough if a program loads
it only to move data that way, and too weak if torch or a framework always loads it.
`torch.distributed._symmetric_memory` comes with FSDP2, `libnvshmem_host` with CUDA builds of torch
from 2.8 on, `vllm/_C` and `sgl_kernel` with their engines. None of them is a sign, but what a
program creates in them, or loads beside them, is one.

Checked against the public sources of each project in 2026.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class TransportSigns:
    """The signs of one transport; any one is enough.

    Attributes:
        name: what people call it.
        modules: Python modules that programs import only to use it.
        made: variables of Python modules, as `module:variable`. A dict with entries shows that it
            is in use; the module alone shows nothing.
        files: a pattern for its shared objects, searched in their paths.
        on_cuda: engines import the modules on CPUs too, so these show it only in a process in which
            torch has initialized CUDA (ROCm counts as CUDA there).
    """

    name: str
    modules: tuple[str, ...] = ()
    made: tuple[str, ...] = ()
    files: str = ""
    on_cuda: bool = False


SIGNS: Final = (
    TransportSigns(
        "pynccl",
        (
            "vllm.distributed.device_communicators.pynccl",
            "sglang.srt.distributed.device_communicators.pynccl",
            "cupy_backends.cuda.libs.nccl",
        ),
        on_cuda=True,
    ),
    TransportSigns(
        "custom all-reduce",
        (
            "vllm.distributed.device_communicators.custom_all_reduce",
            "vllm.distributed.device_communicators.quick_all_reduce",
            "sglang.srt.distributed.device_communicators.custom_all_reduce",
            "sglang.srt.distributed.device_communicators.custom_all_reduce_v2",
            "sglang.srt.distributed.device_communicators.quick_all_reduce",
            "aiter.dist.custom_all_reduce",
        ),
        on_cuda=True,
    ),
    TransportSigns(
        "FlashInfer",
        ("flashinfer.comm",),
        files=r"/(trtllm_comm|trtllm_mnnvl_comm|vllm_comm|mixed_comm)\.so$",
    ),
    TransportSigns(
        "symmetric memory",
        (
            "vllm.distributed.device_communicators.symm_mem",
            "sglang.srt.distributed.device_communicators.torch_symm_mem",
        ),
        (
            "torch.distributed._symmetric_memory:_group_name_to_store",
            "torch.distributed._symmetric_memory:_group_name_to_workspace_tensor",
            "torch.distributed._symmetric_memory:_symm_mem_pools",
        ),
        on_cuda=True,
    ),
    TransportSigns("DeepEP", ("deep_ep",), files=r"/(deep_ep_cpp|hybrid_ep_cpp)[^/]*\.so$"),
    TransportSigns("PPLX kernels", ("pplx_kernels",)),
    TransportSigns(
        "NVSHMEM", ("nvshmem.core",), files=r"/nvshmem_(bootstrap|transport)_\w+\.so[.\d]*$"
    ),
    TransportSigns(
        "userbuffers", made=("transformer_engine.pytorch.module.base:_ub_communicators",)
    ),
    TransportSigns("MSCCL++", ("mscclpp",), files=r"/(lib|_)mscclpp[^/]*\.so[.\d]*$"),
    TransportSigns("MPI", ("mpi4py.MPI",)),
)
"""All transports, in the order in which they are listed."""

MODULES: Final = {module: signs.name for signs in SIGNS for module in signs.modules}
"""Names of transports, by the module that is imported for them."""
VARIABLES: Final = {
    tuple(variable.split(":")): signs.name for signs in SIGNS for variable in signs.made
}
"""Names of transports, by module and variable."""
ON_CUDA: Final = frozenset(signs.name for signs in SIGNS if signs.on_cuda)
CUDA: Final = ("torch.cuda", "_initialized")
"""The module and its variable that is True once CUDA is initialized."""
_FILES: Final = tuple((signs.name, re.compile(signs.files)) for signs in SIGNS if signs.files)
MAX_SIGN: Final = 200
_ORDER: Final = {signs.name: place for place, signs in enumerate(SIGNS)}


def by_files(paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yields the name and sign of each transport whose shared object is mapped."""
    for path in paths:
        for name, pattern in _FILES:
            if pattern.search(path):
                yield name, f"{path.rpartition('/')[2]} is mapped"[:MAX_SIGN]


def module_sign(module: str) -> str:
    return f"module {module} is imported"


def variable_sign(module: str, variable: str) -> str:
    """Returns the sign that a module has created something to communicate with."""
    return f"{module}.{variable} has entries"


def first_of_each(found: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """One sign for each transport, in the order of the table."""
    signs: dict[str, str] = {}
    for name, sign in found:
        signs.setdefault(name, sign)
    return tuple(sorted(signs.items(), key=lambda one: _ORDER.get(one[0], len(_ORDER))))
