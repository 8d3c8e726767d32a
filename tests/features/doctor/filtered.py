"""Runs a command under a seccomp filter: filtered.py CALL[,CALL] refuse|end -- COMMAND ..."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys

NUMBERS = {
    "x86_64": {"process_vm_readv": 310, "ptrace": 101, "kcmp": 312},
    "aarch64": {"process_vm_readv": 270, "ptrace": 117, "kcmp": 272},
}
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, FILTER = 38, 22, 2
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06  # BPF_LD|W|ABS, BPF_JMP|JEQ|K, BPF_RET|K
ALLOW, REFUSE, END = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x80000000  # SECCOMP_RET_*


class Program(ctypes.Structure):
    """sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def forbid(calls: list[str], action: int) -> None:
    """Loads a filter for this process and all that come from it."""
    numbers = [NUMBERS[platform.machine()][call] for call in calls]
    code = struct.pack("<HBBI", LOAD, 0, 0, 0)  # seccomp_data.nr
    for place, number in enumerate(numbers):
        code += struct.pack("<HBBI", EQUAL, len(numbers) - place, 0, number)
    code += struct.pack("<HBBI", RETURN, 0, 0, ALLOW) + struct.pack("<HBBI", RETURN, 0, 0, action)
    space = ctypes.create_string_buffer(code, len(code))
    program = Program(len(code) // 8, ctypes.addressof(space))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    assert libc.prctl(PR_SET_SECCOMP, FILTER, ctypes.byref(program)) == 0, ctypes.get_errno()


if __name__ == "__main__":
    forbid(sys.argv[1].split(","), REFUSE if sys.argv[2] == "refuse" else END)
    os.execvp(sys.argv[4], sys.argv[4:])
