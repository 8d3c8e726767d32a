"""Why a key cannot do anything now, as a sentence for the user."""

from __future__ import annotations

from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.job.native_stacks import has_native
from frtop_tui.job.units import of_time
from frtop_tui.job.unprepared import without_recorder
from frtop_tui.widgets.file_status import file_in_progress, short_path

ASKS = ("inspect", "members", "save", "profile", "order")
"""Actions that a rank has to answer."""
LIVE_ONLY = (*ASKS, "take", "native", "capture", "export")
"""Actions that ask agents, which know only about now."""


def action_name(action: str) -> str:
    """`inspect` of `app.inspect(3)`, `profile` of `app.feature('profile')`."""
    name, _, argument = action.removeprefix("app.").partition("(")
    return argument.strip("')") if name == "feature" else name


def why_unavailable(
    action: str,
    frame: Frame,
    host: str = "",
    rank: JudgedRank | None = None,
    *,
    past: str = "",
) -> str:
    """Why `action` can do nothing with this frame; "" if it can.

    `host` and `rank` are those that it would ask; `past` is how far back the frame is.
    """
    name = action_name(action)
    if past and name in LIVE_ONLY:
        return f"Showing {past} ago, and agents know only about now. Z or :live returns to live."
    if name == "native" and frame.recorded is not None and rank is not None and has_native(rank):
        return ""  # those in the file are shown
    if frame.recorded is not None:
        no_recorder = _without_recorder(frame, rank) if name == "tensors" else ""
        return _when_recorded(name, frame) or no_recorder
    return _when_live(name, frame, host, rank)


def _when_live(name: str, frame: Frame, host: str, rank: JudgedRank | None) -> str:
    if name in ("capture", "export"):
        return _when_writing(name, frame)
    if name in (*ASKS, "tensors"):
        return _when_read_only(frame, host) or _without_recorder(frame, rank)
    if name == "take":
        return _ended(rank, "stacks")
    if name == "native":
        return _when_read_only(frame, host) or _not_running(rank)
    return ""


def _ended(rank: JudgedRank | None, what: str) -> str:
    if rank is not None and rank.exit_info is not None:
        return f"Its process has ended: there are no {what} to take."
    return ""


def _not_running(rank: JudgedRank | None) -> str:
    """Why no tool may attach to a rank's process; the agent checks that again."""
    if rank is not None and rank.state == "stopped":
        return "Its process is stopped, and stays so: native stacks need one that runs."
    return _ended(rank, "native stacks")


def _without_recorder(frame: Frame, rank: JudgedRank | None) -> str:
    if rank is not None:
        return without_recorder(rank)
    unprepared = frame.coverage.unprepared
    if not unprepared or len(unprepared) < len(frame.ranks):
        return ""
    return without_recorder(frame.ranks[unprepared[0]])


def _when_recorded(name: str, frame: Frame) -> str:
    assert frame.recorded is not None
    kind, when = frame.recorded.kind, of_time(frame.recorded.wall_ns)
    single = kind in ("capture", "black box")
    this = f"this is a {kind}{when}" if single else f"these are {kind}{when}"
    if name in ("take", "native", *ASKS):
        stacks = {"take": "take stacks of", "native": "take native stacks of"}
        what = stacks.get(name, "ask")
        return f"There is no live job to {what}: {this}."
    if name == "capture" and kind == "capture" and not frame.recorded.filled:
        return f"This is already a {kind}, read from {short_path(frame.recorded.path)}."
    if name == "choose_job":
        if kind == "black box":
            return "frtop read one job: `frtop open --job NAME` with the same files shows another."
        holds = "A capture holds" if single else "Dumps and stacks hold"
        return f"{holds} one job: `frtop open` shows other jobs from their own files."
    if name in ("pause", "past"):
        return f"Nothing changes here: {this}."
    return ""


def _when_writing(name: str, frame: Frame) -> str:
    if frame.job is None:
        return f"There is no job to {name}."
    running, what = file_in_progress(frame, name), "A capture" if name == "capture" else "An export"
    return f"{what} is in progress: {short_path(running.path)}." if running is not None else ""


def _when_read_only(frame: Frame, host: str) -> str:
    if frame.read_only:
        return f"The ranks may not be asked: {frame.read_only}"
    for view in frame.hosts:
        if view.name == host and not view.may_act:
            return (
                f"Our key is read-only on {host} and may not ask its ranks;"
                " `frtop key admit` there, without --read, allows it."
            )
    return ""
