"""CURVE keys: where they are, and who may come in.

One pair per user is the identity of that user's agents and of that user's screens: on a
cluster with shared homes nothing needs to be set up. Whom else we let in, and whose agents
we look at, is listed beside the key file.

    pair       the key file
    public     public keys as people see and type them
    lists      authorized_keys and trusted_keys
    editing    changes to these lists, by hand of `frtop key`

    KeyProblem        the sentence for the user in `text`, what to type next in `next`
    └── NoKey         there is no key file yet
"""

from __future__ import annotations

from frtop_probe.keys.lists import (
    AUTHORIZED,
    TRUSTED,
    AuthorizedKey,
    Right,
    TrustedKey,
    authorized,
    trusted,
)
from frtop_probe.keys.pair import FILE_VARIABLE, KeyPair, load, path
from frtop_probe.keys.problem import KeyProblem, NoKey
from frtop_probe.keys.public import read, shown

__all__ = [
    "AUTHORIZED",
    "FILE_VARIABLE",
    "TRUSTED",
    "AuthorizedKey",
    "KeyPair",
    "KeyProblem",
    "NoKey",
    "Right",
    "TrustedKey",
    "authorized",
    "load",
    "path",
    "read",
    "shown",
    "trusted",
]
