"""The dispatcher kernels, which run at every collective. Budget: 12 µs over the bare op.

This is the only hot path in the project, so each op has one closure with everything bound; hence
the length of `_kernel`, which writes the ring's slot itself. Three guarantees hold in every case:
the op is passed on exactly once, its exception passes unchanged, and an exception of the recorder
never reaches the program.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from frtop_probe.recorder.call_sites import CallSites, caller_waits
from frtop_probe.recorder.groups import GroupTable
from frtop_probe.recorder.guard import raised_by_signal_handler
from frtop_probe.recorder.operations import Operation, operations
from frtop_probe.recorder.pending import PendingOps
from frtop_probe.recorder.signatures import Key, NothingToCommunicate, SignatureTable, key_function
from frtop_probe.recorder.tensor_refs import tensor_getter, weak_refs
from frtop_probe.recorder.writer import RingWriter
from frtop_probe.ring import layout
from frtop_probe.ring.layout import Event, Flag, StatusCell

MAX_TIMEOUT: Final = 2**32 - 1


class TorchTooOldError(Exception):
    """This torch lacks something that the hook needs; the text says what."""


class KernelContext(Protocol):
    """What the kernels share. Only `enabled[0]` turns them off."""

    writer: RingWriter
    groups: GroupTable
    pending: PendingOps
    sites: CallSites
    enabled: list[bool]
    raw_reduce_ops: deque[tuple[int, Any]]

    def fail(self, error: BaseException) -> None: ...


class Hook:
    """The installed kernels. They stay installed until the process ends."""

    def __init__(self, core: KernelContext, signatures: SignatureTable, torch: Any) -> None:
        """Installs a kernel on every op of `c10d`.

        Raises:
            TorchTooOldError: torch lacks something that the kernels need.
        """
        found, parts = _features(torch)
        core.pending.unbox = parts.unbox_work
        self._library = torch.library.Library("c10d", "IMPL")
        for operation in found:
            kernel = _kernel(operation, core, signatures, parts)
            hide_from_dynamo(torch, kernel)
            self._library.impl(operation.name, kernel, "BackendSelect", with_keyset=True)

    def remove(self) -> None:
        """Removes the kernels. Only for a forked child that starts its own recorder.

        Repeated removal while threads issue ops crashes.
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
    """Makes Dynamo skip a function, which it would otherwise trace at a graph break.

    Applies to the code object, costs nothing later, and does not import the compiler.
    """
    try:
        frames = torch._C._dynamo.eval_frame  # noqa: SLF001
        skip = frames._FrameAction.SKIP  # noqa: SLF001
        strategy = frames._FrameExecStrategy(skip, skip)  # noqa: SLF001
        frames.set_code_exec_strategy(function.__code__, strategy)
    except AttributeError:  # other versions of torch: more warnings, but no wrong results
        return


def _kernel(  # noqa: C901, PLR0915
    operation: Operation, core: KernelContext, signatures: SignatureTable, parts: _Parts
) -> Callable[..., Any]:
    overload = getattr(parts.packets, operation.name).default
    # The function that `overload.redispatch` wraps: saves a Python frame, 0.4 µs.
    redispatch = getattr(overload._handle, "redispatch_boxed", overload.redispatch)  # noqa: SLF001
    below, unbox_group, unbox_work = parts.below, parts.unbox_group, parts.unbox_work
    writer, enabled, fail = core.writer, core.enabled, core.fail
    shape, ring, cells = writer.shape, writer.map, writer.cells
    make_key, p2p = key_function(operation), operation.p2p
    keyed_by_group = operation.root >= 0 or operation.peer >= 0 or operation.in_splits >= 0
    at_group, at_async, at_timeout = operation.group, operation.async_op, operation.timeout
    at_reduce, always = operation.reduce, operation.always_sync
    known: dict[Key, int] = {}
    intern, find_site = signatures.intern, core.sites.finder()
    known_groups, adopt = core.groups.known, core.groups.adopt
    mark_inexact = core.groups.mark_inexact  # the number may go to an op that is never issued
    pending, queue, finish = core.pending.open, core.pending.queue, core.pending.finish
    sync_ops, returned = core.pending.sync_ops, core.pending.returned
    find_previous = sync_ops.get
    untrack, spill_old_ops = core.pending.untrack, core.pending.spill_old_ops
    probe, to_weaken, weaken = core.pending.prober(), core.pending.to_weaken, core.pending.weaken
    unsignalled = operation.unsignalled
    get_tensors, remember_device_op = tensor_getter(operation), core.pending.device_ops.append
    decode_later = core.raw_reduce_ops.append
    next_sequence, clock, thread_ident = (
        writer.next_sequence,
        time.monotonic_ns,
        threading.get_ident,
    )
    pack_slot, pack_row = layout.SLOT.pack_into, layout.GROUP_ROW.pack_into
    slots_at, slots, width = shape.slots_offset, shape.slots, layout.SLOT_SIZE
    rows_at, rows, row_width = layout.GROUPS_OFFSET, shape.groups, layout.GROUP_ROW.size
    head, ops, op_event = int(StatusCell.HEAD), int(StatusCell.OPS), int(Event.OP)
    sync_flag, p2p_flag = int(Flag.SYNC), int(Flag.P2P)
    spill_mask = slots // 8 - 1
    getframe, identity = sys._getframe, id  # noqa: SLF001

    def kernel(keyset: Any, *args: Any) -> Any:  # noqa: C901, PLR0912, PLR0915
        if not enabled[0]:
            return redispatch(keyset & below, *args)
        sequence = 0
        try:
            now = clock()
            thread = thread_ident()
            previous = find_previous(thread)
            if previous is not None:
                returned(previous, now)
            if queue:
                probe(now)
            if to_weaken:
                weaken(thread, now)
            given = len(args)
            process_group = unbox_group(args[at_group])
            group = known_groups.get(identity(process_group))
            if group is None or not group.described:
                group = adopt(process_group)
            key, on_cpu = make_key(args)
            if keyed_by_group:
                key = (group.id, key)
            signature = known.get(key)
            if signature is None:
                signature = intern(known, key, operation, args, group)
            try:
                caller = getframe(1)
            except ValueError:  # issued by a thread without Python frames
                caller = None
            site = find_site(caller)
            flags = 0
            if p2p:
                flags = p2p_flag | (sync_flag if caller_waits(caller) else 0)
                number = group.next_p2p()
                if number > group.p2p:  # noqa: PLR1730 - a call may switch threads
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
            if not sequence & spill_mask:
                spill_old_ops()
        except NothingToCommunicate:
            pass
        except BaseException as error:
            if not isinstance(error, Exception) or raised_by_signal_handler(error):
                if sequence:  # the op is never issued
                    failed = (None, sequence, now, 0, 0, True, None, None)
                    _call_quietly(finish, failed, now, True)
                _call_quietly(mark_inexact)
                raise
            sequence = 0  # an exception of ours must not reach training code
            fail(error)
        try:
            result = redispatch(keyset & below, *args)
        except BaseException:
            if sequence:
                failed = (None, sequence, now, site, group_id, True, None, None)
                _call_quietly(finish, failed, clock(), True)
            raise
        if sequence:
            try:
                if result is None:
                    finish((None, sequence, now, site, group_id, True, None, None), clock())
                elif on_cpu:
                    work = result[-1] if type(result) is tuple else result
                    sync = flags & sync_flag != 0
                    if sync:
                        unsignalled_since = clock() if unsignalled else 0
                        sync_ops[thread] = [
                            work, sequence, now, site, group_id, unsignalled_since,
                            get_tensors(args), operation,
                        ]  # fmt: skip
                    else:
                        entry = (
                            unbox_work(work), sequence, now, site, group_id, False,
                            get_tensors(args), operation,
                        )  # fmt: skip
                        if unsignalled:
                            to_weaken.append((entry, clock(), thread))
                        else:
                            queue.append(entry)
                else:
                    untrack(sequence)
                    remember_device_op((sequence, operation, weak_refs(get_tensors(args))))
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
