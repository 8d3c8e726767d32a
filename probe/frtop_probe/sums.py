"""Numbers that two ranks have in common when they issued the same ops: sums over blocks.

The sum of a block is that of its parts, so ranks that tell blocks of different sizes can be
compared. Each op counts by what has to agree in it (`agreement.agreed`) and by its place, so
that other ops, and the same ones in another order, give another sum. The same on every host
and in every Python.

What an all_to_all sends and receives adds to another sum, which over all members is nothing
when the splits agree in pairs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from operator import mul
from typing import Final

from frtop_probe import wire
from frtop_probe.agreement import SPLIT, agreed

MODULUS: Final = 2**32 - 5
"""A prime: what is multiplied by different weights stays different."""
UNKNOWN: Final = 2**32 - 1
"""In place of a sum over pairs in which some splits are not known."""
SIZES: Final = (1, 8, 64, 512)
"""Numbers of ops in a block. One of size n begins with an op `k * n + 1`."""


def digest(text: str) -> int:
    """A number from 1 to the modulus for a text."""
    found = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return 1 + int.from_bytes(found, "big") % (MODULUS - 1)


WEIGHTS: Final = tuple(digest(f"place {n}") for n in range(SIZES[-1]))
"""By the op's number modulo their count: no two ops of a block have the same."""


def weight(number: int) -> int:
    return WEIGHTS[number % len(WEIGHTS)]


def of_signature(signature: wire.Signature, backend: str) -> int | None:
    """What an op counts for before its place does; None while something is unknown."""
    text = agreed(signature, backend)
    return None if text is None else digest(text)


def of_splits(signature: wire.Signature, place: int, members: int) -> int:
    """What an op adds to the sum over pairs, before its place counts.

    Args:
        signature: of any op; all but all_to_all add nothing.
        place: of the rank in its group.
        members: how many that has.

    Returns:
        A number below the modulus, or `UNKNOWN`.
    """
    if signature.kind not in SPLIT or (signature.kind == "all_to_all" and not signature.in_splits):
        return 0
    sent, taken = signature.in_splits or (), signature.out_splits or ()
    if len(sent) != members or len(taken) != members or not 0 <= place < members:
        return UNKNOWN
    senders, receivers = _weights("sender", members), _weights("receiver", members)
    out: int = senders[place] * sum(map(mul, sent, receivers))
    into: int = receivers[place] * sum(map(mul, taken, senders))
    return (out - into) % MODULUS


@lru_cache(maxsize=64)
def _weights(role: str, members: int) -> Sequence[int]:
    return tuple(digest(f"{role} {n}") for n in range(members))


def added(sums: Sequence[int]) -> int:
    """Sums over pairs, as one."""
    return UNKNOWN if UNKNOWN in sums else sum(sums) % MODULUS


def packed(sums: Iterable[int]) -> bytes:
    """Sums as they are told: four bytes each."""
    listed = list(sums)
    return struct.pack(f"<{len(listed)}I", *listed)


def unpacked(told: bytes) -> tuple[int, ...]:
    """The inverse; bytes at the end that make no sum are left out."""
    return struct.unpack_from(f"<{len(told) // 4}I", told)
