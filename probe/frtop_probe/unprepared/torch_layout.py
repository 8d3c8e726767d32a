"""How this build of torch lays out c10d's classes: found in the build itself, not in a table.

Classes are recognised by their exported vtables, members by the machine code of getters that
return them (`machine_code`). What has neither is found next to such a member and validated by the
invariants of its type. Headers: torch/csrc/distributed/c10d/ProcessGroupGloo.hpp,
ProcessGroupNCCL.hpp, Work.hpp of 2.8 to 2.15.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from frtop_probe.proc.memory import NotReadable, ProcessMemory
from frtop_probe.proc.process import Mapping
from frtop_probe.unprepared.elf import X86_64, Image
from frtop_probe.unprepared.machine_code import (
    CODE_SIZE,
    FUNCTION_SIZE,
    compared_offset,
    counter_offset,
    member_offset,
)

NO_TORCH: Final = "no torch in this process"
STRIPPED: Final = "c10d state not readable: c10d's symbols are missing"

_VTABLE_HEAD: Final = 16  # offset to top and type_info, before the first function
_LIBRARIES: Final = ("libtorch_cpu.so", "libtorch_cuda.so", "libtorch_hip.so", "libtorch.so")
"""Where c10d's classes are: NCCL's in the device's library; a monolithic build has one."""
_GLOO: Final = "N4c10d16ProcessGroupGloo"
_NCCL: Final = "N4c10d16ProcessGroupNCCL"
_NCCL2: Final = ("N4c10d5nccl216ProcessGroupNCCL", "N4c10d5nccl220ProcessGroupNCCLLazy")
"""The new NCCL backend, from 2.14 on. It has no sequence number of its own."""
_ASYNC_WORK: Final = f"{_GLOO}9AsyncWork"
_GLOO_WORKS: Final = (_ASYNC_WORK, f"{_GLOO}8SendWork", f"{_GLOO}8RecvWork")


@dataclass(frozen=True, slots=True)
class BackendClass:
    """A backend class of this build.

    Attributes:
        kind: "gloo", "nccl" or "nccl2".
        number: Offset of the sequence number; None when its getter is not a plain load.
        collectives: Offset of gloo's counter of collectives alone (32 bits); None if not known.
        options: Run-time vtable of its Options; None when it is not exported.
    """

    kind: str
    number: int | None
    options: int | None
    collectives: int | None = None


@dataclass(frozen=True, slots=True)
class WorkLayout:
    """Offsets within `c10d::Work` and its subclasses of gloo.

    Attributes:
        op: `opType_`, of one byte.
        completed: `completed_`, before `exception_` and `rank_`.
        timeout: `AsyncWork::timeout_`; the output tensors follow it.
        numbers: By the run-time address of `getSequencenumber`: offset of the number.
    """

    op: int
    completed: int
    timeout: int | None
    numbers: dict[int, int]


@dataclass(frozen=True, slots=True)
class TorchLayout:
    """All that was found in one process's torch; addresses are of that process.

    Attributes:
        libraries: By file name.
        groups: Vtables of `ProcessGroup`.
        wrappers: Vtables of `ProcessGroupWrapper`.
        backends: By vtable.
        async_number: Run-time address of `AsyncWork::getSequencenumber`, 0 if unknown.
        mutex: sizeof(std::mutex): 40 on x86-64, 48 on aarch64 (glibc's pthread_mutex_t).
    """

    libraries: dict[str, Image]
    groups: frozenset[int]
    wrappers: frozenset[int]
    backends: dict[int, BackendClass]
    work: WorkLayout | None
    async_number: int
    mutex: int


def find_torch(memory: ProcessMemory, files: dict[str, Mapping]) -> TorchLayout:
    """Finds torch's libraries and reads their layout: about 150 reads.

    Raises:
        NotReadable: there is no torch, or it does not export c10d's classes.
    """
    libraries = _open_libraries(memory, files)
    if not libraries:
        raise NotReadable(NO_TORCH)
    symbols = _Symbols(memory, libraries)
    group = symbols.vtable("N4c10d12ProcessGroupE")
    if group is None:
        raise NotReadable(STRIPPED)
    wrapper = symbols.vtable("N4c10d19ProcessGroupWrapperE")
    machine = next(iter(libraries.values())).machine
    mutex = 40 if machine == X86_64 else 48
    return TorchLayout(
        libraries=libraries,
        groups=frozenset((group,)),
        wrappers=frozenset(() if wrapper is None else (wrapper,)),
        backends=_backends(symbols),
        work=_work(symbols),
        async_number=symbols.address(f"_ZNK{_ASYNC_WORK[1:]}17getSequencenumberEv") or 0,
        mutex=mutex,
    )


class _Symbols:
    """Looks a name up in all of torch's libraries."""

    def __init__(self, memory: ProcessMemory, libraries: dict[str, Image]) -> None:
        self._memory = memory
        self._libraries = libraries
        self._machine = next(iter(libraries.values())).machine

    def address(self, name: str) -> int | None:
        for image in self._libraries.values():
            if (address := image.address_of(name)) is not None:
                return address
        return None

    def vtable(self, mangled: str) -> int | None:
        address = self.address(f"_ZTV{mangled}")
        return None if address is None else address + _VTABLE_HEAD

    def member(self, getter: str, width: int = 8) -> int | None:
        code = self._code(getter)
        return None if code is None else member_offset(code, self._machine, width)

    def counter(self, function: str) -> int | None:
        code = self._code(function, FUNCTION_SIZE)
        return None if code is None else counter_offset(code, self._machine)

    def timeout(self, getter: str) -> int | None:
        code = self._code(getter)
        if code is None:
            return None
        compared = compared_offset(code, self._machine)
        return member_offset(code, self._machine, 8) if compared is None else compared

    def _code(self, function: str, size: int = CODE_SIZE) -> bytes | None:
        address = self.address(function)
        return None if address is None else self._memory.read(address, size)


def _open_libraries(memory: ProcessMemory, files: dict[str, Mapping]) -> dict[str, Image]:
    found = {}
    for path, mapping in files.items():
        name = path.rpartition("/")[2]
        if name in _LIBRARIES and name not in found:
            found[name] = Image(memory, mapping)
    return found


def _backends(symbols: _Symbols) -> dict[int, BackendClass]:
    found = {}
    for kind, mangled in (("gloo", _GLOO), ("nccl", _NCCL), *(("nccl2", name) for name in _NCCL2)):
        vtable = symbols.vtable(f"{mangled}E")
        if vtable is not None:
            found[vtable] = BackendClass(
                kind=kind,
                number=symbols.member(f"_Z{mangled}25getSequenceNumberForGroupEv"),
                options=symbols.vtable(f"{mangled}7OptionsE"),
                collectives=symbols.counter(f"_Z{mangled}7nextTagEv"),
            )
    return found


def _work(symbols: _Symbols) -> WorkLayout | None:
    op = symbols.member("_ZNK4c10d4Work14retrieveOpTypeEv", width=1)
    if op is None:
        return None
    numbers = {}
    for mangled in _GLOO_WORKS:
        getter = f"_ZNK{mangled[1:]}17getSequencenumberEv"
        address, offset = symbols.address(getter), symbols.member(getter)
        if address is not None and offset is not None:
            numbers[address] = offset
    return WorkLayout(
        op=op,
        # Before opType_ (Work.hpp): bool completed_, to 8; exception_ptr 8; int rank_ 4.
        completed=op - 20,
        timeout=symbols.timeout(f"_ZNK{_ASYNC_WORK[1:]}10getTimeoutEv"),
        numbers=numbers,
    )
