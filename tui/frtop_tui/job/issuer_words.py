"""What issued an op, in words: `backward of layers.3.mlp`."""

from __future__ import annotations

import re
from typing import Final

from frtop_probe import wire

PHASES: Final = {
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "recompute": "recomputed forward",
    "outside": "outside of the model",
}
"""Phases of an issuer in the order of a step, as they are called."""
_COUNT: Final = re.compile(r" \(\d+ parameters?\)$")
_UNNAMED: Final = "the model"


def issuer_text(issuer: wire.Issuer | None) -> str:
    """`backward of layers.3.mlp`, `backward, DDP bucket 2: layers.1 ... layers.4 (8 parameters)`.

    "" where modules are not recorded, or an op belongs to nothing.
    """
    if issuer is None or (issuer.phase == "outside" and not (issuer.path or issuer.part)):
        return ""
    phase = PHASES.get(issuer.phase, issuer.phase)
    if issuer.phase == "outside":
        return issuer.path or issuer.part
    name = module_name(issuer)
    # A bucket is of all of it.
    of_all = bool(issuer.part) and not issuer.path and not _is_numbered(issuer)
    of = f" of {name}" if name and not of_all else ""
    return ", ".join(filter(None, (f"{phase}{of}", issuer.part)))


def brief_issuer(issuer: wire.Issuer | None) -> str:
    """The same without the number of parameters."""
    return _COUNT.sub("", issuer_text(issuer))


def module_name(issuer: wire.Issuer) -> str:
    """The module by its path, the outermost one by its class; "" where it is not known.

    Of several models of one class with the model: `layers.3.mlp of Net #2`.
    """
    if issuer.path and _is_numbered(issuer):
        return f"{issuer.path} of {issuer.root}"
    return issuer.path or issuer.root


def _is_numbered(issuer: wire.Issuer) -> bool:
    """Whether there are several models of its class."""
    return "#" in issuer.root


def issuer_fields(issuer: wire.Issuer | None) -> dict[str, str]:
    """What issued an op, for JSON; nothing where modules are not recorded."""
    if issuer is None:
        return {}
    return {"phase": issuer.phase, "module": full_path(issuer), "module_part": issuer.part}


def full_path(issuer: wire.Issuer) -> str:
    """The path with the class of the outermost module: `Net.layers.3.mlp`."""
    return ".".join(filter(None, (issuer.root or (_UNNAMED if issuer.path else ""), issuer.path)))
