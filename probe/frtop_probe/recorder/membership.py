"""Wraps the functions that make and end process groups.

They are pseudo-ops: a rank that hangs in a rendezvous or never calls `new_group` has no
op yet, but it has a name and a start for what it is in.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final, Protocol

from frtop_probe.recorder.boundary import of_handler
from frtop_probe.ring.fold import fold

ENTRY: Final = "init_process_group"
CREATING: Final = ("new_group", "split_group", "shrink_group")
ENDING: Final = "destroy_process_group"
REGISTER: Final = "_register_process_group"


class Listener(Protocol):
    """Told about groups. None of these may raise."""

    def entering(self, arguments: dict[str, Any]) -> None:
        """`init_process_group` was called; the recorder may start now."""

    def begin(self, kind: str, arguments: dict[str, Any]) -> int:
        """A pseudo-op begins, called with `arguments`; returns its token."""

    def end(self, kind: str, token: int, failed: bool) -> None: ...

    def registered(self, name: str, process_group: Any) -> None: ...

    def ending(self, process_group: Any | None) -> None:
        """`destroy_process_group` was called for one group, or for all."""

    def ended(self, process_group: Any | None) -> None: ...


def wrap(c10d: ModuleType, listener: Listener, package: ModuleType | None) -> None:
    """Wraps what `distributed_c10d` has, there and in `torch.distributed` if it is loaded."""
    if getattr(getattr(c10d, ENTRY, None), "__frtop__", False):
        return
    replaced = {}
    for name in (ENTRY, *CREATING, ENDING):
        original = getattr(c10d, name, None)
        if original is not None:
            replaced[name] = _wrapped(name, original, listener)
    register = getattr(c10d, REGISTER, None)
    if register is not None:
        replaced[REGISTER] = _registering(register, listener)
    for name, function in replaced.items():
        original = getattr(c10d, name)
        setattr(c10d, name, function)
        if package is not None and getattr(package, name, None) is original:
            setattr(package, name, function)


def _wrapped(name: str, original: Callable[..., Any], listener: Listener) -> Callable[..., Any]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        arguments = _arguments(signature, args, kwargs)
        group = None
        if name == ENTRY:
            listener.entering(arguments)
        elif name == ENDING:
            group = arguments.get("group")
            listener.ending(group)
        token = listener.begin(name, arguments)
        failed = True
        try:
            result = original(*args, **kwargs)
            failed = False
        finally:
            listener.end(name, token, failed)
            if name == ENDING:
                listener.ended(group)
        return result

    wrapper.__frtop__ = True  # type: ignore[attr-defined]
    return wrapper


def awaited(name: str, arguments: dict[str, Any], c10d: Any) -> str:
    """Which ranks have to make this call before it returns, folded; "" where not known.

    The whole world has to come to `new_group`, unless only the members do by
    `use_local_synchronization`; all members of the parent to `split_group`.
    """
    ranks = arguments.get("ranks")
    try:
        if name == "split_group":
            parent = arguments.get("parent_pg") or c10d.GroupMember.WORLD
            return fold(c10d.get_process_group_ranks(parent))
        if name != "new_group":
            return ""
        if ranks is None or not arguments.get("use_local_synchronization"):
            return f"0-{c10d.get_world_size() - 1}"
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        if of_handler(error):
            raise
        return ""  # the call itself will say so
    # What can be gone through only once is left to the call.
    known = isinstance(ranks, (list, tuple, range)) and all(type(rank) is int for rank in ranks)
    return fold(ranks) if known else ""


def _registering(original: Callable[..., Any], listener: Listener) -> Callable[..., Any]:
    @functools.wraps(original)
    def register(name: str, process_group: Any) -> Any:
        result = original(name, process_group)
        listener.registered(name, process_group)
        return result

    return register


def _arguments(
    signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    try:
        return dict(signature.bind_partial(*args, **kwargs).arguments)
    except TypeError:
        return {}  # the call itself will say so
