"""frtop's probe: the recorder that runs inside a rank, and the agent that reads it.

For programs that start the recorder by hand; all four do nothing where it cannot run:

    import frtop_probe

    frtop_probe.start()          # before or after init_process_group
    frtop_probe.step()           # a training step ended, where no torch optimizer steps
    frtop_probe.annotate("...")  # a note for whoever looks at this rank
    frtop_probe.stop()
"""

from __future__ import annotations

__all__ = ["annotate", "start", "step", "stop"]


def start() -> None:
    """Begins to record, or goes on after `stop()`. Calling it twice is fine.

    In a process that a launcher made a rank (`RANK` is set) at once, so that what ends it
    before its first process group is seen too; in any other with that group.
    """
    from frtop_probe.recorder.lifecycle import lifecycle  # noqa: PLC0415 - lazy: this stays a postcard

    lifecycle.start()


def stop() -> None:
    """Stops recording. The ring stays until the rank has ended and was read."""
    from frtop_probe.recorder.lifecycle import lifecycle  # noqa: PLC0415

    lifecycle.stop()


def step(number: int | None = None) -> None:
    """Says that a training step has ended: the next one, or the one with this number.

    Only for programs whose steps are not steps of a torch optimizer.
    """
    from frtop_probe.recorder.lifecycle import lifecycle  # noqa: PLC0415

    lifecycle.step(number)


def annotate(text: str) -> None:
    """Leaves a note in the rank's history, with the time."""
    from frtop_probe.recorder.lifecycle import lifecycle  # noqa: PLC0415

    lifecycle.annotate(text)
