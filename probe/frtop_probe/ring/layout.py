"""Where everything lies in a ring file: cells, rows, slots, and the side table.

A ring is one file, mapped by the rank that writes it and by the agent that reads it:

    identity   256 B    fixed at creation: who the rank is, section sizes, clock anchor
    cells      256 x 8  the present: one machine word each, each written in one store
    groups     N x 64   per process group: its last op
    sites      N x 32   per call site: how long an op from there usually takes
    leftovers  N x 88   pending ops so old that the history would overwrite them
    slots      N x 88   the history: one op (or step, or note) each
    side table          append-only: signatures, call sites, groups, exceptions, as JSON

Rules that make reading safe without a lock:

* A cell is a native 64-bit word: it is either old or new, never half of each.
* A row or slot is written by one `pack_into` (one GIL-atomic write) that puts the same
  sequence number at both ends; a reader takes tail, body, head, in that order, and drops
  what differs. An event with sequence number `n` (counted from 1) lives in slot
  `n % slots`; a reader that finds another number there has been lapped.
* Single fields of a slot that change later (`done`, `reduce`) are one store each.
* The side table is committed by advancing `Cell.SIDE_USED` after the bytes are in place.
  Entries never change; a later entry of the same kind and number replaces an earlier one.

All numbers are native-endian: writer and reader share one host. Times are
`time.monotonic_ns()` of that host; the identity carries one wall-clock anchor.
"""

from __future__ import annotations

import enum
import struct
from typing import Final

MAGIC: Final = b"FRTOPRG1"
VERSION: Final = 1
SUFFIX: Final = ".ring"
"""Ring files are `<FRTOP_DIR>/<pid>-<start ticks>-<pid namespace>.ring`."""

IDENTITY: Final = struct.Struct("=8s2I2Q16s2q2I4Q6I")
"""magic, version, size of the file, start ticks of the process, inode of its pid
namespace, boot id, monotonic anchor ns, wall-clock anchor ns, pid, native id of the
recorder's thread, pthread ident of the main thread, three reserved words, then the
counts: groups, sites, leftovers, slots, bytes of the side table, reserved."""
IDENTITY_SIZE: Final = 256

CELLS_OFFSET: Final = IDENTITY_SIZE
CELLS: Final = 256
GROUPS_OFFSET: Final = CELLS_OFFSET + CELLS * 8


class Cell(enum.IntEnum):
    """Index of each word of the present. Only appended to, never renumbered."""

    STATE = 0  # a State
    BEAT_NS = 1  # when the recorder's thread last ran
    BEATS = 2  # how often it ran
    HEAD = 3  # sequence number of the newest event (0: none yet)
    OLDEST = 4  # every event below this one is complete or in the leftovers
    SIDE_USED = 5  # committed bytes of the side table
    OPS = 6  # ops issued since the start
    STEP = 7  # last training step that ended (0: none seen)
    STEP_NS = 8  # when
    FETCH_BEGIN_NS = 9  # last DataLoader fetch: begin
    FETCH_END_NS = 10  # and end; begin > end means it is in there now
    FETCH_WORKER = 11  # index of the worker it waits for, -1 unknown, -2 no workers
    FETCH_WORKER_PID = 12
    FETCH_WORKERS = 13  # how many workers there are
    SIDE_LOST = 14  # signatures and sites that found the side table full
    PENDING_LOST = 15  # pending ops that found the leftovers full
    HOOK_ERRORS = 16  # exceptions swallowed inside the hook (then it is off)
    RANK = 17  # global rank, -1 until known
    EXCEPTION_NS = 18  # when an exception ended the program (0: none)


class State(enum.IntEnum):
    """What the recorder says of itself in `Cell.STATE`."""

    STARTING = 0
    ON = 1
    OFF = 2  # switched itself off after an error; a NOTE entry says why
    STOPPED = 3  # stop() was called, or the interpreter reached its end


class Side(enum.IntEnum):
    """Kinds of entries in the side table. Payloads are JSON."""

    IDENTITY = 1  # rank, world size, master, run id, torch, argv, ...; the last one holds
    SIGNATURE = 2  # what an op is, see wire.Signature
    SITE = 3  # [file, line, function]
    GROUP = 4  # name, description, backend, ranks (folded), exact, timeout_s
    EXCEPTION = 5  # type, text, thread, frames, main: what ended the program
    NOTE = 6  # text: what the recorder, or annotate(), has to say


SIDE_ENTRY: Final = struct.Struct("=IHHI4x")
"""Payload bytes, kind, padding bytes after the payload (entries are 8-aligned), id."""
SIDE_RESERVED: Final = 64 * 1024
"""The end of the side table is kept for exceptions, notes and groups: a flood of
distinct signatures must not silence them."""

GROUP_ROW: Final = struct.Struct("=Q3QqIIQ8x")
"""sequence number, number of its last collective, number of its last p2p op, sequence
number of the last op, when issued ns, signature id, site id, sequence number again."""
SITE_ROW: Final = struct.Struct("=Q2qQ")
"""sequence number, ops measured, smoothed wait ns, sequence number again."""

SLOT: Final = struct.Struct("=QqqQQIIIIBBHI16xQ")
"""sequence number, issued ns, done ns, number in its group, pthread ident, group id,
signature id, site id, timeout ms (0: the group's), flags, reduce op, event, reserved,
sequence number again. `done` is 0 while pending, negative when the op failed then."""
SLOT_SIZE: Final = SLOT.size
SLOT_DONE: Final = 16
"""Offset of `done` in a slot: 8-aligned, so that completing is one store."""
SLOT_FLAGS: Final = 56
"""Offset of the flags in a slot: UNTRACKED is set once the call has returned."""
SLOT_REDUCE: Final = 57
"""Offset of the reduce op in a slot, decoded after the fact by the recorder's thread."""

NO_GROUP: Final = 0
"""Group id of what happens before and beside groups: rendezvous, `new_group`, steps."""


class Event(enum.IntEnum):
    """What a slot holds."""

    OP = 0
    PSEUDO = 1  # init_process_group, new_group, ...: has a begin and an end like an op
    STEP = 2  # number = step, issued = when it ended
    NOTE = 3  # number = id of a NOTE entry


class Flag(enum.IntFlag):
    """Bits of a slot's flags."""

    SYNC = 1  # the caller waits for it before it goes on
    P2P = 2  # counted apart from collectives: its number is no evidence
    UNTRACKED = 4  # completion is not known (devices); with `done`: its handle ended then


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
"""Names by the number in a slot; 0 is unknown, or not applicable."""


class Shape:
    """Section sizes of one ring; `FULL` normally, `SMALL` when shared memory is short."""

    __slots__ = ("groups", "leftovers", "side", "sites", "slots")

    def __init__(self, groups: int, sites: int, leftovers: int, slots: int, side: int) -> None:
        self.groups = groups
        self.sites = sites
        self.leftovers = leftovers
        self.slots = slots
        self.side = side

    @property
    def sites_offset(self) -> int:
        return GROUPS_OFFSET + self.groups * GROUP_ROW.size

    @property
    def leftovers_offset(self) -> int:
        return self.sites_offset + self.sites * SITE_ROW.size

    @property
    def slots_offset(self) -> int:
        return self.leftovers_offset + self.leftovers * SLOT_SIZE

    @property
    def side_offset(self) -> int:
        return self.slots_offset + self.slots * SLOT_SIZE

    @property
    def size(self) -> int:
        return self.side_offset + self.side


FULL: Final = Shape(groups=512, sites=1024, leftovers=128, slots=8192, side=768 * 1024)
SMALL: Final = Shape(groups=128, sites=256, leftovers=64, slots=512, side=128 * 1024)
