"""Reads one backend of a process group in C++: its number, ops in progress, timeout.

Every look validates every object: the program may have freed it and reused its memory.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from frtop_probe.proc.memory import LOWEST_ADDRESS, NotReadable, ProcessMemory, to_words
from frtop_probe.unprepared import cxx
from frtop_probe.unprepared.model import Backend, Fronts, GroupState, TensorInfo, Work
from frtop_probe.unprepared.tensors import tensor_of_impl
from frtop_probe.unprepared.torch_layout import BackendClass, TorchLayout

UNKNOWN_BACKEND: Final = "number not readable: an unknown backend"
NO_NUMBER: Final = "number not readable: its offset could not be validated"
NO_PENDING: Final = "ops in progress not readable"

# Backend.hpp: intrusive_ptr_target 16, rank_ 4, size_ 4.
BACKEND_RANK: Final = 16
_WRAPPER_BYTES: Final = 160
"""ProcessGroupWrapper.hpp: Backend's members, then backend_ and glooBackend_."""
# Backend::Options: vtable 8, counts 8, timeout 8, backend 32.
_OPTIONS_TIMEOUT: Final = 16
_OPTIONS_NAME: Final = 24
_OPTIONS_SEARCH: Final = range(24, 512, 8)
_TAIL: Final = {"gloo": 56, "nccl": 120}
"""Bytes of a backend from its number up to its status.

After gloo's `seq_` come `local_id_`, from 2.15 a vector of ranks, and the status. After NCCL's come
`seqP2P_`, `op_id_`, `local_id_`, that vector, a log prefix, two more members, and the status.
Without the vector this reads 24 bytes past the object, which are validated before use.
"""
_STEADY_TRIES: Final = 3
_STATUS_BYTES: Final = 24 + 3 * cxx.STRING
_CONDITION: Final = 48  # sizeof(std::condition_variable)
_MAX_THREADS: Final = 256
_MAX_REPORTED: Final = 64

NO_WORK: Final = "op not readable: it could not be validated"

_OPS: Final = (
    "broadcast", "allreduce", "allreduce_coalesced", "reduce", "allgather", "allgather_base",
    "allgather_coalesced", "gather", "scatter", "reduce_scatter", "alltoall_base", "alltoall",
    "send", "recv", "recv_anysource", "barrier", "reduce_scatter_base", "coalesced",
    "allreduce_sparse", "reduce_scatter_tensor_coalesced",
)  # fmt: skip
"""c10d::OpType of Work.hpp, in order; 100 is UNKNOWN."""
_UNKNOWN_OP: Final = 100
_MAX_NUMBER: Final = 1 << 48

_VTABLE_WORDS: Final = 24
"""Virtual functions of Work to search; Work has 17 in 2.8 and 20 in 2.15."""
_MAX_TENSORS: Final = 16
"""Most output tensors described. An all_gather has one per member."""
_MAX_LISTS: Final = 4096
_NO_TIMEOUT_S: Final = 10 * 365 * 86_400


@dataclass(frozen=True, slots=True)
class BackendPlace:
    """Where one backend is: its class, its devices, and DETAIL's helper (0 if none)."""

    address: int
    vtable: int
    devices: tuple[str, ...]
    helper: int = 0
    checked: bool = False


class BackendReader:
    """Reads backends of one process; remembers where each class has its options."""

    def __init__(self, memory: ProcessMemory, layout: TorchLayout) -> None:
        self._memory = memory
        self._layout = layout
        self._works = _WorkReader(memory, layout)
        self._options: dict[int, int] = {}

    def is_vtable(self, address: int) -> bool:
        """Whether an object that begins with this word may be a backend."""
        return cxx.is_pointer(address) and (
            address in self._layout.backends
            or address in self._layout.wrappers
            or self._memory.word(address) > LOWEST_ADDRESS
        )

    def place(self, address: int, devices: tuple[str, ...]) -> BackendPlace:
        """Returns where a backend is; looks inside the wrapper that DETAIL adds.

        Raises:
            NotReadable: it wraps something else.
        """
        vtable = self._memory.word(address)
        if vtable not in self._layout.wrappers:
            return BackendPlace(address, vtable, devices)
        inner = [
            (word, found)
            for word in self._memory.words(address, _WRAPPER_BYTES // 8)[3:]
            if cxx.is_pointer(word) and (found := self._vtable_of(word)) in self._layout.backends
        ]
        if len(inner) != 2:  # backend_ and glooBackend_
            raise NotReadable(UNKNOWN_BACKEND, "wrapper")
        (backend, inner_vtable), (helper, _) = inner
        return BackendPlace(backend, inner_vtable, devices, helper, checked=True)

    def _vtable_of(self, address: int) -> int:
        try:
            return self._memory.word(address)
        except NotReadable:
            return 0

    def read(self, place: BackendPlace, group: GroupState) -> Backend:
        """Reads a backend of a group.

        Raises:
            NotReadable: its class is unknown, or it no longer belongs to this group.
        """
        kind = self._layout.backends.get(place.vtable)
        if kind is None:
            raise NotReadable(UNKNOWN_BACKEND)
        if kind.number is None or kind.kind not in _TAIL:
            return Backend(
                kind.kind, place.devices, checked=place.checked, proven=False, reason=NO_NUMBER
            )
        is_gloo = kind.kind == "gloo"
        for _ in range(_STEADY_TRIES):
            raw = self._block(place.address, place.vtable, kind, group)
            pending, reason = self._pending(raw, kind) if is_gloo else ((), "")
            if not is_gloo or self._is_steady(raw, place, kind, group):
                break
        (number,) = struct.unpack_from("<Q", raw, kind.number)
        if number > _MAX_NUMBER:
            raise NotReadable(NO_NUMBER, f"{number}")
        checks, check_number = self._checks(place.helper)
        return Backend(
            kind=kind.kind,
            devices=place.devices,
            number=number,
            counts_p2p=is_gloo,
            collectives=_collectives(raw, kind),
            p2p_number=None if is_gloo else _p2p_number(raw, kind.number),
            timeout_s=self._timeout(raw, place.vtable, kind),
            pending=pending,
            checks=checks,
            check_number=check_number,
            fronts=self._fronts(raw, kind.number),
            checked=place.checked,
            proven=is_gloo,
            reason=reason,
        )

    def _block(
        self, address: int, vtable: int, kind: BackendClass, group: GroupState | None
    ) -> bytes:
        """Reads a backend object; it must still be one of this group."""
        assert kind.number is not None
        raw = self._memory.read(address, kind.number + _TAIL[kind.kind])
        rank, size = struct.unpack_from("<ii", raw, BACKEND_RANK)
        if to_words(raw[:8])[0] != vtable:
            raise NotReadable(UNKNOWN_BACKEND, "freed")
        if group is not None and (rank, size) != (group.rank, group.size):
            raise NotReadable(UNKNOWN_BACKEND, "another rank or size")
        return raw

    def _is_steady(
        self, before: bytes, place: BackendPlace, kind: BackendClass, group: GroupState
    ) -> bool:
        """Whether gloo's two counters are consistent, not read between their increments.

        Ops in progress are numbered by the difference.
        """
        after = self._block(place.address, place.vtable, kind, group)
        return _messages(before, kind) == _messages(after, kind)

    def _checks(self, helper: int) -> tuple[tuple[Work, ...], int | None]:
        """Reads the ops in progress and the number of DETAIL's helper, if there is one."""
        kind = self._layout.backends.get(vtable := self._vtable_of(helper)) if helper else None
        if kind is None or kind.kind != "gloo" or kind.number is None:
            return (), None
        raw = self._block(helper, vtable, kind, None)
        (number,) = struct.unpack_from("<Q", raw, kind.number)
        return self._pending(raw, kind)[0], number if number <= _MAX_NUMBER else None

    def _pending(self, raw: bytes, kind: BackendClass) -> tuple[tuple[Work, ...], str]:
        """Reads gloo's ops in progress, then those in its queue; returns a reason if that fails.

        ProcessGroupGloo.hpp: workQueue_, workInProgress_, workMutex_, two condition variables and
        seq_.
        """
        assert kind.number is not None
        running_at = kind.number - 2 * _CONDITION - self._layout.mutex - cxx.VECTOR
        queue_at = running_at - cxx.DEQUE
        try:
            begin, count = cxx.vector(to_words(raw[running_at:][: cxx.VECTOR]), 8, _MAX_THREADS)
            running = self._memory.words(begin, count) if count else ()
            queue = cxx.deque_of_pointers(self._memory, to_words(raw[queue_at:][: cxx.DEQUE]))
        except NotReadable:
            return (), NO_PENDING
        works = list(self._each_work(running, running=True))
        works += self._each_work(queue[:_MAX_REPORTED], running=False)
        return tuple(sorted(works, key=lambda work: work.number)), ""

    def _each_work(self, addresses: Sequence[int], *, running: bool) -> Iterator[Work]:
        for address in addresses:
            if address:
                try:
                    yield self._works.read(address, running=running)
                except NotReadable:  # it has ended and been freed
                    continue

    def _timeout(self, raw: bytes, vtable: int, kind: BackendClass) -> float | None:
        """Finds the options among the backend's pointers, by their vtable; None if missing."""
        if kind.options is None:
            return None
        known = self._options.get(vtable)
        for offset in (known,) if known is not None else _OPTIONS_SEARCH:
            if offset + 8 > len(raw):
                break
            (address,) = struct.unpack_from("<Q", raw, offset)
            if not cxx.is_pointer(address):
                continue
            try:
                options = self._memory.read(address, _OPTIONS_NAME + cxx.STRING)
                if to_words(options[:8])[0] != kind.options:
                    continue
                text = options[_OPTIONS_NAME:]
                if cxx.string(self._memory, address + _OPTIONS_NAME, text) != kind.kind:
                    continue
            except NotReadable:
                continue
            self._options[vtable] = offset
            return _seconds_of(struct.unpack_from("<q", options, _OPTIONS_TIMEOUT)[0])
        return None

    def _fronts(self, raw: bytes, number_at: int) -> Fronts | None:
        """Finds pgStatus_ after the number: a shared_ptr of make_shared.

        Its object follows the control block, so the second pointer is 16 less than the first.
        """
        words = to_words(raw[number_at + 8 :])
        for place, (status, control) in enumerate(itertools.pairwise(words)):
            if place and cxx.is_pointer(status) and status == control + 16:
                try:
                    return self._status(status)
                except NotReadable:
                    continue
        return None

    def _status(self, address: int) -> Fronts:
        """Reads a ProcessGroupStatus (logger.hpp): three numbers, then three names."""
        raw = self._memory.read(address, _STATUS_BYTES)
        numbers = struct.unpack_from("<3q", raw)
        if any(not -1 <= number < _MAX_NUMBER for number in numbers):
            raise NotReadable(cxx.UNKNOWN_LAYOUT, "status")
        for at in range(24, _STATUS_BYTES, cxx.STRING):
            cxx.string(self._memory, address + at, raw[at : at + cxx.STRING])
        return Fronts(*numbers)


def _collectives(raw: bytes, kind: BackendClass) -> int | None:
    """Reads gloo's `collectiveCounter_`, which gives tags to collectives but not to messages."""
    if kind.collectives is None or kind.collectives + 4 > len(raw):
        return None
    return int(struct.unpack_from("<I", raw, kind.collectives)[0])


def _messages(raw: bytes, kind: BackendClass) -> int | None:
    collectives = _collectives(raw, kind)
    assert kind.number is not None
    (number,) = struct.unpack_from("<Q", raw, kind.number)
    return None if collectives is None else number - collectives


def _p2p_number(raw: bytes, number_at: int) -> int | None:
    """Reads NCCL's `seqP2P_`, which follows `seqCollective_`; `op_id_` after it counts both."""
    number, p2p, op_id = struct.unpack_from("<3Q", raw, number_at)
    # A coalesced group has more ops than numbers, never fewer.
    return p2p if p2p <= op_id < _MAX_NUMBER and number <= _MAX_NUMBER else None


class _WorkReader:
    """Reads gloo's ops, objects of `c10d::Work`; remembers the vtables that it has validated.

    The program may free an op while it is read. So every field is checked, and so is the class: by
    the function that its vtable has for `getSequencenumber`.
    """

    def __init__(self, memory: ProcessMemory, layout: TorchLayout) -> None:
        self._memory = memory
        self._layout = layout
        self._number_offsets: dict[int, tuple[int, bool]] = {}

    def read(self, address: int, *, running: bool) -> Work:
        """Reads the op at an address.

        Raises:
            NotReadable: It is not gloo's, or the program has freed it.
        """
        layout = self._layout.work
        if layout is None or not cxx.is_pointer(address):
            raise NotReadable(NO_WORK, f"{address:#x}")
        number_at, is_async = self._class_of(self._memory.word(address))
        ends = [number_at + 8, layout.op + 1]
        if is_async and layout.timeout is not None:
            ends.append(layout.timeout + 8 + cxx.VECTOR)
        raw = self._memory.read(address, max(ends))
        op, completed = raw[layout.op], raw[layout.completed]
        (number,) = struct.unpack_from("<Q", raw, number_at)
        name = _OPS[op] if op < len(_OPS) else "unknown"
        if completed > 1 or number > _MAX_NUMBER or (name == "unknown" and op != _UNKNOWN_OP):
            raise NotReadable(NO_WORK, f"{op} {completed} {number}")
        timeout, outputs = None, None
        if is_async and layout.timeout is not None:
            timeout = _seconds_of(struct.unpack_from("<q", raw, layout.timeout)[0])
            outputs = self._outputs(to_words(raw[layout.timeout + 8 :][: cxx.VECTOR]))
        return Work(name, number, bool(completed), timeout, outputs, running)

    def _class_of(self, vtable: int) -> tuple[int, bool]:
        """Returns the offset of the number, and whether this is an AsyncWork."""
        known = self._number_offsets.get(vtable)
        if known is not None:
            return known
        if not any(image.contains(vtable) for image in self._layout.libraries.values()):
            raise NotReadable(NO_WORK, "vtable")
        assert self._layout.work is not None
        numbers = self._layout.work.numbers
        for function in self._memory.words(vtable, _VTABLE_WORDS):
            if function in numbers:
                found = numbers[function], function == self._layout.async_number
                self._number_offsets[vtable] = found
                return found
        raise NotReadable(NO_WORK, "class")

    def _outputs(self, words: tuple[int, ...]) -> tuple[TensorInfo, ...] | None:
        """Reads a std::vector<std::vector<at::Tensor>>; None if one cannot be validated."""
        found: list[TensorInfo] = []
        try:
            begin, count = cxx.vector(words, cxx.VECTOR, _MAX_LISTS)
            for place in range(min(count, _MAX_TENSORS)):
                inner = self._memory.words(begin + place * cxx.VECTOR, 3)
                first, tensors = cxx.vector(inner, 8, _MAX_LISTS)
                for impl in self._memory.words(first, tensors) if tensors else ():
                    if len(found) < _MAX_TENSORS:
                        found.append(tensor_of_impl(self._memory, impl))
        except NotReadable:
            return None
        return tuple(found)


def _seconds_of(milliseconds: int) -> float | None:
    """Returns a timeout in seconds; None for a value that means "none"."""
    seconds = milliseconds / 1000
    return seconds if 0 < seconds < _NO_TIMEOUT_S else None
