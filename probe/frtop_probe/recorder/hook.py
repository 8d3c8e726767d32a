"""The dispatcher kernels: what runs at every collective. Budget: 12 µs over the bare op.

One closure per op with all it needs bound, since this is the only hot path in the
project; hence the length of `_kernel`. Three promises hold in it whatever happens: the op
is handed on exactly once, its exception passes untouched, and none of ours ever does.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from frtop_probe.recorder.boundary import of_handler
from frtop_probe.recorder.carried import carrier, weakly
from frtop_probe.recorder.groups import Group, Groups
from frtop_probe.recorder.operations import Operation, operations
from frtop_probe.recorder.pending import Pending
from frtop_probe.recorder.signatures import Key, Phantom, describe, glance
from frtop_probe.recorder.sites import Sites, caller_waits
from frtop_probe.recorder.writer import Writer
from frtop_probe.ring import layout
from frtop_probe.ring.layout import Cell, Event, Flag, Side

MAX_SIGNATURES: Final = 65_536
"""Bound on what the rank remembers of its own signatures, not on what it may issue."""
MAX_TIMEOUT: Final = 2**32 - 1


class TorchTooOldError(Exception):
    """This torch lacks something that the hook is made of; the text says what."""


class Core(Protocol):
    """What the kernels share. `switch[0]` is the only thing that turns them off."""

    writer: Writer
    groups: Groups
    pending: Pending
    sites: Sites
    switch: list[bool]
    reduces: deque[tuple[int, Any]]

    def fail(self, error: BaseException) -> None: ...


class Signatures:
    """Numbers the distinct signatures and writes each into the side table once."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._numbers = itertools.count(1)
        self._pseudo: dict[tuple[str, str], int] = {}

    def intern(
        self, known: dict[Key, int], key: Key, operation: Operation, args: Any, group: Group
    ) -> int:
        """The number of a signature; 0 when the table is full.

        Two threads may number one signature twice: that costs less than a lock, which a
        signal handler that raises at the wrong moment would leave locked.
        """
        number = self._enter(describe(operation, args, group.ranks))
        # Without the group's members, a root cannot be told yet: look again later.
        if len(known) < MAX_SIGNATURES and group.described:
            known[key] = number
        return number

    def pseudo(self, kind: str, members: str = "") -> int:
        """The number of a signature that is only a name, and who has to come if known."""
        number = self._pseudo.get((kind, members), 0)
        if not number:
            entry = {"kind": kind, "members": members} if members else {"kind": kind}
            number = self._pseudo[kind, members] = self._enter(entry)
        return number

    def _enter(self, signature: dict[str, Any]) -> int:
        number = next(self._numbers)
        if self._writer.enter(Side.SIGNATURE, number, signature):
            return number
        self._writer.cells[Cell.SIDE_LOST] += 1
        return 0


class Hook:
    """The installed kernels. They stay installed while the process lives."""

    def __init__(self, core: Core, signatures: Signatures, torch: Any) -> None:
        """Installs a kernel on every op of `c10d`.

        Raises:
            TorchTooOldError: something it needs is not there.
        """
        found, parts = _features(torch)
        core.pending.unbox = parts.unbox_work
        self._library = torch.library.Library("c10d", "IMPL")
        for operation in found:
            kernel = _kernel(operation, core, signatures, parts)
            hide_from_dynamo(torch, kernel)
            self._library.impl(operation.name, kernel, "BackendSelect", with_keyset=True)

    def remove(self) -> None:
        """Takes the kernels out. Only for a forked child that starts a recorder anew.

        Doing this again and again while threads issue ops crashes.
        """
        self._library._destroy()  # noqa: SLF001


class _Parts:
    """The pieces of torch that a kernel calls."""

    __slots__ = ("below", "packets", "unbox_group", "unbox_work")

    def __init__(self, torch: Any) -> None:
        c10d = torch.distributed
        self.below = torch._C._dispatch_keyset_full_after(  # noqa: SLF001
            torch._C.DispatchKey.BackendSelect  # noqa: SLF001
        )
        self.packets = torch.ops.c10d
        self.unbox_group = c10d.ProcessGroup.unbox
        self.unbox_work = c10d.Work.unbox


def _features(torch: Any) -> tuple[list[Operation], _Parts]:
    try:
        parts = _Parts(torch)
        found = operations(torch._C._jit_get_all_schemas())  # noqa: SLF001
        torch.library.Library  # noqa: B018
    except AttributeError as error:
        raise TorchTooOldError(f"torch {torch.__version__} has no {error.name}") from error
    if not found:
        raise TorchTooOldError(f"torch {torch.__version__} has no dispatched c10d ops")
    return found, parts


def hide_from_dynamo(torch: Any, function: Callable[..., Any]) -> None:
    """Tells Dynamo to leave a function alone; else it traces it where a graph breaks.

    Once per code object, costs nothing later, and does not import the compiler.
    """
    try:
        frames = torch._C._dynamo.eval_frame  # noqa: SLF001
        skip = frames._FrameAction.SKIP  # noqa: SLF001
        strategy = frames._FrameExecStrategy(skip, skip)  # noqa: SLF001
        frames.set_code_exec_strategy(function.__code__, strategy)
    except AttributeError:  # another torch: worse warnings, no wrong results
        return


def _kernel(  # noqa: C901, PLR0915
    operation: Operation, core: Core, signatures: Signatures, parts: _Parts
) -> Callable[..., Any]:
    overload = getattr(parts.packets, operation.name).default
    # What `overload.redispatch` wraps, without its Python frame: 0.4 µs.
    redispatch = getattr(overload._handle, "redispatch_boxed", overload.redispatch)  # noqa: SLF001
    below, unbox_group, unbox_work = parts.below, parts.unbox_group, parts.unbox_work
    writer, switch, fail = core.writer, core.switch, core.fail
    shape, ring, cells = writer.shape, writer.map, writer.cells
    look, p2p = glance(operation), operation.p2p
    keyed_by_group = operation.root >= 0 or operation.peer >= 0 or operation.in_splits >= 0
    at_group, at_async, at_timeout = operation.group, operation.async_op, operation.timeout
    at_reduce, always = operation.reduce, operation.always_sync
    known: dict[Key, int] = {}
    intern, find_site = signatures.intern, core.sites.finder()
    known_groups, adopt = core.groups.known, core.groups.adopt
    skipped = core.groups.loosen  # a number may be used up by an op that will not be
    pending, queue, finish = core.pending.open, core.pending.queue, core.pending.finish
    waiting, returned = core.pending.waiting, core.pending.returned
    find_waited = waiting.get
    untrack, advance, probe = core.pending.untrack, core.pending.advance, core.pending.prober()
    loose, weaken, mute = core.pending.loose, core.pending.weaken, operation.mute
    carry, carry_far = carrier(operation), core.pending.far.append
    decode_later = core.reduces.append
    next_sequence, clock, thread_ident = (
        writer.next_sequence,
        time.monotonic_ns,
        threading.get_ident,
    )
    pack_slot, pack_row = layout.SLOT.pack_into, layout.GROUP_ROW.pack_into
    slots_at, slots, width = shape.slots_offset, shape.slots, layout.SLOT_SIZE
    rows_at, rows, row_width = layout.GROUPS_OFFSET, shape.groups, layout.GROUP_ROW.size
    head, ops, op_event = int(Cell.HEAD), int(Cell.OPS), int(Event.OP)
    sync_flag, p2p_flag = int(Flag.SYNC), int(Flag.P2P)
    often = slots // 8 - 1
    getframe, identity = sys._getframe, id  # noqa: SLF001

    def kernel(keyset: Any, *args: Any) -> Any:  # noqa: C901, PLR0912, PLR0915
        if not switch[0]:
            return redispatch(keyset & below, *args)
        sequence = 0
        try:
            now = clock()
            thread = thread_ident()
            waited = find_waited(thread)
            if waited is not None:
                returned(waited, now)
            if queue:
                probe(now)
            if loose:
                weaken(thread, now)
            given = len(args)
            process_group = unbox_group(args[at_group])
            group = known_groups.get(identity(process_group))
            if group is None or not group.described:
                group = adopt(process_group)
            key, on_cpu = look(args)
            if keyed_by_group:
                key = (group.id, key)
            signature = known.get(key)
            if signature is None:
                signature = intern(known, key, operation, args, group)
            try:
                caller = getframe(1)
            except ValueError:  # issued by a thread that runs no Python
                caller = None
            site = find_site(caller)
            flags = 0
            if p2p:
                flags = p2p_flag | (sync_flag if caller_waits(caller) else 0)
                number = group.next_p2p()
                if number > group.p2p:  # noqa: PLR1730 - a call is a point to switch threads
                    group.p2p = number
            else:
                if always or (-1 < at_async < given and not args[at_async]):
                    flags = sync_flag
                number = group.next_number()
                if number > group.number:  # noqa: PLR1730 - likewise
                    group.number = number
            timeout = args[at_timeout] if -1 < at_timeout < given else 0
            if not 0 < timeout <= MAX_TIMEOUT:
                timeout = 0
            sequence = next_sequence()
            group_id = group.id
            pending[sequence] = group_id
            pack_slot(
                ring, slots_at + sequence % slots * width,
                sequence, now, 0, number, thread, group_id, signature, site,
                timeout, flags, 0, op_event, 0, sequence,
            )  # fmt: skip
            if group_id < rows:
                pack_row(
                    ring, rows_at + group_id * row_width,
                    sequence, group.number, group.p2p, sequence, now, signature, site, sequence,
                )  # fmt: skip
            if sequence > cells[head]:  # noqa: PLR1730 - likewise
                cells[head] = sequence
            cells[ops] += 1
            if -1 < at_reduce < given:
                decode_later((sequence, args[at_reduce]))
            if not sequence & often:
                advance()
        except Phantom:
            pass
        except BaseException as error:
            if not isinstance(error, Exception) or of_handler(error):
                if sequence:  # the op will not be
                    failed = (None, sequence, now, 0, 0, True, None, None)
                    _quietly(finish, failed, now, True)
                _quietly(skipped)
                raise
            sequence = 0  # nothing of ours may reach training code
            fail(error)
        try:
            result = redispatch(keyset & below, *args)
        except BaseException:
            if sequence:
                failed = (None, sequence, now, site, group_id, True, None, None)
                _quietly(finish, failed, clock(), True)
            raise
        if sequence:
            try:
                if result is None:
                    finish((None, sequence, now, site, group_id, True, None, None), clock())
                elif on_cpu:
                    work = result[-1] if type(result) is tuple else result
                    sync = flags & sync_flag != 0
                    if sync:
                        mute_since = clock() if mute else 0
                        waiting[thread] = [
                            work, sequence, now, site, group_id, mute_since, carry(args), operation,
                        ]  # fmt: skip
                    else:
                        entry = (
                            unbox_work(work), sequence, now, site, group_id, False,
                            carry(args), operation,
                        )  # fmt: skip
                        if mute:
                            loose.append((entry, clock(), thread))
                        else:
                            queue.append(entry)
                else:
                    untrack(sequence)
                    carry_far((sequence, operation, weakly(carry(args))))
            except BaseException as error:
                if not isinstance(error, Exception) or of_handler(error):
                    _quietly(untrack, sequence, clock())  # nobody has its handle
                    raise
                fail(error)
        return result

    return kernel


def _quietly(function: Callable[..., None], *args: Any) -> None:
    try:
        function(*args)
    except Exception:  # noqa: BLE001 - the program's own exception is on its way up
        return
