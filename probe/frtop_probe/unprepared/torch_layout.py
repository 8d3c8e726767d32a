"""Finds how this build of torch lays out c10d's classes, from the build itself, not from a table.

Exported vtables identify classes, and the machine code of getters shows where their members are. A
member without a getter is next to a member with one, and must satisfy the invariants of its type.
Headers: torch/csrc/distributed/c10d/ProcessGroupGloo.hpp,
ProcessGroupNCCL.hpp, Work.hpp of 2.8 to 2.15.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import Final

from frtop_probe.proc.memory import Mapping, NotReadable, ProcessMemory
from frtop_probe.unprepared.elf import AARCH64, X86_64, Image

NO_TORCH: Final = "no torch in this process"
STRIPPED: Final = "c10d state not readable: c10d's symbols are missing"

_VTABLE_HEAD: Final = 16  # offset to top and type_info, before the first function
_LIBRARIES: Final = ("libtorch_cpu.so", "libtorch_cuda.so", "libtorch_hip.so", "libtorch.so")
"""Where c10d's classes are: NCCL's in the device's library; a monolithic build has only one."""
_GLOO: Final = "N4c10d16ProcessGroupGloo"
_NCCL: Final = "N4c10d16ProcessGroupNCCL"
_NCCL2: Final = ("N4c10d5nccl216ProcessGroupNCCL", "N4c10d5nccl220ProcessGroupNCCLLazy")
"""The new NCCL backend, since 2.14. It has no sequence number of its own."""
_ASYNC_WORK: Final = f"{_GLOO}9AsyncWork"
_GLOO_WORKS: Final = (_ASYNC_WORK, f"{_GLOO}8SendWork", f"{_GLOO}8RecvWork")

_CODE_SIZE: Final = 16
"""Bytes read from a getter."""
_FUNCTION_SIZE: Final = 48
"""Bytes read from a function that does a little more."""
_MAX_OFFSET: Final = 1 << 16
_X86_MARK: Final = b"\xf3\x0f\x1e\xfa"  # endbr64, with -fcf-protection
_ARM_MARKS: Final = (0xD503245F, 0xD503233F)  # bti c, paciasp
_ARM_COPY: Final = 0xAA0003E0  # mov xN, x0: keeps `this`
_ARM_RETURN: Final = 0xD65F03C0
# ldr x0, [x0, #imm] and ldrb w0, [x0, #imm]: bits 10 to 21 are the offset, in units of the width.
_ARM_LOADS: Final = {8: 0xF9400000, 1: 0x39400000}
_ARM_LOAD_MASK: Final = 0xFFC003FF
# mov off(%rdi),%rax and movzbl off(%rdi),%eax; the next byte, ModRM, gives the width of off.
_X86_LOADS: Final = {8: b"\x48\x8b", 1: b"\x0f\xb6"}
_X86_RETURN: Final = 0xC3
_X86_COMPARE_8: Final = b"\x48\x83\x7f"  # cmpq $imm8,off(%rdi)
_X86_COMPARE_32: Final = b"\x48\x83\xbf"
_MINUS_ONE: Final = 0xFF
_X86_COUNTER: Final = re.compile(
    rb"\x8b([\x80-\x87])(..\x00\x00)\x8d\x50\x01\x89[\x90-\x97]\2", re.DOTALL
)
"""mov off(%this),%eax; lea 1(%rax),%edx; mov %edx,off(%this). In 2.15 a check comes first."""
_ARM_LOAD_32: Final = 0xB9400000  # ldr wN, [xA, #imm]
_ARM_PLUS_ONE: Final = 0x11000400  # add wM, wN, #1
_ARM_STORE_32: Final = 0xB9000000  # str wM, [xB, #imm]
_ARM_OPCODE: Final = 0xFFC00000
_ARM_IMMEDIATE: Final = 0x3FFC00
_ARM_ALL_BUT_TARGET: Final = 0xFFFFFFE0
_ARM_ANY_MASK: Final = 0xFFC003E0  # as above, into any register
_ARM_COMPARE: Final = 0xB100041F  # cmn xN, #1
_MODRM_8: Final = 0x47
_MODRM_32: Final = 0x87


@dataclass(frozen=True, slots=True)
class BackendClass:
    """A backend class of this build.

    Attributes:
        kind: "gloo", "nccl" or "nccl2".
        number: Offset of the sequence number; None if its getter is not a plain load.
        collectives: Offset of gloo's 32-bit counter of collectives alone; None if unknown.
        options: Run-time vtable of its Options; None if not exported.
    """

    kind: str
    number: int | None
    options: int | None
    collectives: int | None = None


@dataclass(frozen=True, slots=True)
class WorkLayout:
    """Offsets within `c10d::Work` and gloo's subclasses.

    Attributes:
        op: `opType_`, one byte.
        completed: `completed_`, before `exception_` and `rank_`.
        timeout: `AsyncWork::timeout_`; the output tensors follow it.
        numbers: Offset of the number, by the run-time address of `getSequencenumber`.
    """

    op: int
    completed: int
    timeout: int | None
    numbers: dict[int, int]


@dataclass(frozen=True, slots=True)
class TorchLayout:
    """The layout of torch in one process; addresses are those of that process.

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
    """Looks up a name in all of torch's libraries."""

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
        code = self._code(function, _FUNCTION_SIZE)
        return None if code is None else counter_offset(code, self._machine)

    def timeout(self, getter: str) -> int | None:
        code = self._code(getter)
        if code is None:
            return None
        compared = compared_offset(code, self._machine)
        return member_offset(code, self._machine, 8) if compared is None else compared

    def _code(self, function: str, size: int = _CODE_SIZE) -> bytes | None:
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


def member_offset(code: bytes, machine: int, width: int) -> int | None:
    """Returns the offset of the member that a getter returns; None if it does anything else.

    A getter such as `uint64_t getSequenceNumberForGroup() { return seq_; }` is a load and a return.
    The operand of the load is the member's offset in this very build.
    `machine` is its library's e_machine, `width` 8, or 1 for a one-byte enumeration.
    """
    offset: int | None = None
    if machine == X86_64:
        offset = _x86(code.removeprefix(_X86_MARK), _X86_LOADS[width])
    elif machine == AARCH64:
        offset = _arm(code, width)
    return offset if offset is not None and 8 <= offset < _MAX_OFFSET else None


def counter_offset(code: bytes, machine: int) -> int | None:
    """Returns the offset of a 32-bit counter that a function returns and increments, or None.

    An example is `uint32_t nextTag() { return collectiveCounter_++; }`.
    """
    offset: int | None = None
    if machine == X86_64:
        found = _X86_COUNTER.search(code)
        offset = int.from_bytes(found[2], "little") if found is not None else None
    elif machine == AARCH64:
        offset = _arm_counter(code)
    return offset if offset is not None and 8 <= offset < _MAX_OFFSET else None


def compared_offset(code: bytes, machine: int) -> int | None:
    """Returns the offset of a member that a getter first compares with -1, or None.

    An example is `return timeout_ == kUnsetTimeout ? kBackendDefaultTimeout : timeout_`.
    """
    offset: int | None = None
    if machine == X86_64:
        code = code.removeprefix(_X86_MARK)
        if code.startswith(_X86_COMPARE_32) and code[7] == _MINUS_ONE:
            (offset,) = struct.unpack_from("<i", code, 3)
        elif code.startswith(_X86_COMPARE_8) and code[4] == _MINUS_ONE:
            (offset,) = struct.unpack_from("<b", code, 3)
    elif machine == AARCH64:
        words = _arm_words(code)
        register = words[0] & 0x1F
        if words[0] & _ARM_ANY_MASK == _ARM_LOADS[8] and words[1] == _ARM_COMPARE | register << 5:
            offset = (words[0] >> 10 & 0xFFF) * 8
    return offset if offset is not None and 8 <= offset < _MAX_OFFSET else None


def _x86(code: bytes, load: bytes) -> int | None:
    if len(code) < 8 or not code.startswith(load):
        return None
    rest = code[len(load) :]
    if rest[0] == _MODRM_8 and rest[2] == _X86_RETURN:
        return int(struct.unpack_from("<b", rest, 1)[0])
    if rest[0] == _MODRM_32 and rest[5] == _X86_RETURN:
        return int(struct.unpack_from("<i", rest, 1)[0])
    return None


def _arm(code: bytes, width: int) -> int | None:
    words = _arm_words(code)
    if words[0] & _ARM_LOAD_MASK != _ARM_LOADS[width]:
        return None
    return (words[0] >> 10 & 0xFFF) * width if words[1] == _ARM_RETURN else None


def _arm_counter(code: bytes) -> int | None:
    words: tuple[int, ...] = struct.unpack_from(f"<{len(code) // 4}I", code)
    for load, add, store in zip(words, words[1:], words[2:], strict=False):
        if (
            load & _ARM_OPCODE == _ARM_LOAD_32
            and add & _ARM_ALL_BUT_TARGET == _ARM_PLUS_ONE | (load & 0x1F) << 5
            and store & _ARM_OPCODE == _ARM_STORE_32
            and store & 0x1F == add & 0x1F
            and (store ^ load) & _ARM_IMMEDIATE == 0
        ):
            return (load >> 10 & 0xFFF) * 4
    return None


def _arm_words(code: bytes) -> tuple[int, ...]:
    words = struct.unpack(f"<{_CODE_SIZE // 4}I", code[:_CODE_SIZE].ljust(_CODE_SIZE, b"\0"))
    if words[0] in _ARM_MARKS:
        words = words[1:]
    return words[1:] if words[0] & _ARM_ALL_BUT_TARGET == _ARM_COPY else words
