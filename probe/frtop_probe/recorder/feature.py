"""What a feature adds to a rank: `attach(recorder, torch)` in its `in_rank` returns this."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from frtop_probe.recorder.requests.requests import Handler


class RankSetting(NamedTuple):
    """Something that an operator can change in a running rank, see `ChangeRecording`."""

    change: Callable[[Any], str]
    """Takes an unchecked value; returns why it cannot be set, "" on success."""
    state: Callable[[], Any]


def switch_of(switch: Callable[[bool], str]) -> Callable[[Any], str]:
    """Returns the `change` of an on/off setting: values other than booleans change nothing."""
    return lambda value: switch(value) if isinstance(value, bool) else ""


class OpWatch:
    """May read the tensors of ops and of optimizer steps. This base class reads none.

    The kernels bind all its attributes when they are made, so an op only checks whether `watching`
    is empty, and a wait whether `unfinished` is. No function raises.
    """

    def __init__(self) -> None:
        self.watching: list[Any] = []
        self.unfinished: dict[int, Any] = {}
        """Ops whose results are wanted, by `id` of their handles."""
        self.begin: Callable[..., Any] = _nothing
        """Called before an op is passed on; returns the op if its result is wanted."""
        self.handed: Callable[[Any, Any], object] = _nothing
        """Takes such an op, and the handle that the call returned."""
        self.ended: Callable[[Any, str], object] = _nothing
        """Takes such an op once it has completed, and how its completion was seen."""
        self.step_begins: Callable[[Any], object] = _nothing
        """Takes the optimizer."""
        self.step_ended: Callable[[Any], object] = _nothing


def _nothing(*_: Any) -> None:
    return


class RankFeature:
    """Everything that the recorder calls; a feature overrides what it needs."""

    handlers: Mapping[str, Handler] = MappingProxyType({})
    """Functions that answer requests, by name of the request."""
    settings: Mapping[str, RankSetting] = MappingProxyType({})
    """Settings that an operator can change, by name."""
    op_watch: OpWatch | None = None

    def attached(self) -> None:
        """Called when ops are recorded from now on, and all features are attached."""

    def beat(self) -> None:
        """Called at each heartbeat, on the recorder's thread."""

    def at_op(self) -> None:
        """Called before an op while ops are expected, on the program's thread. Never raises."""

    def modules_recorded(self, issuers: Any) -> None:
        """Called when modules are recorded from now on."""

    def stop(self) -> None:
        """Called when the recorder stops: its thread still runs."""

    def joined(self) -> None:
        """Called when the recorder's thread has ended; the interpreter may end now."""

    def abandon_in_child(self) -> None:
        """Called in a forked child, where the inherited feature must do nothing."""
