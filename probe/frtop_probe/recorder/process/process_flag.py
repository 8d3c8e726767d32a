"""A flag of one process, which every forked child finds clear, however it was forked.

Python runs its at-fork hooks in `os.fork` only. A C++ data loader or a library that forks by
itself runs none: its child would go on with the recorder of its parent, and write its ops into
the parent's ring. Asking for the pid at each op would tell (a system call: 0.3 us here, six times
as much as all other checks). Instead the kernel clears one page in each child
(`MADV_WIPEONFORK`, Linux 4.14), and the hook reads its flag from there: 8 ns more than from a list.
A child that shares its parent's memory (`vfork`, `posix_spawn`) never runs Python.

The ring itself is not kept from children (`MADV_DONTFORK`): a store would then be a SIGSEGV.
"""

from __future__ import annotations

import mmap
from typing import Final, cast

_MADV_WIPEONFORK: Final = 18
"""Of Linux, on all machines but alpha, mips, parisc and xtensa, where it is the same; Python has
no name for it."""


def process_flag() -> list[int]:
    """Returns a clear flag, to be read and set as `flag[0]`: a number from 0 to 255.

    Where the kernel cannot clear it in children (before 4.14, gVisor), it is an ordinary list:
    then only forks that Python sees are noticed.
    """
    try:
        page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        page.madvise(_MADV_WIPEONFORK)
    except (OSError, ValueError):
        return [0]
    # One item of it is read and set as one of a list is; nothing else is done with it.
    return cast("list[int]", memoryview(page))
