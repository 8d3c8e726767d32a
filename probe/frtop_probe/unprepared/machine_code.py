"""Offsets of C++ members, read from the machine code of their getters.

A getter such as `uint64_t getSequenceNumberForGroup() { return seq_; }` is one load and a return.
Its operand is the member's offset in this very build, whatever the headers say.
"""

from __future__ import annotations

import re
import struct
from typing import Final

from frtop_probe.unprepared.elf import AARCH64, X86_64

CODE_SIZE: Final = 16
"""Bytes of a getter that are read."""
FUNCTION_SIZE: Final = 48
"""Bytes of a function that does a little more."""
_MAX_OFFSET: Final = 1 << 16
_X86_MARK: Final = b"\xf3\x0f\x1e\xfa"  # endbr64, with -fcf-protection
_ARM_MARKS: Final = (0xD503245F, 0xD503233F)  # bti c, paciasp
_ARM_RETURN: Final = 0xD65F03C0
# ldr x0, [x0, #imm] and ldrb w0, [x0, #imm]: bits 10 to 21 are the offset, in units of the width.
_ARM_LOADS: Final = {8: 0xF9400000, 1: 0x39400000}
_ARM_LOAD_MASK: Final = 0xFFC003FF
# mov off(%rdi),%rax and movzbl off(%rdi),%eax; the ModRM byte that follows tells the width of off.
_X86_LOADS: Final = {8: b"\x48\x8b", 1: b"\x0f\xb6"}
_X86_RETURN: Final = 0xC3
_X86_COMPARE_8: Final = b"\x48\x83\x7f"  # cmpq $imm8,off(%rdi)
_X86_COMPARE_32: Final = b"\x48\x83\xbf"
_MINUS_ONE: Final = 0xFF
_X86_COUNTER: Final = re.compile(
    rb"\x8b([\x80-\x87])(..\x00\x00)\x8d\x50\x01\x89[\x90-\x97]\2", re.DOTALL
)
"""mov off(%this),%eax; lea 1(%rax),%edx; mov %edx,off(%this). 2.15 checks something before."""
_ARM_LOAD_32: Final = 0xB9400000  # ldr wN, [x0, #imm]
_ARM_PLUS_ONE: Final = 0x11000400  # add wM, wN, #1
_ARM_PLUS_ONE_MASK: Final = 0xFFFFFFE0
_ARM_ANY_MASK: Final = 0xFFC003E0  # as above, into any register
_ARM_COMPARE: Final = 0xB100041F  # cmn xN, #1
_MODRM_8: Final = 0x47
_MODRM_32: Final = 0x87


def member_offset(code: bytes, machine: int, width: int) -> int | None:
    """Returns the offset of the member that a getter returns.

    Args:
        code: The first `CODE_SIZE` bytes of the getter.
        machine: e_machine of its library.
        width: Bytes of the member: 8, or 1 for an enumeration of one byte.

    Returns:
        None when this is not a load from `this` and a return.
    """
    offset: int | None = None
    if machine == X86_64:
        offset = _x86(code.removeprefix(_X86_MARK), _X86_LOADS[width])
    elif machine == AARCH64:
        offset = _arm(code, width)
    return offset if offset is not None and 8 <= offset < _MAX_OFFSET else None


def counter_offset(code: bytes, machine: int) -> int | None:
    """Returns the offset of a 32-bit counter that a function returns and increments.

    As in `uint32_t nextTag() { return collectiveCounter_++; }`.

    Args:
        code: The first `FUNCTION_SIZE` bytes of the function.
        machine: e_machine of its library.

    Returns:
        None when it does something else.
    """
    offset: int | None = None
    if machine == X86_64:
        found = _X86_COUNTER.search(code)
        offset = int.from_bytes(found[2], "little") if found is not None else None
    elif machine == AARCH64:
        words = _arm_words(code)
        register = words[0] & 0x1F
        is_load = words[0] & _ARM_ANY_MASK == _ARM_LOAD_32
        adds_one = words[1] & _ARM_PLUS_ONE_MASK == _ARM_PLUS_ONE | register << 5
        offset = (words[0] >> 10 & 0xFFF) * 4 if is_load and adds_one else None
    return offset if offset is not None and 8 <= offset < _MAX_OFFSET else None


def compared_offset(code: bytes, machine: int) -> int | None:
    """Returns the offset of a member that is compared with -1 first.

    As in `return timeout_ == kUnsetTimeout ? kBackendDefaultTimeout : timeout_`.

    Args:
        code: The first `CODE_SIZE` bytes of the getter.
        machine: e_machine of its library.

    Returns:
        None when it does not begin like this.
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


def _arm_words(code: bytes) -> tuple[int, ...]:
    words = struct.unpack(f"<{CODE_SIZE // 4}I", code[:CODE_SIZE].ljust(CODE_SIZE, b"\0"))
    return words[1:] if words[0] in _ARM_MARKS else words
