"""Layout of a ring file: header, status cells, rows, slots, sizes, marks and the side table.

A ring is one file, mapped by the rank that writes it. The agent copies what it reads (`reader`):

    header     256 B    fixed at creation: process, section sizes, clock anchor
    cells      256 x 8  current state: one machine word each, written in one store each
    groups     N x 128  per process group: its counts, its device and its last op
    sites      N x 32   per call site: how long an op from there usually takes
    overflow   N x 88   pending ops so old that the history would overwrite them
    sizes      N x 64   shapes and splits of ops, each overwritten after N chunks
    marks      N x 64   the history of everything else: steps, notes, fetches, phases, values
    side table          op forms, call sites, groups, exceptions, as JSON
    slots      N x 88   the history: one op each
    more slots N x 88   a hole in the file until an operator asks for a longer history

Rules that make reading safe without a lock, on processors that reorder stores as well:

* A cell is a native 64-bit word: a reader sees the old or the new value, never a mix.
* Everything longer has a CRC-32. A reader copies it, computes the sum, and drops what does not
  match: the rank is writing it or has just overwritten it.
* The event with sequence number `n` (from 1) is in slot `n % slots`; another number there means
  that the event was overwritten. Events from `StatusCell.LONGER_FROM` on are in slot
  `slots + n % more`. No event has that number yet when the cell is set, so none changes its place.
* Fields of a slot that change later are one store each and outside its sum. Flags and reduce op
  share a word with the sum, so they belong to the same op. Times before the op was issued are left
  over from the slot's previous event, and mean 0.
* Marks have their own numbers, and mark `n` is in `n % marks`: a loop that only fetches overwrites
  no op. Their end and samples change later, and are one store each.
* The writer commits side-table bytes by advancing `StatusCell.SIDE_USED` after writing them.
  A later entry of the same kind and number replaces an earlier one. Once the table is mostly
  full, the writer begins it anew with what is still needed, under the next version.

All numbers are native-endian, because writer and reader share one host. Times are
`time.monotonic_ns()` of that host; the header has one wall-clock anchor.
"""

from __future__ import annotations

import enum
import struct
from typing import Final, NamedTuple

MAGIC: Final = b"FRTOPRG1"
VERSION: Final = 1
LONGEST: Final = 2**62
"""Numbers in a ring may be garbage. Larger ones are rejected: the difference of two must fit the
wire."""
SUFFIX: Final = ".ring"
"""Ring files are `<FRTOP_DIR>/<pid>-<start ticks>-<pid namespace>.ring`."""

HEADER: Final = struct.Struct("=8s2I2Q16s2q2I4Q8I")
"""magic, version, size of the file, start ticks of the process, inode of its pid
namespace, boot id, monotonic anchor ns, wall-clock anchor ns, pid, native id of the
recorder's thread, pthread ident of the main thread, three reserved words, then the
counts: groups, sites, overflow, slots, chunks of sizes, marks, bytes of the side table, more
slots."""
HEADER_SIZE: Final = 256

CELLS_OFFSET: Final = HEADER_SIZE
CELLS: Final = 256
GROUPS_OFFSET: Final = CELLS_OFFSET + CELLS * 8


class StatusCell(enum.IntEnum):
    """Index of each status cell. New cells are appended; old ones are never renumbered."""

    STATE = 0  # a State
    HEARTBEAT_NS = 1  # when the recorder's thread last ran
    HEARTBEATS = 2  # how often it has run
    HEAD = 3  # sequence number of the newest op (0: none)
    OLDEST = 4  # every event before this one is complete or in the overflow
    SIDE_USED = 5  # committed bytes of the side table
    STEP = 6  # last training step that ended (0: none)
    STEP_NS = 7  # when it ended
    FETCH_BEGIN_NS = 8  # start of the last DataLoader fetch
    FETCH_END_NS = 9  # its end; if that is before the start, a fetch is running
    FETCH_WORKER = 10  # index of the worker that it waits for; -1 unknown, -2 no workers
    FETCH_WORKER_PID = 11
    FETCH_WORKERS = 12  # number of workers
    SIDE_LOST = 13  # signatures and sites that did not fit into the side table
    PENDING_LOST = 14  # pending ops that did not fit into the overflow
    HOOK_ERRORS = 15  # exceptions caught inside the hook (the recorder is off then)
    RANK = 16  # global rank; -1 while unknown
    EXCEPTION_NS = 17  # when an exception ended the program (0: none)
    MARKS = 18  # sequence number of the newest mark (0: none)
    WATCHED = 19  # kinds of marks that the rank records: bits `1 << MarkKind`
    LONGER_FROM = 20  # the first event that is in one of the more slots (0: none is)
    SIDE_VERSION = 21  # how often the side table was written anew


class State(enum.IntEnum):
    """State of the recorder, in `StatusCell.STATE`."""

    STARTING = 0
    ON = 1
    OFF = 2  # the recorder switched itself off after an error; a NOTE entry says why
    STOPPED = 3  # stop() was called, or the interpreter exited


class Side(enum.IntEnum):
    """Kinds of side-table entries. Payloads are JSON."""

    IDENTITY = 1  # rank, world size, master, run id, torch, argv, ...; the last one is valid
    FORM = 2  # what all ops of a form have in common, see below
    SITE = 3  # [file, line, function]
    GROUP = 4  # name, description, backend, ranks (folded), exact, timeout_s, blind, error
    EXCEPTION = 5  # type, text, thread, frames, main: an uncaught exception
    NOTE = 6  # text, from the recorder or from annotate()
    TRANSPORTS = 7  # [[name, sign], ...] of transports past c10d; the last one is valid
    MODULE = 8  # [path, class of the outermost module, part of it, modules in that part ...]
    REPORT = 9  # name of a value that the job reports


SIDE_ENTRY: Final = struct.Struct("=IHHII")
"""Payload bytes, kind, padding bytes after the payload (entries are 8-aligned), id, CRC-32 of
the payload, which goes on from the version of the side table."""
MAX_DESTROYED: Final = 64
"""Destroyed groups that readers keep, the last ones."""
LAST: Final = {Side.GROUP: MAX_DESTROYED, Side.NOTE: 64, Side.EXCEPTION: 8}
"""How many of these a side table written anew has, the last ones; of groups, how many destroyed
ones. A program may make new ones all day."""
SIDE_RESERVED: Final = 64 * 1024
"""Bytes at the end of the side table, reserved for exceptions, notes and groups: many distinct
call sites must not crowd them out."""

GROUP_ROW: Final = struct.Struct("=3Q4q64sII")
"""One word each: sequence number of the last op, number of the last collective, number of the last
p2p op; then those at `GROUP_DEVICE`. Then a copy of the last op's slot up to its later flags, which
the recorder's thread makes now and then. It is valid if its sequence number equals the first word.
Readers need it once the history has overwritten the op."""
GROUP_DEVICE: Final = 24
"""Offset of four words of a group whose ops run on a device, all 0 in other groups: number of the
last collective that was handed to the device, of the last one that the device has completed, when
that last advanced in ns, and 1 while the recorder follows the device (0: both may be outdated)."""
GROUP_COPY: Final = 56
"""Offset of the copy."""
COPIED: Final = 72
"""Bytes of a slot that are copied."""
SITE_BODY: Final = struct.Struct("=QqI")
"""number of ops measured, smoothed wait in ns, 1 if the waits are exact (0: upper bounds)."""
SITE_ROW: Final = struct.Struct("=20sI8x")
"""A body and its CRC-32."""

SLOT_BODY: Final = struct.Struct("=QqQQIIIIIBBHQ")
"""sequence number, issue time in ns, number in its group, pthread ident, group id, form id, site
id, timeout in ms (0: the group's), party (index in the group of the root or peer, plus 1; 0:
none), event, flags, issuer (0: not recorded, else see `IssuePhase`), position of the sizes (0: none
or unknown)."""
SLOT: Final = struct.Struct("=64sIBBHqq")
"""A body and its CRC-32, later flags, reduce op, message, done in ns, wait in ns.

`message` is the number of a send or receive among those of its rank with the same group, direction,
peer and tag (on a device: with any tag): 1 to `MESSAGES`, then from 1 again; 0 if it was not
counted. `done` is 0 while pending, and negative if the op failed at that time. `wait` is when a
thread began to wait for the op; if negative, when the last wait ended; 0 without a wait."""
SLOT_SIZE: Final = SLOT.size
MESSAGES: Final = 2**16 - 1
SLOT_ISSUED: Final = 8
SLOT_THREAD: Final = 24
SLOT_FLAGS: Final = 68
"""Offset of the flags that are set after the call has returned."""
SLOT_REDUCE: Final = 69
"""Offset of the reduce op: the recorder's thread decodes it later."""
SLOT_MESSAGE: Final = 70
SLOT_DONE: Final = 72
"""Offset of `done`: 8-aligned, so that completing an op is one store."""
SLOT_WAIT: Final = 80

CHUNK: Final = 64
"""Bytes of a chunk of sizes. Chunk number `n` (from 1) is at `n % chunks`. A record has one or more
consecutive chunks; its position is the number of the first."""
SIZES: Final = struct.Struct("=QIIB7x")
"""Head of a record: its position, CRC-32 of position and integers, count of the integers, bytes of
each (4 or 8). The unsigned integers follow; `ring.sizes` decodes them."""

NO_GROUP: Final = 0
"""Group id of events without a group: rendezvous, `new_group`."""


class Event(enum.IntEnum):
    """Kind of an event in a slot."""

    OP = 0
    PSEUDO = 1  # init_process_group, new_group, ...: begins and ends like an op


MARK_BODY: Final = struct.Struct("=QqQQII")
"""Sequence number, start in ns, number, pthread ident, kind, id of a REPORT entry (0: none)."""
MARK: Final = struct.Struct("=40sI4xqq")
"""A body and its CRC-32, end in ns, samples.

The end is 0 while the mark lasts, equal to the start for a mark without a duration, and negative
if nobody saw it. Samples are what the job reports for a step, after its end."""
MARK_SIZE: Final = MARK.size
MARK_END: Final = 48
"""Offset of the end: 8-aligned, so that ending a mark is one store."""
MARK_SAMPLES: Final = 56
REPORT: Final = struct.Struct("=40sI4xqd")
"""A mark of a value that the job reports: in place of samples it has the value, a double, which may
have any bits. The CRC-32 is of the body and the value."""
REPORT_VALUE: Final = struct.Struct("=d")
MAX_REPORT_NAMES: Final = 32
MAX_REPORT_NAME: Final = 64
"""Characters of a name."""


class MarkKind(enum.IntEnum):
    """Kind of a mark, and what its number is."""

    STEP = 1  # the step that ended
    NOTE = 2  # id of a NOTE entry
    FETCH = 3  # index of the DataLoader's worker, plus 1; 0: none, or unknown
    FORWARD = 4  # for this and the other phases: the step that contains them
    BACKWARD = 5
    OPTIMIZER = 6
    REPORT = 7  # the step that the value belongs to; see `REPORT`


class Flag(enum.IntFlag):
    """Bits of a slot's flags."""

    SYNC = 1  # the caller waits for the op before it continues
    P2P = 2  # numbered apart from collectives, so ranks cannot be compared by its number
    UNTRACKED = 4  # completion unknown (devices); `done` is when the recorder dropped its handle
    LATE = 8  # `done` is when the op was found complete: it may have been earlier
    DEVICE = 16  # it runs on a device, and the call that issues it does not wait for it
    ENQUEUED = 32  # for a DEVICE op: that call has returned
    ELSEWHERE = 64  # a thread other than the issuing one waited for it


class IssuePhase(enum.IntEnum):
    """What a rank does when it issues an op: the issuer's bits from `PHASE_SHIFT` on.

    The bits below are the number of a MODULE entry (0: no module, or unknown).
    """

    UNRECORDED = 0
    FORWARD = 1
    BACKWARD = 2
    OPTIMIZER = 3
    RECOMPUTE = 4  # a forward that runs again inside a backward
    OUTSIDE = 5  # none of these


PHASE_SHIFT: Final = 13
MAX_MODULES: Final = 2**PHASE_SHIFT - 1

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


class Shape(NamedTuple):
    """Section sizes of a ring, as in its header: `FULL`, or `SMALL` where memory is short."""

    groups: int
    sites: int
    overflow: int
    slots: int
    chunks: int
    marks: int
    side: int
    more: int = 0

    @property
    def sites_offset(self) -> int:
        return GROUPS_OFFSET + self.groups * GROUP_ROW.size

    @property
    def overflow_offset(self) -> int:
        return self.sites_offset + self.sites * SITE_ROW.size

    @property
    def sizes_offset(self) -> int:
        return self.overflow_offset + self.overflow * SLOT_SIZE

    @property
    def marks_offset(self) -> int:
        return self.sizes_offset + self.chunks * CHUNK

    @property
    def side_offset(self) -> int:
        return self.marks_offset + self.marks * MARK_SIZE

    @property
    def slots_offset(self) -> int:
        return self.side_offset + self.side

    @property
    def size(self) -> int:
        """Bytes without the more slots; all are reserved when the ring is made."""
        return self.slots_offset + self.slots * SLOT_SIZE

    @property
    def longest(self) -> int:
        """Bytes with the more slots: the size of the file."""
        return self.size + self.more * SLOT_SIZE


FULL: Final = Shape(
    groups=512,
    sites=1024,
    overflow=128,
    slots=8192,
    chunks=8192,
    marks=4096,
    side=768 * 1024,
    more=65_536,
)
SMALL: Final = Shape(
    groups=128,
    sites=256,
    overflow=64,
    slots=512,
    chunks=512,
    marks=512,
    side=128 * 1024,
    more=8192,
)
