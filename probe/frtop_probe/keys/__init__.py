"""CURVE keys: the user's own pair, and the lists of other users' keys.

Each user has one pair, shared by the user's agents and screens. Where homes are shared, there is
nothing to set up. Two lists beside the key file name other users: those we admit to our jobs, and
those whose jobs we show.

    pair       the key file, and the errors
    public     public keys as text
    lists      reads authorized_keys and trusted_keys
    editing    changes these lists (`frtop key`)

    KeyProblem        `text` says what is wrong, `next` what the user can do
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
from frtop_probe.keys.pair import FILE_VARIABLE, KeyPair, KeyProblem, NoKey, load, path
from frtop_probe.keys.public import format_public, parse_public
