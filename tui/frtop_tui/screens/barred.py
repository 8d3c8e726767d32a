"""Which keys can do nothing now, and why: a sentence for whoever presses them all the same."""

from __future__ import annotations

from frtop_tui.diagnosis.model import Frame
from frtop_tui.widgets.origin import moment
from frtop_tui.widgets.writings import place, under_way

ASKS = ("inspect", "save")
"""What makes a rank itself do something."""


def name_of(action: str) -> str:
    """`inspect` of `app.inspect(3)`."""
    return action.partition("(")[0].removeprefix("app.")


def barred(action: str, frame: Frame, host: str = "") -> str:
    """Why `action` can do nothing with this frame; empty when it can.

    Args:
        action: of a binding, with or without arguments.
        frame: what is on the screen.
        host: where the rank in question is, for what only its agent forbids.
    """
    name = name_of(action)
    if frame.recorded is not None:
        return _of_then(name, frame)
    if name == "capture":
        return _capture(frame)
    if name in (*ASKS, "tensors"):
        return _asking(frame, host)
    return ""


def _of_then(name: str, frame: Frame) -> str:
    assert frame.recorded is not None
    kind, when = frame.recorded.kind, moment(frame.recorded.wall_ns)
    single = kind in ("capture", "black box")
    this = f"this is a {kind} of {when}" if single else f"these are {kind} of {when}"
    if name in ("take", *ASKS):
        what = "take stacks of" if name == "take" else "ask"
        return f"There is no live job to {what}: {this}."
    if name == "capture" and kind == "capture" and not frame.recorded.filled:  # else one of all
        return f"This is a {kind} already: it was read from {place(frame.recorded.path)}."
    if name == "choose_job":
        if kind == "black box":
            return "One job was read: `frtop open` with --job and the same files shows another."
        held = "A capture holds" if single else "Dumps and stacks are of"
        return f"{held} one job: `frtop open` shows others from files of theirs."
    if name == "pause":
        return f"Nothing moves here: {this}."
    return ""


def _capture(frame: Frame) -> str:
    if frame.job is None:
        return "There is no job to capture."
    running = under_way(frame, "capture")
    return f"A capture is under way, to {place(running.path)}." if running is not None else ""


def _asking(frame: Frame, host: str) -> str:
    if frame.read_only:
        return f"Nothing may be asked of the ranks: {frame.read_only}"
    for view in frame.hosts:
        if view.name == host and not view.may_act:
            return (
                f"Our key may look on {host}, and ask nothing of its ranks;"
                " there, `frtop key admit` without --read lets it ask."
            )
    return ""
