"""Records what training libraries log, if `FRTOP_REPORT` is 1, without any change of the program.

Lightning's loggers, transformers' callbacks and accelerate's `log` get numbers that are on the host
already. Each is taken on every rank, before the library leaves out all but the first.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

from frtop_probe.recorder.feature import RankFeature
from frtop_probe.recorder.guard import guarded
from frtop_probe.recorder.process.import_hook import when_imported

if TYPE_CHECKING:
    from frtop_probe.recorder.recorder import Recorder

SETTING: Final = "FRTOP_REPORT"
ACCELERATE: Final = "accelerate.accelerator"
TRANSFORMERS: Final = "transformers.trainer"
LIGHTNING: Final = ("lightning.fabric.loggers.logger", "lightning_fabric.loggers.logger")
"""The base class of all loggers, in both of Lightning's packages."""
Take = Callable[[Any, Any], object]
"""Takes a step, which may be None, and values by name."""


class _Current:
    """The recorder of this process: a forked child has its own."""

    def __init__(self) -> None:
        self.recorder: Recorder | None = None
        self.wrapped = False


CURRENT: Final = _Current()


class LoggedValues(RankFeature):
    """Takes what libraries log for one recorder."""

    def __init__(self, recorder: Recorder, torch: Any) -> None:  # noqa: ARG002 - as all features
        self._recorder = recorder

    def attached(self) -> None:
        if os.environ.get(SETTING) != "1":
            return
        CURRENT.recorder = self._recorder
        if CURRENT.wrapped:
            return
        CURRENT.wrapped = True
        take = _guard(_take, _records)
        for module in LIGHTNING:
            when_imported(module, _guard(functools.partial(_watch_loggers, take)))
        when_imported(TRANSFORMERS, _guard(functools.partial(_watch_trainers, take)))
        when_imported(ACCELERATE, _guard(functools.partial(_watch_accelerators, take)))

    def abandon_in_child(self) -> None:
        CURRENT.recorder = None


attach: Final = LoggedValues


def _take(step: Any, values: Any) -> None:
    recorder = CURRENT.recorder
    if recorder is not None and isinstance(values, Mapping):
        known = step if isinstance(step, int) and step >= 0 else None
        recorder.reports.logged(known, values)


def _watch_loggers(take: Take, module: Any) -> None:
    """Wraps `log_metrics` of each class of loggers, also of those that the program defines."""
    base = module.Logger
    begun = base.__dict__.get("__init_subclass__")

    def __init_subclass__(cls: Any, /, **keywords: Any) -> None:  # noqa: N807 - its name
        if begun is not None:
            begun.__get__(None, cls)(**keywords)
        else:
            super(base, cls).__init_subclass__(**keywords)
        wrap(cls)

    wrap = _guard(lambda kind: _wrap(kind, "log_metrics", "metrics", take))
    base.__init_subclass__ = classmethod(__init_subclass__)
    for kind in _below(base):
        wrap(kind)


def _watch_trainers(take: Take, module: Any) -> None:
    """Adds a callback to each trainer, by the method that programs use."""

    class TakeLogs(module.TrainerCallback):  # type: ignore[misc]
        def on_log(self, _: Any, state: Any, *__: Any, logs: Any = None, **___: Any) -> None:
            take(getattr(state, "global_step", None), logs)

        def __reduce__(self) -> Any:  # a copy of the trainer elsewhere has no recorder
            return module.TrainerCallback, ()

    kind = module.Trainer
    original = kind.__init__
    add = _guard(lambda trainer: trainer.add_callback(TakeLogs()))

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **keywords: Any) -> None:  # noqa: N807
        original(self, *args, **keywords)
        add(self)

    kind.__init__ = __init__


def _watch_accelerators(take: Take, module: Any) -> None:
    """Wraps `Accelerator.log`, which does nothing on other ranks than the first."""
    _wrap(module.Accelerator, "log", "values", take)


def _wrap(kind: Any, name: str, values: str, take: Take) -> None:
    """Wraps a method that the class itself defines; its arguments are `values` and `step`."""
    original = kind.__dict__.get(name)
    if not isinstance(original, FunctionType):  # others may take no `self`
        return

    @functools.wraps(original)
    def wrapper(self: Any, *args: Any, **keywords: Any) -> Any:
        step = args[1] if len(args) > 1 else keywords.get("step")
        take(step, args[0] if args else keywords.get(values))
        return original(self, *args, **keywords)

    setattr(kind, name, wrapper)


def _below(kind: Any) -> list[Any]:
    """All classes that inherit from one."""
    found = list(kind.__subclasses__())
    for one in found:
        found += [other for other in one.__subclasses__() if other not in found]
    return found


def _records() -> bool:
    recorder = CURRENT.recorder
    return recorder is not None and bool(recorder.alive[0])


def _guard(
    function: Callable[..., Any], active: Callable[[], bool] = lambda: True
) -> Callable[..., Any]:
    return guarded(function, active, _failed)


def _failed(error: BaseException) -> None:
    if CURRENT.recorder is not None:
        CURRENT.recorder.fail(error)
