"""Checksums over blocks of ops: equal on two ranks if these issued the same ops.

The checksum of a block is the sum of its parts, so ranks can be compared even if they report
blocks of different sizes. Each op is weighted by its number, so other ops, or the same ops in
another order, give another sum. The values are the same on every host and in every Python.

The splits of all_to_all go into a second sum, which is zero over all members if the splits of
every pair agree.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from operator import mul
from typing import Final

from frtop_probe import wire
from frtop_probe.consistency.signatures import RULE, SPLIT, agreed

MODULUS: Final = 2**32 - 5
"""A prime, so that values with different weights stay different."""
UNKNOWN: Final = 2**32 - 1
"""The sum over splits if some are unknown."""
SIZES: Final = (1, 8, 64, 512)
"""Block sizes in ops. A block of size n begins with an op `k * n + 1`."""


def digest(text: str) -> int:
    """Hashes a text to a number from 1 up to the modulus."""
    found = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return 1 + int.from_bytes(found, "big") % (MODULUS - 1)


WEIGHTS: Final = tuple(digest(f"place {n}") for n in range(SIZES[-1]))
"""Weights, indexed by the op's number modulo their count: no two ops of a block share one."""


def weight(number: int) -> int:
    return WEIGHTS[number % len(WEIGHTS)]


def signature_digest(signature: wire.Signature, backend: str, rule: int = RULE) -> int | None:
    """Hashes the fields of an op that must agree, unweighted; None while one is unknown."""
    text = agreed(signature, backend, rule)
    return None if text is None else digest(text)


def splits_digest(signature: wire.Signature, group_rank: int, members: int) -> int:
    """Returns the unweighted term that an op adds to the sum over splits.

    Args:
        signature: of any op; only all_to_all adds something.
        group_rank: the rank's index in its group.
        members: number of ranks in the group.

    Returns:
        A number below the modulus, or `UNKNOWN`.
    """
    if signature.kind not in SPLIT or (signature.kind == "all_to_all" and not signature.in_splits):
        return 0
    sent, received = signature.in_splits or (), signature.out_splits or ()
    if len(sent) != members or len(received) != members or not 0 <= group_rank < members:
        return UNKNOWN
    senders, receivers = _weights("sender", members), _weights("receiver", members)
    out: int = senders[group_rank] * sum(map(mul, sent, receivers))
    into: int = receivers[group_rank] * sum(map(mul, received, senders))
    return (out - into) % MODULUS


@lru_cache(maxsize=64)
def _weights(role: str, members: int) -> Sequence[int]:
    return tuple(digest(f"{role} {n}") for n in range(members))


def added(sums: Sequence[int]) -> int:
    """Adds sums over splits."""
    return UNKNOWN if UNKNOWN in sums else sum(sums) % MODULUS


def packed(sums: Iterable[int]) -> bytes:
    """Packs sums for the wire: four bytes each."""
    values = list(sums)
    return struct.pack(f"<{len(values)}I", *values)


def unpacked(data: bytes) -> tuple[int, ...]:
    """Unpacks sums; the inverse of `packed`. Ignores an incomplete sum at the end."""
    return struct.unpack_from(f"<{len(data) // 4}I", data)
