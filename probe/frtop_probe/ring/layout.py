"""Layout of a ring file: header, status cells, rows, slots and the side table.

A ring is one file, mapped by the rank that writes it and by the agent that reads it:

    header     256 B    fixed at creation: process, section sizes, clock anchor
    cells      256 x 8  current state: one machine word each, written in one store each
    groups     N x 64   per process group: its last op
    sites      N x 32   per call site: how long an op from there usually takes
    overflow   N x 88   pending ops so old that the history would overwrite them
    slots      N x 88   the history: one op (or step, or note) each
    side table          append-only: signatures, call sites, groups, exceptions, as JSON

Rules that make reading safe without a lock:

* A cell is a native 64-bit word: a reader sees the old or the new value, never a mix.
* A row or slot is written by one `pack_into` (one GIL-atomic write) that puts the same
  sequence number at both ends. A reader reads tail, body, head, in that order, and drops
  the row if the numbers differ. The event with sequence number `n` (from 1) is in slot
  `n % slots`; another number there means that the event was overwritten.
* Fields of a slot that change later (`done`, `reduce`) are one store each.
* The writer commits side-table bytes by advancing `StatusCell.SIDE_USED` after writing them.
  Entries never change; a later entry of the same kind and number replaces an earlier one.

All numbers are native-endian, because writer and reader share one host. Times are
`time.monotonic_ns()` of that host; the header has one wall-clock anchor.
"""

from __future__ import annotations

import enum
import struct
from typing import Final

MAGIC: Final = b"FRTOPRG1"
VERSION: Final = 1
SUFFIX: Final = ".ring"
"""Ring files are `<FRTOP_DIR>/<pid>-<start ticks>-<pid namespace>.ring`."""

HEADER: Final = struct.Struct("=8s2I2Q16s2q2I4Q6I")
"""magic, version, size of the file, start ticks of the process, inode of its pid
namespace, boot id, monotonic anchor ns, wall-clock anchor ns, pid, native id of the
recorder's thread, pthread ident of the main thread, three reserved words, then the
counts: groups, sites, overflow, slots, bytes of the side table, reserved."""
HEADER_SIZE: Final = 256

CELLS_OFFSET: Final = HEADER_SIZE
CELLS: Final = 256
GROUPS_OFFSET: Final = CELLS_OFFSET + CELLS * 8


class StatusCell(enum.IntEnum):
    """Index of each status cell. New cells are appended; old ones are never renumbered."""

    STATE = 0  # a State
    BEAT_NS = 1  # when the recorder's thread last ran
    BEATS = 2  # how often it has run
    HEAD = 3  # sequence number of the newest event (0: none)
    OLDEST = 4  # every event before this one is complete or in the overflow
    SIDE_USED = 5  # committed bytes of the side table
    OPS = 6  # ops issued since the start
    STEP = 7  # last training step that ended (0: none)
    STEP_NS = 8  # when it ended
    FETCH_BEGIN_NS = 9  # begin of the last DataLoader fetch
    FETCH_END_NS = 10  # its end; begin > end means that a fetch is running
    FETCH_WORKER = 11  # index of the worker that it waits for; -1 unknown, -2 no workers
    FETCH_WORKER_PID = 12
    FETCH_WORKERS = 13  # number of workers
    SIDE_LOST = 14  # signatures and sites that did not fit into the side table
    PENDING_LOST = 15  # pending ops that did not fit into the overflow
    HOOK_ERRORS = 16  # exceptions caught inside the hook (the recorder is off then)
    RANK = 17  # global rank; -1 while unknown
    EXCEPTION_NS = 18  # when an exception ended the program (0: none)


class State(enum.IntEnum):
    """State of the recorder, in `StatusCell.STATE`."""

    STARTING = 0
    ON = 1
    OFF = 2  # the recorder switched itself off after an error; a NOTE entry says why
    STOPPED = 3  # stop() was called, or the interpreter exited


class Side(enum.IntEnum):
    """Kinds of side-table entries. Payloads are JSON."""

    IDENTITY = 1  # rank, world size, master, run id, torch, argv, ...; the last one is valid
    SIGNATURE = 2  # fields of wire.Signature
    SITE = 3  # [file, line, function]
    GROUP = 4  # name, description, backend, ranks (folded), exact, timeout_s
    EXCEPTION = 5  # type, text, thread, frames, main: an uncaught exception
    NOTE = 6  # text, from the recorder or from annotate()
    TRANSPORTS = 7  # [[name, sign], ...] of those past c10d; the last one is valid


SIDE_ENTRY: Final = struct.Struct("=IHHI4x")
"""Payload bytes, kind, padding bytes after the payload (entries are 8-aligned), id."""
SIDE_RESERVED: Final = 64 * 1024
"""Bytes at the end of the side table for exceptions, notes and groups only: many distinct
signatures must not crowd them out."""

GROUP_ROW: Final = struct.Struct("=Q3QqIIQ8x")
"""sequence number, number of its last collective, number of its last p2p op, sequence
number of the last op, its issue time in ns, signature id, site id, sequence number again."""
SITE_ROW: Final = struct.Struct("=Q2qQ")
"""sequence number, number of ops measured, smoothed wait in ns, sequence number again."""

SLOT: Final = struct.Struct("=QqqQQIIIIBBHI16xQ")
"""sequence number, issue time in ns, done in ns, number in its group, pthread ident, group id,
signature id, site id, timeout in ms (0: the group's), flags, reduce op, event, reserved,
sequence number again. `done` is 0 while pending, and negative if the op failed at that time."""
SLOT_SIZE: Final = SLOT.size
SLOT_DONE: Final = 16
"""Offset of `done` in a slot: 8-aligned, so that completing an op is one store."""
SLOT_FLAGS: Final = 56
"""Offset of the flags in a slot: the recorder sets UNTRACKED after the call has returned."""
SLOT_REDUCE: Final = 57
"""Offset of the reduce op in a slot: the recorder's thread decodes it later."""

NO_GROUP: Final = 0
"""Group id of events without a group: rendezvous, `new_group`, steps."""


class Event(enum.IntEnum):
    """Kind of an event in a slot."""

    OP = 0
    PSEUDO = 1  # init_process_group, new_group, ...: begins and ends like an op
    STEP = 2  # number = step, issue time = its end
    NOTE = 3  # number = id of a NOTE entry


class Flag(enum.IntFlag):
    """Bits of a slot's flags."""

    SYNC = 1  # the caller waits for the op before it continues
    P2P = 2  # numbered apart from collectives, so ranks cannot be compared by its number
    UNTRACKED = 4  # completion unknown (devices); `done` is when its handle was dropped


REDUCE_OPS: Final = (
    None,
    "sum",
    "avg",
    "product",
    "min",
    "max",
    "band",
    "bor",
    "bxor",
    "premul_sum",
    "other",
)
"""Names by the number in a slot; 0 is unknown or not applicable."""


class Shape:
    """Section sizes of a ring: `FULL`, or `SMALL` where shared memory is short."""

    __slots__ = ("groups", "overflow", "side", "sites", "slots")

    def __init__(self, groups: int, sites: int, overflow: int, slots: int, side: int) -> None:
        self.groups = groups
        self.sites = sites
        self.overflow = overflow
        self.slots = slots
        self.side = side

    @property
    def sites_offset(self) -> int:
        return GROUPS_OFFSET + self.groups * GROUP_ROW.size

    @property
    def overflow_offset(self) -> int:
        return self.sites_offset + self.sites * SITE_ROW.size

    @property
    def slots_offset(self) -> int:
        return self.overflow_offset + self.overflow * SLOT_SIZE

    @property
    def side_offset(self) -> int:
        return self.slots_offset + self.slots * SLOT_SIZE

    @property
    def size(self) -> int:
        return self.side_offset + self.side


FULL: Final = Shape(groups=512, sites=1024, overflow=128, slots=8192, side=768 * 1024)
SMALL: Final = Shape(groups=128, sites=256, overflow=64, slots=512, side=128 * 1024)
