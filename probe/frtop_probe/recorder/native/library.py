"""Finds and loads the native kernels that were built for exactly this torch and Python."""

from __future__ import annotations

import ctypes
import os
import stat
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from hashlib import sha256
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, Final

from frtop_probe.recorder.native import check

SOURCES: Final = ("kernel.cpp", "frames.c", "frames.h")
PACKAGE: Final = "frtop_native"
_MEASURED: Final = 1024
_NONE: Final = "none was built for this torch: run `frtop build-native` before its next start"
_u64, _u32, _object = ctypes.c_uint64, ctypes.c_uint32, ctypes.py_object


class NotUsableError(Exception):
    """The native kernels cannot be used here; the text says why."""


def cache() -> Path:
    """The folder of what was built."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "frtop" / "native"


@lru_cache(maxsize=1)
def _sources() -> str:
    text = b"".join((Path(__file__).parent / one).read_bytes() for one in SOURCES)
    return sha256(text).hexdigest()[:16]


def built_for(torch: Any) -> str:
    """What must be equal for a build to be used: torch and its commit, Python, our sources."""
    return described(str(torch.__version__), getattr(torch.version, "git_version", None) or "")


def described(version: str, commit: str) -> str:
    """The same of a torch that is not loaded, for this Python.

    "+cu130" or "+cpu" makes no difference: no header that the kernels include depends on it.
    """
    abi = sysconfig.get_config_var("SOABI") or sys.implementation.cache_tag
    return f"torch {version.partition('+')[0]} {commit[:12]}, {abi}, {_sources()}"


def name(built_for: str) -> str:
    """The file name of a build."""
    return f"{sha256(built_for.encode()).hexdigest()[:24]}.so"


def _find(file: str) -> Path:
    """The kernels that this user compiled, else those of the package `frtop-native`.

    The package is trusted as what is imported from beside it; the cache is checked.

    Raises:
        NotUsableError: there are none, or somebody else could have put them there.
    """
    own = cache().resolve() / file
    if os.path.lexists(own):
        _check(own)
        return own
    places = [Path(__file__).parents[3] / PACKAGE]  # frtop may be no part of the job's own path
    spec = PathFinder.find_spec(PACKAGE)  # asks no finder of the program
    places += map(Path, (spec and spec.submodule_search_locations) or ())
    for one in places:
        if os.access(one / file, os.R_OK):
            return one / file
    raise NotUsableError(_NONE)


def _check(path: Path) -> None:
    """Refuses what somebody else could have put there, or could replace before it is loaded."""
    try:
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode):
            raise NotUsableError(f"{path} is not a plain file")
        for one in (path, path.parent):
            found = one.stat()
            if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o022:
                raise NotUsableError(f"others may write {one}")
        for one in path.parent.parents:
            found = one.stat()
            writers = stat.S_IMODE(found.st_mode) & 0o022
            if found.st_uid == found.st_gid == os.getuid():
                writers &= 0o002  # a group of this user alone, as many distributions make it
            if found.st_mode & stat.S_ISVTX:
                writers = 0  # nobody can rename what is another's
            if found.st_uid not in (0, os.getuid()) or writers:
                raise NotUsableError(f"others may replace {one}")
    except OSError as error:
        raise NotUsableError(_NONE) from error


class Library:
    """The loaded kernels. They are never unloaded: threads of a backend may call them at any time.

    Raises:
        NotUsableError: there is no build for this torch, or it is not ours to trust.
    """

    def __init__(self, torch: Any) -> None:
        path = _find(name(built_for(torch)))
        try:
            self._c = c = ctypes.PyDLL(str(path))
            c.frtop_built_for.restype = ctypes.c_char_p
            made_for = c.frtop_built_for().decode()
        except (OSError, AttributeError) as error:
            raise NotUsableError(str(error)) from error
        if made_for != built_for(torch):
            raise NotUsableError(f"{path} was built for {made_for}")
        if differs := check.difference(c):
            raise NotUsableError(f"{path} has {differs}")
        for function, result, arguments in (
            ("open", ctypes.c_int, (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)),
            ("install", ctypes.c_int, (_object, _object)),
            ("remove", None, ()),
            ("next_sequence", _u64, ()),
            ("next_number", _u64, (_u32, ctypes.c_int)),
            ("take_chunks", _u64, (_u64,)),
            ("floor", _u64, ()),
            ("forget_group", None, (_u32, ctypes.c_int)),
            ("tick", None, ()),
            ("release", None, (_u32,)),
            ("oldest", _u64, ()),
            ("is_open", ctypes.c_int, (_u64,)),
            ("tensors", _object, ()),
            ("measured", None, (ctypes.c_void_p,)),
            ("failure", ctypes.c_char_p, ()),
            ("marks", _object, ()),
            ("steps", _object, ()),
            ("only", ctypes.POINTER(_u64), ()),
            ("wait", _object, (_object, _object, _object)),
        ):
            entry = getattr(c, f"frtop_{function}")
            entry.restype, entry.argtypes = result, arguments
        self.next_sequence: Callable[[], int] = c.frtop_next_sequence
        self.next_number: Callable[[int, int], int] = c.frtop_next_number
        self.take_chunks: Callable[[int], int] = c.frtop_take_chunks
        self.floor: Callable[[], int] = c.frtop_floor
        self.forget_group: Callable[[int, bool], None] = c.frtop_forget_group
        self.tick: Callable[[], None] = c.frtop_tick
        self.release: Callable[[int], None] = c.frtop_release
        self.oldest: Callable[[], int] = c.frtop_oldest
        self.is_open: Callable[[int], int] = c.frtop_is_open
        self.tensors: Callable[[], list[tuple[int, list[tuple[bool, Any]]]]] = c.frtop_tensors
        self.marks: Callable[[], tuple[Callable[..., Any], ...]] = c.frtop_marks
        """Returns what writes marks from then on: `begin`, `instant`, `report` and `end`."""
        self.steps: Callable[[], tuple[Callable[..., Any], ...]] = c.frtop_steps
        """Returns what counts the steps of the program's only optimizer: `begin`, `end`, `give`
        and `take`."""
        self.only: Any = c.frtop_only()
        """The words that these functions write."""
        self.wait: Callable[[Any, Any, Any], Any] = c.frtop_wait
        """Takes a class of handles, its own `wait` and the wrapper in Python; returns what replaces
        it."""
        self.remove: Callable[[], None] = c.frtop_remove
        self._held: list[Any] = []

    def open(self, ring: Any, shape: Sequence[int], enabled: Any) -> None:
        """Records into a ring from now on.

        Args:
            ring: its mapping, which stays mapped.
            shape: as `Shape` in kernel.cpp.
            enabled: the byte that switches the kernels.
        """
        memory, flag = ctypes.c_char.from_buffer(ring), ctypes.c_char.from_buffer(enabled)
        self._held += (memory, flag)
        words = (_u64 * len(shape))(*shape)
        self._c.frtop_open(ctypes.addressof(memory), words, ctypes.addressof(flag))

    def install(self, operations: list[dict[str, Any]], misses: object) -> int:
        """Installs the kernels; returns how many."""
        return int(self._c.frtop_install(operations, misses))

    def failure(self) -> str:
        """Why the kernels switched recording off; "" if they did not."""
        found = self._c.frtop_failure()
        return found.decode() if found else ""

    def measured(self) -> Iterator[tuple[int, int, bool]]:
        """Yields and clears site, wait in ns and whether it is exact, of what ended lately."""
        words = (_u64 * _MEASURED)()
        self._c.frtop_measured(words)
        for word in words:
            if site := word & 0xFFFF:
                yield site, word >> 17, bool(word & 0x10000)
