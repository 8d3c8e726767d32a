"""Standard containers of libstdc++ with the C++11 string, which every torch wheel has since 2.7.

Layouts: bits/basic_string.h, bits/stl_vector.h, bits/stl_deque.h, bits/hashtable.h. Each has an
invariant that random words do not meet. If it fails, the container counts as not readable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from frtop_probe.proc.memory import (
    HIGHEST_ADDRESS,
    LOWEST_ADDRESS,
    NotReadable,
    ProcessMemory,
    to_words,
)

UNKNOWN_LAYOUT: Final = "c10d state not readable: an unknown layout of torch's classes"

STRING: Final = 32
VECTOR: Final = 24
DEQUE: Final = 80
HASH_MAP: Final = 56
_LOCAL_CHARACTERS: Final = 15
_DEQUE_BUFFER: Final = 512
_MAX_STRING: Final = 4096
_MAX_NODES: Final = 64
_MAX_BUCKETS: Final = 1 << 16
_SINGLE_BUCKET: Final = 48  # _Hashtable._M_single_bucket, used while there is one bucket


def is_pointer(value: int) -> bool:
    """Returns whether a word may be the address of an object: in user space, 8-aligned."""
    return LOWEST_ADDRESS <= value < HIGHEST_ADDRESS and not value & 7


def string(memory: ProcessMemory, address: int, raw: bytes | None = None) -> str:
    """Reads a std::string of at most 4,096 bytes.

    `raw` contains its 32 bytes if the caller has read them.

    Raises:
        NotReadable: It is not a string, or not in UTF-8.
    """
    raw = memory.read(address, STRING) if raw is None else raw
    pointer, size, capacity, _ = to_words(raw)
    if pointer == address + 16:
        if size > _LOCAL_CHARACTERS:
            raise NotReadable(UNKNOWN_LAYOUT, "string")
        data = raw[16:][: size + 1]
    else:
        if not LOWEST_ADDRESS <= pointer < HIGHEST_ADDRESS or not size <= capacity:
            raise NotReadable(UNKNOWN_LAYOUT, "string")
        if size > _MAX_STRING or capacity <= _LOCAL_CHARACTERS:
            raise NotReadable(UNKNOWN_LAYOUT, "string")
        data = memory.read(pointer, size + 1)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise NotReadable(UNKNOWN_LAYOUT, "characters of a string") from error
    if not text.endswith("\0"):  # as c_str() promises
        raise NotReadable(UNKNOWN_LAYOUT, "end of a string")
    return text[:-1]


def vector(words: Sequence[int], item: int, most: int) -> tuple[int, int]:
    """Reads the three words of a std::vector.

    Returns:
        Address of the first item, and their number.

    Raises:
        NotReadable: begin, end and capacity are out of order, or there are more than `most` items.
    """
    begin, end, limit = words
    if not begin and not end and not limit:
        return 0, 0
    if not is_pointer(begin) or not begin <= end <= limit or (end - begin) % item:
        raise NotReadable(UNKNOWN_LAYOUT, "vector")
    if (end - begin) // item > most:
        raise NotReadable(UNKNOWN_LAYOUT, "long vector")
    return begin, (end - begin) // item


def deque_of_pointers(memory: ProcessMemory, words: Sequence[int]) -> list[int]:
    """Reads the ten words of a std::deque of pointers, of at most 64 nodes.

    Raises:
        NotReadable: an iterator is not inside its node, or a node not inside the map.
    """
    nodes, count, *iterators = words
    start, finish = iterators[:4], iterators[4:]
    for current, first, last, node in (start, finish):
        in_map = nodes <= node < nodes + 8 * count
        if not first <= current < last or last - first != _DEQUE_BUFFER or not in_map:
            raise NotReadable(UNKNOWN_LAYOUT, "deque")
        if (node - nodes) % 8 or (current - first) % 8:
            raise NotReadable(UNKNOWN_LAYOUT, "deque")
    used = (finish[3] - start[3]) // 8 + 1
    if not 0 < used <= _MAX_NODES:
        raise NotReadable(UNKNOWN_LAYOUT, "long deque")
    firsts = memory.words(start[3], used)
    if firsts[0] != start[1] or firsts[-1] != finish[1]:
        raise NotReadable(UNKNOWN_LAYOUT, "nodes of a deque")
    found: list[int] = []
    for place, first in enumerate(firsts):
        begin = start[0] if place == 0 else first
        end = finish[0] if place == used - 1 else first + _DEQUE_BUFFER
        if end > begin:
            found.extend(memory.words(begin, (end - begin) // 8))
    return found


def hash_map_nodes(
    memory: ProcessMemory, address: int, words: Sequence[int], most: int
) -> list[int]:
    """Reads the seven words of a std::unordered_map.

    Returns:
        Addresses of its nodes; [] for an empty map.

    Raises:
        NotReadable: the chain of nodes and the map's size disagree.
    """
    buckets, count, node, size = words[:4]
    alone = buckets == address + _SINGLE_BUCKET
    if not 0 < count <= _MAX_BUCKETS or alone != (count == 1) or not is_pointer(buckets):
        raise NotReadable(UNKNOWN_LAYOUT, "map")
    if size > most or bool(size) != bool(node):
        raise NotReadable(UNKNOWN_LAYOUT, "size of a map")
    found: list[int] = []
    while node:
        if not is_pointer(node) or len(found) == size:
            raise NotReadable(UNKNOWN_LAYOUT, "nodes of a map")
        found.append(node)
        node = memory.word(node)
    if len(found) != size:
        raise NotReadable(UNKNOWN_LAYOUT, "nodes of a map")
    return found
