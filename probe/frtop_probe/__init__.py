"""frtop's probe: the recorder inside a rank, and the agent that reads it.

Programs may start the recorder by hand. The functions do nothing where it cannot run:

    import frtop_probe

    frtop_probe.start()          # before or after init_process_group
    frtop_probe.step()           # a training step ended, for loops without a torch optimizer
    frtop_probe.step(samples=n)  # the same in any loop, and how much this rank has processed
    frtop_probe.report(loss=loss.item(), lr=0.1)  # values, to be compared between ranks
    frtop_probe.annotate("...")  # a note in the history of this rank
    frtop_probe.stop()

In code that `torch.compile` traces, `step`, `report` and `annotate` do nothing.
"""

from __future__ import annotations

import sys

__all__ = ["annotate", "report", "start", "step", "stop"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import SupportsFloat


def start() -> None:
    """Starts recording, or continues after `stop()`. Calling it twice is harmless.

    In a rank of a launcher (`RANK` is set), recording starts at once, so it covers failures before
    the first process group; elsewhere it starts with that group.
    """
    from frtop_probe.recorder.process.lifecycle import lifecycle  # noqa: PLC0415 - keeps the import cheap

    lifecycle.start()


def stop() -> None:
    """Stops recording. The ring stays until the rank has ended and the agent has read it."""
    from frtop_probe.recorder.process.lifecycle import lifecycle  # noqa: PLC0415

    lifecycle.stop()


def step(number: int | None = None, *, samples: int = 0) -> None:
    """Records the end of a training step: the next step, or the step with this number.

    Loops with a torch optimizer need it for samples only: call it after the optimizer's step.

    Args:
        number: the step's number.
        samples: how many samples, tokens, or whatever the job counts, this rank has processed
            since it last reported them.
    """
    if _is_traced():
        return
    from frtop_probe.recorder.process.lifecycle import lifecycle  # noqa: PLC0415

    lifecycle.step(number, samples)


def report(step: int | None = None, /, **values: SupportsFloat) -> None:
    """Records values of this rank, by name: up to 32 names, such as `loss` and `lr`.

    Numbers of Python and numpy and CPU tensors of one element are taken. A tensor on a device is
    not: reading it would wait for the device.

    Args:
        step: the step that they belong to; without it, the step that ended last.
        values: numbers; NaN and infinities, too.
    """
    if _is_traced():
        return
    from frtop_probe.recorder.process.lifecycle import lifecycle  # noqa: PLC0415

    lifecycle.report(step, values)


def annotate(text: str) -> None:
    """Adds a note with the current time to the rank's history."""
    if _is_traced():
        return
    from frtop_probe.recorder.process.lifecycle import lifecycle  # noqa: PLC0415

    lifecycle.annotate(text)


def _is_traced() -> bool:
    """Whether a compiler of torch traces this call: going on would break its graph, or raise."""
    compiler = sys.modules.get("torch.compiler")
    return compiler is not None and bool(getattr(compiler, "is_compiling", bool)())
