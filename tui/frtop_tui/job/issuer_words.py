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
"""The phases of an issuer, as people call them, in the order of a step."""
_COUNT: Final = re.compile(r" \(\d+ parameters?\)$")
_UNNAMED: Final = "the model"


def issuer_text(issuer: wire.Issuer | None) -> str:
    """`backward of layers.3.mlp`, `backward, DDP bucket 2: layers.1 ... layers.4 (8 parameters)`.

    "" if modules are not recorded, or if no module issued the op.
    """
    if issuer is None or (issuer.phase == "outside" and not (issuer.path or issuer.part)):
        return ""
    phase = PHASES.get(issuer.phase, issuer.phase)
    if issuer.phase == "outside":
        return issuer.path or issuer.part
    name = module_name(issuer)
    # A bucket belongs to the whole model.
    of_all = bool(issuer.part) and not issuer.path and not _is_numbered(issuer)
    of = f" of {name}" if name and not of_all else ""
    return ", ".join(filter(None, (f"{phase}{of}", issuer.part)))


def brief_issuer(issuer: wire.Issuer | None) -> str:
    """The same without the number of parameters."""
    return _COUNT.sub("", issuer_text(issuer))


def module_name(issuer: wire.Issuer) -> str:
    """The module's path, or the class of the outermost module; "" if unknown.

    If several models share a class, it names the model: `layers.3.mlp of Net #2`.
    """
    if issuer.path and _is_numbered(issuer):
        return f"{issuer.path} of {issuer.root}"
    return issuer.path or issuer.root


def _is_numbered(issuer: wire.Issuer) -> bool:
    """Whether there are several models of its class."""
    return "#" in issuer.root


def issuer_fields(issuer: wire.Issuer | None) -> dict[str, str]:
    """What issued an op, for JSON; empty if modules are not recorded."""
    if issuer is None:
        return {}
    return {"phase": issuer.phase, "module": full_path(issuer), "module_part": issuer.part}


def full_path(issuer: wire.Issuer) -> str:
    """The path with the class of the outermost module: `Net.layers.3.mlp`."""
    return ".".join(filter(None, (issuer.root or (_UNNAMED if issuer.path else ""), issuer.path)))
