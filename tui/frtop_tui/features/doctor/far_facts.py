"""What the doctor on another host has found: checked against its types, and bounded.

Another machine wrote it, and people read it: texts are cut, and have no control sequences.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Struct

from frtop_probe.features.doctor.facts import HostFacts, SearchFacts
from frtop_tui.connect.pipes.framing import PipeError
from frtop_tui.job.naming import printable

MAX_BYTES: Final = 1 << 20
"""Of the facts of one host: 16 ranks take 20 KB."""
MAX_TEXT: Final = 400
MAX_ITEMS: Final = 64
_MAX_DEPTH: Final = 8
_MAX_NUMBER: Final = 2**64


class FarFacts(Struct, frozen=True):
    """Of one host."""

    host: HostFacts
    search: SearchFacts


def read_facts(text: bytes) -> FarFacts:
    """Decodes what `frtop_probe.features.doctor.facts` wrote.

    Raises:
        PipeError: it is something else, or too large.
    """
    if len(text) > MAX_BYTES:
        raise PipeError("the facts of a host are too large")
    try:
        return msgspec.convert(_bounded(msgspec.json.decode(text)), FarFacts)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise PipeError(f"no facts of a host: {error}") from error


def _bounded(value: Any, depth: int = 0) -> Any:
    if depth > _MAX_DEPTH:
        raise PipeError("the facts of a host are nested too deeply")
    if isinstance(value, str):
        return printable(value)[:MAX_TEXT]
    if isinstance(value, int):
        return max(-_MAX_NUMBER, min(value, _MAX_NUMBER)) if not isinstance(value, bool) else value
    if isinstance(value, list):
        return [_bounded(one, depth + 1) for one in value[:MAX_ITEMS]]
    if isinstance(value, dict):
        items = list(value.items())[:MAX_ITEMS]
        return {printable(name)[:MAX_TEXT]: _bounded(one, depth + 1) for name, one in items}
    return value
