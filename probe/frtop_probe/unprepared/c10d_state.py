"""c10d's state: the process groups of a rank, their members, numbers and ops in progress.

Python has `_pg_names`, `_pg_map` and `_pg_group_ranks` in torch.distributed.distributed_c10d, and
C++ has each group's `ProcessGroup` with its backends. Both must agree on rank and size. Later looks
read only what changes: about nine small reads per group.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from frtop_probe.proc.memory import NotReadable, ProcessMemory, to_words
from frtop_probe.unprepared import cxx
from frtop_probe.unprepared.c10d_backends import (
    BACKEND_RANK,
    UNKNOWN_BACKEND,
    BackendPlace,
    BackendReader,
)
from frtop_probe.unprepared.cpython import DictEntry, Python
from frtop_probe.unprepared.model import Backend, GroupState
from frtop_probe.unprepared.tensors import device_name
from frtop_probe.unprepared.torch_layout import TorchLayout

NO_GROUPS: Final = "no process group yet"
NO_MODULE: Final = "torch.distributed has not been imported"
MOVED: Final = "torch's tables moved while they were read"
NO_MEMBERS: Final = "members not readable: the group is being created"
UNKNOWN_GROUP: Final = "group not readable: an unknown class"

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
"""Where the maps from device to backend may begin: releases differ in the members before them."""
_GROUP_BYTES: Final = 320
_REFERENCES: Final = slice(8, 16)  # intrusive_ptr_target's counts, which keep changing
_MAX_BACKENDS: Final = 8


@dataclass(frozen=True, slots=True)
class _KnownGroup:
    """The constant part of a group, and the values that identify it."""

    name_address: int
    cxx_address: int
    block: bytes
    group: GroupState
    places: tuple[BackendPlace, ...]


class C10dReader:
    """Reads the groups of one process; remembers what does not change."""

    def __init__(self, memory: ProcessMemory, python: Python, layout: TorchLayout) -> None:
        """Finds c10d's module.

        Raises:
            NotReadable: `NO_MODULE`, or an object could not be validated.
        """
        self._memory = memory
        self._python = python
        self._layout = layout
        self._known: dict[int, _KnownGroup] = {}
        self._backends = BackendReader(memory, layout)
        module = python.find(python.modules, (_MODULE,)).get(_MODULE)
        if module is None:
            raise NotReadable(NO_MODULE)
        self._module = python.module_dict(module.value)
        self._tables = python.find(self._module, _TABLES)
        if len(self._tables) != len(_TABLES):
            raise NotReadable(NO_MODULE, "being imported")
        self._keys = python.table(self._module).keys

    def read(self) -> tuple[GroupState, ...]:
        """Returns the current groups.

        Raises:
            NotReadable: `NO_GROUPS`, or the state changed during the read.
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

    def _table_addresses(self) -> list[int]:
        """Reads the values of the module's variables, which a program may rebind."""
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

    def _group(self, entry: DictEntry, config: int, ranks: int) -> GroupState:
        try:
            known = self._unchanged(entry) or self._learn(entry, config, ranks)
        except NotReadable as error:
            return GroupState(entry.key, self._name(entry), reason=error.reason)
        backends = []
        for place in known.places:
            try:
                backends.append(self._backends.read(place, known.group))
            except NotReadable as error:
                backends.append(Backend("", place.devices, reason=error.reason))
        return replace(known.group, backends=tuple(backends))

    def _name(self, entry: DictEntry) -> str:
        try:
            return self._python.text(entry.value)
        except NotReadable:
            return ""

    def _unchanged(self, entry: DictEntry) -> _KnownGroup | None:
        """Returns a known group if the object at its address is still the same."""
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
        group = GroupState(
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
        """Reads the first item of `(backends, store)`; "" if there is no such tuple yet."""
        if not address:
            return ""
        items = self._python.items(address)
        return self._python.text(items[0]) if items else ""

    def _places(self, address: int, block: bytes) -> Iterator[BackendPlace]:
        """Yields each backend of a group once, from the first map that holds backends.

        That map is deviceTypeToBackend_; backendTypeToBackend_ follows it with the same backends.
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
                    yield self._backends.place(
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
            raw = self._memory.read(backend, BACKEND_RANK + 8)
            if raw[BACKEND_RANK:] != identity or not self._backends.is_vtable(to_words(raw[:8])[0]):
                raise NotReadable(UNKNOWN_BACKEND, "another rank or size")
            found.setdefault(backend, []).append(key & 0xFF)
        return found


def _without_counts(block: bytes) -> bytes:
    return block[: _REFERENCES.start] + block[_REFERENCES.stop :]
