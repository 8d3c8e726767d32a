"""Transports that bypass c10d, as screens and reports name them."""

from __future__ import annotations

from collections.abc import Iterable

from frtop_tui.job.model import Rank

NOT_OBSERVED = "not observed"


def transport_names(views: Iterable[Rank]) -> tuple[str, ...]:
    """The names, each once, in the order in which the first rank has them."""
    return tuple(dict.fromkeys(one.name for view in views for one in view.transports))


def beside_c10d(names: Iterable[str]) -> str:
    """`beside c10d: pynccl, DeepEP (not observed)`; "" for none.

    Some transports are merely loaded: the text only says that frtop would not see what they do.
    """
    listed = ", ".join(names)
    return f"beside c10d: {listed} ({NOT_OBSERVED})" if listed else ""


def of_rank(view: Rank) -> str:
    """The same for one rank, with the sign of each."""
    signs = "; ".join(f"{one.name}: {one.sign}" for one in view.transports if one.sign)
    text = beside_c10d(transport_names((view,)))
    return f"{text}; {signs}" if signs else text
