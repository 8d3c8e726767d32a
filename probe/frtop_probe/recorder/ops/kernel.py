"""The dispatcher kernels in Python, which run at every collective: 10 to 65 µs over the bare op.

They are for hosts without native kernels (`recorder/native`), and for ops on devices. An empty
kernel in Python costs 7 µs of that: torch turns the arguments into Python objects for it.

Three guarantees hold in every case: the op is passed on exactly once, its exception passes
unchanged, and the recorder's own exceptions never reach the program.
"""

from __future__ import annotations

import sys
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from frtop_probe.recorder.feature import OpWatch
from frtop_probe.recorder.guard import leave_out, raised_by_signal_handler
from frtop_probe.recorder.ops.call_sites import CallSites, caller_waits
from frtop_probe.recorder.ops.device_front import P2P
from frtop_probe.recorder.ops.device_watch import DeviceWatch
from frtop_probe.recorder.ops.groups import GroupTable
from frtop_probe.recorder.ops.operations import Operation, operations
from frtop_probe.recorder.ops.pending import PendingOps
from frtop_probe.recorder.ops.reduce_ops import ReduceOps
from frtop_probe.recorder.ops.signatures import NothingToCommunicate, SignatureTable, key_of
from frtop_probe.recorder.ops.tensor_refs import tensor_getter, weak_refs
from frtop_probe.recorder.ops.waits import WaitHook
from frtop_probe.recorder.own_ring import OwnRing
from frtop_probe.ring import layout
from frtop_probe.ring.layout import Event, Flag, StatusCell

MAX_TIMEOUT: Final = 2**32 - 1
MAX_PARTY: Final = 2**32 - 1
OFF: Final = 0
ON: Final = 1
EXPECTING: Final = 2
"""On, and `at_op` is called before each op."""


FindIssuer = Callable[[int, int, Any, Sequence[Any]], int]
"""Takes the thread's ident, the site, the process group and the op's arguments; returns the op's
issuer as in a slot."""


class TorchTooOldError(Exception):
    """This torch lacks something that the hook needs; the text says what."""


class KernelContext(Protocol):
    """Shared by the kernels. `enabled[0]` is `OFF`, `ON` or `EXPECTING`."""

    ring: OwnRing
    groups: GroupTable
    devices: DeviceWatch
    pending: PendingOps
    sites: CallSites
    watch: OpWatch
    enabled: list[int]
    reduce_ops: ReduceOps
    find_issuer: list[FindIssuer]
    """At most one. Never removed, because a kernel may be about to call it."""

    def fail(self, error: BaseException) -> None: ...

    def at_op(self) -> None:
        """Called before an op while ops are expected. Never raises."""


class Hook:
    """The installed kernels. They stay installed until the process ends."""

    def __init__(self, core: KernelContext, signatures: SignatureTable, torch: Any) -> None:
        """Installs a kernel on every op of `c10d`.

        Raises:
            TorchTooOldError: torch lacks something that the kernels need.
        """
        kernels = Kernels(core, signatures, torch)
        self._library = torch.library.Library("c10d", "IMPL")
        for operation, kernel in zip(kernels.operations, kernels.functions, strict=True):
            self._library.impl(operation.name, kernel, "BackendSelect", with_keyset=True)
        self._waits = WaitHook(
            kernels.parts.work, core.pending, core.watch, core.enabled, core.fail
        )
        for _, _, wrapper in self._waits.wrapped:
            hide_from_dynamo(torch, wrapper)

    def remove(self) -> None:
        """Removes the kernels. Only for a forked child that starts its own recorder.

        Removing them repeatedly while threads issue ops crashes.
        """
        self._library._destroy()  # noqa: SLF001
        self._waits.remove()


class Kernels:
    """The ops of `c10d`, a function for each, and the pieces of torch that these call."""

    def __init__(self, core: KernelContext, signatures: SignatureTable, torch: Any) -> None:
        """Installs nothing.

        Raises:
            TorchTooOldError: torch lacks something that the kernels need.
        """
        self.operations, self.parts = _features(torch)
        self.functions = [_kernel(one, core, signatures, self.parts) for one in self.operations]
        for function in self.functions:
            hide_from_dynamo(torch, function)


class _Parts:
    """The pieces of torch that a kernel calls."""

    __slots__ = ("below", "packets", "unbox_group", "unbox_work", "work")

    def __init__(self, torch: Any) -> None:
        c10d = torch.distributed
        self.below = torch._C._dispatch_keyset_full_after(  # noqa: SLF001
            torch._C.DispatchKey.BackendSelect  # noqa: SLF001
        )
        self.packets = torch.ops.c10d
        self.unbox_group = c10d.ProcessGroup.unbox
        self.work = c10d.Work
        self.unbox_work = c10d.Work.unbox


def _features(torch: Any) -> tuple[list[Operation], _Parts]:
    try:
        parts = _Parts(torch)
        found = operations(_schemas(torch._C))  # noqa: SLF001
        torch.library.Library  # noqa: B018
    except AttributeError as error:
        raise TorchTooOldError(f"torch {torch.__version__} has no {error.name}") from error
    if not found:
        raise TorchTooOldError(f"torch {torch.__version__} has no dispatched c10d ops")
    return found, parts


def _schemas(core: Any) -> list[Any]:
    """Returns the schemas of c10d's ops: those of all ops take ten times as long, and 20 MB."""
    names = (name.partition(".")[0] for name in core._dispatch_get_all_op_names())  # noqa: SLF001
    ours = dict.fromkeys(name for name in names if name.startswith("c10d::"))
    return [one for name in ours for one in core._jit_get_schemas_for_operator(name)]  # noqa: SLF001


def hide_from_dynamo(torch: Any, function: Callable[..., Any], *, callees: bool = True) -> None:
    """Makes Dynamo skip a function, which it would otherwise trace at a graph break.

    Applies to the code object, costs nothing later, and does not import the compiler.
    `callees` also skips the functions it calls; not for a function that calls the program's code.
    """
    try:
        frames = torch._C._dynamo.eval_frame  # noqa: SLF001
        skip = frames._FrameAction.SKIP  # noqa: SLF001
        below = skip if callees else frames._FrameAction.DEFAULT  # noqa: SLF001
        strategy = frames._FrameExecStrategy(skip, below)  # noqa: SLF001
        frames.set_code_exec_strategy(function.__code__, strategy)
    except AttributeError:  # other torch versions: more warnings, but no wrong results
        return


def _kernel(  # noqa: C901, PLR0915
    operation: Operation, core: KernelContext, signatures: SignatureTable, parts: _Parts
) -> Callable[..., Any]:
    overload = getattr(parts.packets, operation.name).default
    # The function that `overload.redispatch` wraps: saves a Python frame, 0.4 µs.
    redispatch = getattr(overload._handle, "redispatch_boxed", overload.redispatch)  # noqa: SLF001
    below, unbox_group, unbox_work = parts.below, parts.unbox_group, parts.unbox_work
    ring, enabled, fail, at_op, on = core.ring, core.enabled, core.fail, core.at_op, ON
    shape, data, words, cells = ring.shape, ring.map, ring.words, ring.cells
    p2p = operation.p2p
    at_party = max(operation.root, operation.peer)
    at_group, at_async, at_timeout = operation.group, operation.async_op, operation.timeout
    name, at_tag = operation.name, operation.tag
    at_reduce, always = operation.reduce, operation.always_sync
    known, write = signatures.writer_of(operation)
    floor, find_site = signatures.floor, core.sites.finder()
    known_groups, adopt = core.groups.known, core.groups.adopt
    mark_inexact = core.groups.mark_inexact  # the number may belong to an op that is never issued
    pending, finish = core.pending.open, core.pending.finish
    handles, silent_handles = core.pending.handles, core.pending.silent_handles
    device_handles, last_sync = core.pending.device_handles, core.pending.last_sync
    find_last, returned = last_sync.get, core.pending.returned
    untrack, spill_old_ops = core.pending.untrack, core.pending.overflow.spill
    probe, to_weaken, weaken = core.pending.prober(), core.pending.to_weaken, core.pending.weaken
    unsignalled = operation.unsignalled
    get_tensors, remember_device_op = tensor_getter(operation), core.pending.device_ops.append
    first_call, first_calls = core.devices.first_call, core.devices.first_calls
    enqueued = core.pending.enqueued
    watching, watch_op, handed = core.watch.watching, core.watch.begin, core.watch.handed
    decode_later = core.reduce_ops.raw.append
    find_issuer = core.find_issuer
    next_sequence, clock, thread_ident = (
        ring.next_sequence,
        time.monotonic_ns,
        threading.get_ident,
    )
    pack_slot, slot_body, checksum = layout.SLOT.pack_into, layout.SLOT_BODY.pack, zlib.crc32
    slots_at, slots, width = shape.slots_offset, shape.slots, layout.SLOT_SIZE
    more, longer_from = shape.more, ring.longer_from
    rows, rows_at, row_width = shape.groups, layout.GROUPS_OFFSET // 8, layout.GROUP_ROW.size // 8
    head, op_event = int(StatusCell.HEAD), int(Event.OP)
    sync_flag, p2p_flag, device_flag = int(Flag.SYNC), int(Flag.P2P), int(Flag.DEVICE)
    spill_mask = slots // 8 - 1
    getframe, identity = sys._getframe, id  # noqa: SLF001

    def kernel(keyset: Any, *args: Any) -> Any:  # noqa: C901, PLR0912, PLR0915
        if enabled[0] is not on:
            if not enabled[0]:
                try:
                    return redispatch(keyset & below, *args)
                except BaseException as error:
                    leave_out(error)
                    raise
            at_op()
        sequence = 0
        try:
            now = clock()
            thread = thread_ident()
            last = find_last(thread)
            if last in pending:
                returned(last, now)
            if handles:
                probe(now)
            if to_weaken:
                weaken(thread, now)
            given = len(args)
            process_group = unbox_group(args[at_group])
            group = known_groups.get(identity(process_group))
            if group is None or not group.described:
                group = adopt(process_group)
            group_id = group.id
            key, on_cpu = key_of(operation, args)
            written = known.get(key)
            if written is None or written[2] < floor[0]:
                written = write(key, args)
            form, sizes, _ = written
            party = args[at_party] + 1 if at_party >= 0 else 0
            if not 0 <= party <= MAX_PARTY:
                party = 0
            try:
                caller = getframe(1)
            except ValueError:  # issued by a thread without Python frames
                caller = None
            site = find_site(caller)
            issuer = (
                find_issuer[0](thread, site, process_group, args)
                if find_issuer else 0
            )  # fmt: skip
            flags = message = 0
            if p2p:
                # NCCL has no tags: its messages arrive in the order in which they were sent.
                channel = name, party, args[at_tag] if on_cpu else 0
                message = group.next_message(channel)
                flags = p2p_flag | (sync_flag if caller_waits(caller) else 0)
                number = group.next_p2p()
                if number > group.p2p:
                    group.p2p = number
                    if group_id < rows:
                        words[rows_at + group_id * row_width + 2] = number
            else:
                if always or (-1 < at_async < given and not args[at_async]):
                    flags = sync_flag
                number = group.next_number()
                if number > group.number:
                    group.number = number
                    if group_id < rows:
                        words[rows_at + group_id * row_width + 1] = number
            timeout = args[at_timeout] if -1 < at_timeout < given else 0
            if not 0 < timeout <= MAX_TIMEOUT:
                timeout = 0
            sequence = next_sequence()
            pending[sequence] = group_id
            if not on_cpu:
                flags |= device_flag
                front = group.front
                if front is not None:
                    if not (front.listed or front.blind):
                        first_call(sequence, now)
                    if p2p:
                        front.blind = P2P
            body = slot_body(
                sequence, now, number, thread, group_id, form, site, timeout, party,
                op_event, flags, issuer, sizes,
            )  # fmt: skip
            place = sequence % slots
            if sequence >= longer_from[0]:
                place = slots + sequence % more
            pack_slot(data, slots_at + place * width, body, checksum(body), 0, 0, message, 0, 0)
            if group_id < rows:
                words[rows_at + group_id * row_width] = sequence
            if sequence > cells[head]:  # noqa: PLR1730 - a call may switch threads
                cells[head] = sequence
            if -1 < at_reduce < given:
                decode_later((sequence, args[at_reduce]))
            if not sequence & spill_mask:
                spill_old_ops()
            watched = (
                watch_op(operation, args, group_id, number, site, flags, issuer, message)
                if watching else None
            )  # fmt: skip
        except NothingToCommunicate:
            pass
        except BaseException as error:
            if not isinstance(error, Exception) or raised_by_signal_handler(error):
                if sequence:  # the op is never issued
                    failed = (None, sequence, now, 0, 0, True, None, None)
                    _call_quietly(finish, failed, now, True)
                _call_quietly(mark_inexact)
                raise
            sequence = 0  # our own exceptions must not reach training code
            fail(error)
        try:
            result = redispatch(keyset & below, *args)
        except BaseException as error:
            leave_out(error)
            if sequence:
                first_calls.pop(sequence, None)
                failed = (None, sequence, now, site, group_id, True, None, None)
                _call_quietly(finish, failed, clock(), True)
                if p2p and group is not None:
                    _call_quietly(group.lose_count, channel)
            raise
        if sequence:
            try:
                if not on_cpu:
                    first_calls.pop(sequence, None)
                if result is None:
                    finish((None, sequence, now, site, group_id, True, None, None), clock())
                elif on_cpu:
                    work = unbox_work(result[-1] if type(result) is tuple else result)
                    entry = (
                        work, sequence, now, site, group_id, flags & sync_flag,
                        get_tensors(args), operation,
                    )  # fmt: skip
                    if flags & sync_flag:
                        last_sync[thread] = sequence
                    if unsignalled:
                        to_weaken.append((entry, clock(), thread))
                        silent_handles[identity(work)] = entry
                    else:
                        handles[identity(work)] = entry
                    if watched is not None:
                        handed(watched, work)
                else:
                    if front is None or front.blind:
                        untrack(sequence)
                    else:
                        enqueued(sequence)
                        front.handed_over(process_group, sequence, number, now, site)
                        if group_id < rows:
                            words[rows_at + group_id * row_width + 3] = number
                    remember_device_op((sequence, operation, weak_refs(get_tensors(args))))
                    if flags & sync_flag:
                        work = result[-1] if type(result) is tuple else result
                        if work is not None:
                            device_handles[thread] = unbox_work(work), sequence, clock()
            except BaseException as error:
                if not isinstance(error, Exception) or raised_by_signal_handler(error):
                    _call_quietly(untrack, sequence, clock())  # the program never gets its handle
                    raise
                fail(error)
        return result

    return kernel


def _call_quietly(function: Callable[..., None], *args: Any) -> None:
    try:
        function(*args)
    except Exception:  # noqa: BLE001 - the program's own exception is propagating
        return
