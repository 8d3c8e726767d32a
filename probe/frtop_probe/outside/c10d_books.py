"""c10d's books: the process groups of a rank, their members, numbers and ops in progress.

From Python: `_pg_names`, `_pg_map` and `_pg_group_ranks` of torch.distributed.distributed_c10d.
From C++: the `ProcessGroup` of each, and the backends in its maps. Both must tell the same rank and
size. On later looks only what changes is read: about nine small reads a group.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from frtop_probe.outside import cxx
from frtop_probe.outside.cpython import DictEntry, Python
from frtop_probe.outside.memory import LOWEST_ADDRESS, NotReadable, ProcessMemory, to_words
from frtop_probe.outside.model import Backend, Fronts, GroupBook, TensorInfo, Work
from frtop_probe.outside.tensors import device_name, tensor_at
from frtop_probe.outside.torch_layout import BackendClass, TorchLayout
from frtop_probe.outside.work import MAX_NUMBER, NO_WORK, WorkReader, seconds_of

NO_GROUPS: Final = "no process group yet"
NO_MODULE: Final = "torch.distributed has not been imported"
MOVED: Final = "torch's tables moved while they were read"
NO_MEMBERS: Final = "members not readable: the group is being created"
UNKNOWN_GROUP: Final = "group not readable: an unknown class"
UNKNOWN_BACKEND: Final = "number not readable: an unknown backend"
NO_NUMBER: Final = "number not readable: its offset could not be validated"
NO_PENDING: Final = "ops in progress not readable"

_MODULE: Final = "torch.distributed.distributed_c10d"
_NAMES: Final = "_pg_names"
_CONFIGS: Final = "_pg_map"
_RANKS: Final = "_pg_group_ranks"
_TABLES: Final = (_NAMES, _CONFIGS, _RANKS)
_MAX_GROUPS: Final = 4096

# pybind11's instance: PyObject_HEAD, then simple_value_holder[0], the C++ object.
_CXX_OBJECT: Final = 16
# ProcessGroup.hpp: intrusive_ptr_target 16, store_ 8, rank_ 4, size_ 4, backendType_ 8, pg_desc_.
_GROUP_RANK: Final = 24
_GROUP_DESCRIPTION: Final = 40
_GROUP_MAPS: Final = range(72, 264, 8)
"""Where the maps from device to backend may begin; two releases differ in what comes before."""
_GROUP_BYTES: Final = 320
_REFERENCES: Final = slice(8, 16)  # intrusive_ptr_target's counts, which change all the time
_MAX_BACKENDS: Final = 8
# Backend.hpp: intrusive_ptr_target 16, rank_ 4, size_ 4.
_BACKEND_RANK: Final = 16
_WRAPPER_BYTES: Final = 160
"""ProcessGroupWrapper.hpp: Backend's members, then backend_ and glooBackend_."""
# Backend::Options: vtable 8, counts 8, timeout 8, backend 32.
_OPTIONS_TIMEOUT: Final = 16
_OPTIONS_NAME: Final = 24
_OPTIONS_SEARCH: Final = range(24, 512, 8)
_TAIL: Final = {"gloo": 56, "nccl": 120}
"""Bytes of a backend from its number on, up to its status.

Gloo's `seq_` is followed by `local_id_`, a vector of ranks from 2.15 on, and the status. NCCL's by
`seqP2P_`, `op_id_`, `local_id_`, that vector, a log prefix, two more members, and the status.
Without the vector this reads 24 bytes past the object: the next of the heap, which are used for
nothing that is not validated.
"""
_STEADY_TRIES: Final = 3
_STATUS_BYTES: Final = 24 + 3 * cxx.STRING
_CONDITION: Final = 48  # sizeof(std::condition_variable)
_MAX_THREADS: Final = 256
_MAX_REPORTED: Final = 64


@dataclass(frozen=True, slots=True)
class _BackendPlace:
    """Where one backend is: its class, its devices, and DETAIL's helper (0: none)."""

    address: int
    vtable: int
    devices: tuple[str, ...]
    helper: int = 0
    checked: bool = False


@dataclass(frozen=True, slots=True)
class _KnownGroup:
    """What of a group never changes, with what must be unchanged for that to hold."""

    name_address: int
    cxx_address: int
    block: bytes
    group: GroupBook
    places: tuple[_BackendPlace, ...]


class BooksReader:
    """Reads the groups of one process; remembers what does not change."""

    def __init__(self, memory: ProcessMemory, python: Python, layout: TorchLayout) -> None:
        """Finds c10d's module.

        Raises:
            NotReadable: `NO_MODULE`, or an object could not be validated.
        """
        self._memory = memory
        self._python = python
        self._layout = layout
        self._works = WorkReader(memory, layout)
        self._known: dict[int, _KnownGroup] = {}
        self._options: dict[int, int] = {}
        module = python.find(python.modules, (_MODULE,)).get(_MODULE)
        if module is None:
            raise NotReadable(NO_MODULE)
        self._module = python.module_dict(module.value)
        self._tables = python.find(self._module, _TABLES)
        if len(self._tables) != len(_TABLES):
            raise NotReadable(NO_MODULE, "being imported")
        self._keys = python.table(self._module).keys

    def read(self) -> tuple[GroupBook, ...]:
        """Returns the groups of this moment.

        Raises:
            NotReadable: `NO_GROUPS`, or the books changed while they were read.
        """
        names, configs, ranks = (self._python.entries(table) for table in self._table_addresses())
        if not names:
            self._known.clear()
            raise NotReadable(NO_GROUPS)
        if len(names) > _MAX_GROUPS:
            raise NotReadable(UNKNOWN_GROUP, f"{len(names)} groups")
        config_of = {entry.key: entry.value for entry in configs}
        ranks_of = {entry.key: entry.value for entry in ranks}
        self._forget({entry.key for entry in names})
        return tuple(
            self._group(entry, config_of.get(entry.key, 0), ranks_of.get(entry.key, 0))
            for entry in names
        )

    def tensor_at(self, address: int) -> TensorInfo:
        """Describes the tensor of a Python object, as in `<Tensor at 0x...>`.

        Raises:
            NotReadable: it could not be validated.
        """
        return tensor_at(self._memory, address)

    def work_at(self, address: int) -> Work:
        """Reads the op of a Python object, as in `<Work at 0x...>`; gloo's only.

        Raises:
            NotReadable: it could not be validated.
        """
        if not self._python.type_name(address).endswith("Work"):
            raise NotReadable(NO_WORK, "type")
        return self._works.read(self._memory.word(address + _CXX_OBJECT))

    def _table_addresses(self) -> list[int]:
        """Reads the values of the module's variables, which a program may bind anew."""
        table = self._python.table(self._module)
        found = []
        for name in _TABLES:
            known = self._tables[name]
            at = table.entries + 8 * (known.place * table.width + table.width - 2)
            key, value = self._memory.words(at, 2)
            if table.keys != self._keys or key != known.key or not value:
                raise NotReadable(MOVED)  # the module's dict grew, or a variable has no value
            found.append(value)
        return found

    def _forget(self, alive: set[int]) -> None:
        for address in self._known.keys() - alive:
            del self._known[address]

    def _group(self, entry: DictEntry, config: int, ranks: int) -> GroupBook:
        try:
            known = self._unchanged(entry) or self._learn(entry, config, ranks)
        except NotReadable as error:
            return GroupBook(entry.key, self._name(entry), reason=error.reason)
        backends = []
        for place in known.places:
            try:
                backends.append(self._backend(place, known.group))
            except NotReadable as error:
                backends.append(Backend("", place.devices, reason=error.reason))
        return replace(known.group, backends=tuple(backends))

    def _name(self, entry: DictEntry) -> str:
        try:
            return self._python.text(entry.value)
        except NotReadable:
            return ""

    def _unchanged(self, entry: DictEntry) -> _KnownGroup | None:
        """Returns what is known of a group if the object at its address is still the same."""
        known = self._known.get(entry.key)
        if known is None or known.group.ranks is None or known.name_address != entry.value:
            return None
        if self._memory.word(entry.key + _CXX_OBJECT) != known.cxx_address:
            return None
        block = self._memory.read(known.cxx_address, _GROUP_BYTES)
        if _without_counts(block) != known.block:
            return None
        return known if self._python.text(entry.value) == known.group.name else None

    def _learn(self, entry: DictEntry, config: int, ranks: int) -> _KnownGroup:
        address = self._memory.word(entry.key + _CXX_OBJECT)
        block = self._memory.read(address, _GROUP_BYTES)
        if to_words(block[:8])[0] not in self._layout.groups:
            raise NotReadable(UNKNOWN_GROUP)
        rank, size = struct.unpack_from("<ii", block, _GROUP_RANK)
        members = self._members(ranks) if ranks else None
        if not 0 <= rank < size or (members is not None and len(members) != size):
            raise NotReadable(cxx.UNKNOWN_LAYOUT, f"rank {rank} of {size}, members {members}")
        description = block[_GROUP_DESCRIPTION:][: cxx.STRING]
        group = GroupBook(
            address=entry.key,
            name=self._python.text(entry.value),
            description=cxx.string(self._memory, address + _GROUP_DESCRIPTION, description),
            ranks=members,
            rank=rank,
            size=size,
            config=self._config(config),
            reason="" if members is not None else NO_MEMBERS,
        )
        places = tuple(self._places(address, block))
        if not places:
            group = replace(group, reason=group.reason or UNKNOWN_BACKEND)
        known = _KnownGroup(entry.value, address, _without_counts(block), group, places)
        self._known[entry.key] = known
        return known

    def _members(self, address: int) -> tuple[int, ...]:
        """Reads a dict from global rank to group rank; returns global ranks by group rank."""
        pairs = {
            self._python.integer(entry.value): self._python.integer(entry.key)
            for entry in self._python.entries(address)
        }
        if sorted(pairs) != list(range(len(pairs))):
            raise NotReadable(cxx.UNKNOWN_LAYOUT, "members")
        return tuple(pairs[place] for place in sorted(pairs))

    def _config(self, address: int) -> str:
        """Reads the first of `(backends, store)`; "" when there is no such tuple yet."""
        if not address:
            return ""
        items = self._python.items(address)
        return self._python.text(items[0]) if items else ""

    def _places(self, address: int, block: bytes) -> Iterator[_BackendPlace]:
        """Yields the backends of a group, each once: of the first map that holds backends.

        That is deviceTypeToBackend_; backendTypeToBackend_ follows it with the same ones.
        """
        identity = block[_GROUP_RANK:][:8]
        for offset in _GROUP_MAPS:
            words = to_words(block[offset:][: cxx.HASH_MAP])
            try:
                found = self._map(address + offset, words, identity)
            except NotReadable:
                continue
            if found:
                for backend, devices in found.items():
                    yield self._unwrap(
                        backend, tuple(device_name(device) for device in sorted(devices))
                    )
                return

    def _map(self, address: int, words: Sequence[int], identity: bytes) -> dict[int, list[int]]:
        """Reads a map from DeviceType (1 byte) to a backend with the group's rank and size."""
        found: dict[int, list[int]] = {}
        for node in cxx.hash_map_nodes(self._memory, address, words, _MAX_BACKENDS):
            _, key, backend = self._memory.words(node, 3)
            if not cxx.is_pointer(backend):
                raise NotReadable(UNKNOWN_BACKEND, "no address")
            raw = self._memory.read(backend, _BACKEND_RANK + 8)
            if raw[_BACKEND_RANK:] != identity or not self._is_vtable(to_words(raw[:8])[0]):
                raise NotReadable(UNKNOWN_BACKEND, "another rank or size")
            found.setdefault(backend, []).append(key & 0xFF)
        return found

    def _is_vtable(self, address: int) -> bool:
        return cxx.is_pointer(address) and (
            address in self._layout.backends
            or address in self._layout.wrappers
            or self._memory.word(address) > LOWEST_ADDRESS
        )

    def _unwrap(self, address: int, devices: tuple[str, ...]) -> _BackendPlace:
        vtable = self._memory.word(address)
        if vtable not in self._layout.wrappers:
            return _BackendPlace(address, vtable, devices)
        inner = [
            (word, found)
            for word in self._memory.words(address, _WRAPPER_BYTES // 8)[3:]
            if cxx.is_pointer(word) and (found := self._vtable_of(word)) in self._layout.backends
        ]
        if len(inner) != 2:  # backend_ and glooBackend_
            raise NotReadable(UNKNOWN_BACKEND, "wrapper")
        (backend, inner_vtable), (helper, _) = inner
        return _BackendPlace(backend, inner_vtable, devices, helper, checked=True)

    def _vtable_of(self, address: int) -> int:
        try:
            return self._memory.word(address)
        except NotReadable:
            return 0

    def _backend(self, place: _BackendPlace, group: GroupBook) -> Backend:
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
        if number > MAX_NUMBER:
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
        self, address: int, vtable: int, kind: BackendClass, group: GroupBook | None
    ) -> bytes:
        """Reads a backend object; it must still be one of this group."""
        assert kind.number is not None
        raw = self._memory.read(address, kind.number + _TAIL[kind.kind])
        rank, size = struct.unpack_from("<ii", raw, _BACKEND_RANK)
        if to_words(raw[:8])[0] != vtable:
            raise NotReadable(UNKNOWN_BACKEND, "freed")
        if group is not None and (rank, size) != (group.rank, group.size):
            raise NotReadable(UNKNOWN_BACKEND, "another rank or size")
        return raw

    def _is_steady(
        self, before: bytes, place: _BackendPlace, kind: BackendClass, group: GroupBook
    ) -> bool:
        """Whether gloo's two counters were not read between their increments, one after the other.

        Ops in progress are numbered by the difference of the two.
        """
        after = self._block(place.address, place.vtable, kind, group)
        return _messages(before, kind) == _messages(after, kind)

    def _checks(self, helper: int) -> tuple[tuple[Work, ...], int | None]:
        """Reads the ops in progress and the number of DETAIL's helper; (), None without one."""
        kind = self._layout.backends.get(vtable := self._vtable_of(helper)) if helper else None
        if kind is None or kind.kind != "gloo" or kind.number is None:
            return (), None
        raw = self._block(helper, vtable, kind, None)
        (number,) = struct.unpack_from("<Q", raw, kind.number)
        return self._pending(raw, kind)[0], number if number <= MAX_NUMBER else None

    def _pending(self, raw: bytes, kind: BackendClass) -> tuple[tuple[Work, ...], str]:
        """Reads gloo's ops in progress, then those in its queue; with a reason if it cannot.

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
                except NotReadable:  # it ended and was freed meanwhile
                    continue

    def _timeout(self, raw: bytes, vtable: int, kind: BackendClass) -> float | None:
        """Finds the options among the backend's pointers, by their vtable; None if not there."""
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
            return seconds_of(struct.unpack_from("<q", options, _OPTIONS_TIMEOUT)[0])
        return None

    def _fronts(self, raw: bytes, number_at: int) -> Fronts | None:
        """Finds pgStatus_ behind the number: a shared_ptr of make_shared.

        Its object follows the control block, so that the second pointer is 16 less than the first.
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
        if any(not -1 <= number < MAX_NUMBER for number in numbers):
            raise NotReadable(cxx.UNKNOWN_LAYOUT, "status")
        for at in range(24, _STATUS_BYTES, cxx.STRING):
            cxx.string(self._memory, address + at, raw[at : at + cxx.STRING])
        return Fronts(*numbers)


def _without_counts(block: bytes) -> bytes:
    return block[: _REFERENCES.start] + block[_REFERENCES.stop :]


def _collectives(raw: bytes, kind: BackendClass) -> int | None:
    """Reads gloo's `collectiveCounter_`, which every collective and no message takes a tag from."""
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
    return p2p if p2p <= op_id < MAX_NUMBER and number <= MAX_NUMBER else None
