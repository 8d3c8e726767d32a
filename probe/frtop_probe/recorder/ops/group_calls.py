"""Wraps the functions that create and destroy process groups.

The calls are recorded as pseudo-ops: a rank that hangs in a rendezvous or never calls `new_group`
has no op yet, but the pseudo-op shows which call it is in and since when.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final, Protocol

from frtop_probe.recorder.guard import leave_out, raised_by_signal_handler
from frtop_probe.ring.rank_ranges import fold

INIT: Final = "init_process_group"
CREATE: Final = ("new_group", "split_group", "shrink_group")
DESTROY: Final = "destroy_process_group"
REGISTER: Final = "_register_process_group"


class GroupListener(Protocol):
    """Receives events about groups. No method may raise."""

    def init_called(self, arguments: dict[str, Any]) -> None:
        """`init_process_group` was called; the recorder may start now."""

    def call_began(self, kind: str, arguments: dict[str, Any]) -> int:
        """A call began; returns a token for its pseudo-op, 0 if it has none."""

    def call_ended(self, kind: str, token: int, failed: bool) -> None:
        """The call with this token ended."""

    def group_registered(self, name: str, process_group: Any) -> None:
        """Torch has registered a new group."""

    def group_destroying(self, process_group: Any | None) -> None:
        """`destroy_process_group` was called for one group, or for all (None)."""

    def group_destroyed(self, process_group: Any | None) -> None:
        """`destroy_process_group` has returned or raised."""


def wrap(c10d: ModuleType, listener: GroupListener, package: ModuleType | None) -> None:
    """Wraps the functions in `distributed_c10d`, and in `torch.distributed` if it is loaded."""
    if getattr(getattr(c10d, INIT, None), "__frtop__", False):
        return
    replaced = {}
    for name in (INIT, *CREATE, DESTROY):
        original = getattr(c10d, name, None)
        if original is not None:
            replaced[name] = _wrapped(name, original, listener, c10d)
    register = getattr(c10d, REGISTER, None)
    if register is not None:
        replaced[REGISTER] = _wrapped_register(register, listener)
    for name, function in replaced.items():
        original = getattr(c10d, name)
        setattr(c10d, name, function)
        if package is not None and getattr(package, name, None) is original:
            setattr(package, name, function)


def _wrapped(
    name: str, original: Callable[..., Any], listener: GroupListener, c10d: Any
) -> Callable[..., Any]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        arguments = _arguments(signature, args, kwargs)
        group = None
        if name == INIT:
            listener.init_called(arguments)
        elif name == DESTROY:
            group = arguments.get("group")
            if group is c10d.group.WORLD:  # which ends all others
                group = None
            listener.group_destroying(group)
        token = listener.call_began(name, arguments)
        failed = True
        try:
            result = original(*args, **kwargs)
            failed = False
        except BaseException as error:
            leave_out(error)
            raise
        finally:
            listener.call_ended(name, token, failed)
            if name == DESTROY:
                listener.group_destroyed(group)
        return result

    wrapper.__frtop__ = True  # type: ignore[attr-defined]
    return wrapper


def participants(name: str, arguments: dict[str, Any], c10d: Any) -> str:
    """Returns which ranks must make this call before it returns, folded; "" if unknown.

    The whole world must call `new_group`, unless `use_local_synchronization` limits it to the
    members; all members of the parent must call `split_group`.
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
        if raised_by_signal_handler(error):
            raise
        return ""  # the call itself will raise
    # Does not touch an iterator: the call must consume it.
    known = isinstance(ranks, (list, tuple, range)) and all(type(rank) is int for rank in ranks)
    return fold(ranks) if known else ""


def _wrapped_register(original: Callable[..., Any], listener: GroupListener) -> Callable[..., Any]:
    @functools.wraps(original)
    def register(name: str, process_group: Any) -> Any:
        result = original(name, process_group)
        listener.group_registered(name, process_group)
        return result

    return register


def _arguments(
    signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    try:
        return dict(signature.bind_partial(*args, **kwargs).arguments)
    except TypeError:
        return {}  # the call itself will raise
