"""The top two lines of every screen: what is looked at, how it fares, how long is left."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from frtop_tui.diagnosis.judged import Frame
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.origin import origin_line
from frtop_tui.widgets.spans import Line, clip, join, plain, spread
from frtop_tui.widgets.wording import HEALTH_TONE, age, job_name, ranks_word
from frtop_tui.widgets.writings import progress

NOT_KILLED = ("healthy", "starting", "ended", "connecting", "empty")


@lru_cache(maxsize=64)
def folded_hosts(names: tuple[str, ...]) -> str:
    """`node[0-7]`. ClusterShell is imported only when there are hosts to fold."""
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException  # noqa: PLC0415

    folded = NodeSet(resolver=RESOLVER_NOGROUP)
    try:
        for name in names:
            folded.add(name)
    except NodeSetException:
        # An address with a port or brackets in it is no node name; it is shown as it is.
        return ", ".join(names)
    return str(folded)


def job_line(frame: Frame) -> Line:
    """Which job, how large, where, since when."""
    names = tuple(sorted({rank.host for rank in frame.ranks.values()}))
    world = frame.job.world_size if frame.job else len(frame.ranks)
    return join(
        (
            plain(job_name(frame), "strong"),
            plain(f"attempt {frame.job.attempt}" if frame.job and frame.job.attempt else ""),
            plain(other_jobs(frame), "warn"),
            plain(ranks_word(world) if frame.job else ""),
            plain(folded_hosts(names or tuple(host.name for host in frame.hosts))),
            plain(f"up {age(frame.up_s)}" if frame.up_s else "", "dim"),
        )
    )


def other_jobs(frame: Frame) -> str:
    """That there is more to see than this job; the panel below says how."""
    count = len(frame.other_jobs)
    word = "other job" if frame.job else "job"
    return f"+{count} {word}{'s' * (count > 1)} (J)" if count else ""


def health_line(frame: Frame) -> Line:
    """How the job fares and since when; with a wait in it, when that wait times out."""
    word = "NO JOB" if frame.health == "empty" else frame.health.upper()
    if frame.since_ns and frame.health not in ("connecting", "empty"):
        word += f" {age(max(0, frame.until_ns - frame.since_ns) / 1e9)}"
    left = [verdict.left_s for verdict in frame.verdicts if verdict.left_s is not None]
    limit = ""
    if left and frame.health not in NOT_KILLED:
        nearest = min(left)
        limit = f"times out in {age(nearest)}" if nearest > 0 else "its timeout has passed"
        if frame.recorded is not None and nearest > 0:
            limit = f"{age(nearest)} were left"
    if frame.health == "empty" and frame.problem:
        limit = str(frame.problem)
    partial = frame.health == "healthy" and not frame.coverage.complete
    return (
        (f" {word} ", HEALTH_TONE[frame.health]),
        *plain(f"· {limit}" if limit else "", "warn"),
        *plain("· as far as heard" if partial else "", "warn"),
    )


def heard(frame: Frame) -> Line:
    """How much of the job is seen: partial is never shown as complete."""
    coverage = frame.coverage
    if not coverage.expected and frame.health == "empty":
        return plain("agents answer", "dim")
    if not coverage.expected:
        return plain("nothing heard yet", "warn")
    text = f"{coverage.heard}/{coverage.expected} heard"
    if coverage.lost_updates:
        text += f", {coverage.lost_updates} updates lost"
    return plain(text, "dim" if coverage.complete else "warn")


class Headline(LineView, can_focus=False):
    """Shows a frame's state above every screen; `crumbs` say where one is."""

    def __init__(self) -> None:
        super().__init__(id="headline")
        self.frame: Frame | None = None
        self.crumbs: Line = ()
        self.badge: Line = ()

    def content(self, width: int) -> Sequence[Line]:
        if self.frame is None:
            return ()
        first = (
            (*plain(" frtop  ", "key"), *job_line(self.frame))
            if not self.crumbs
            else (
                *plain(" "),
                *self.crumbs,
            )
        )
        frame = self.frame
        look = "read-only" if frame.read_only and frame.recorded is None else ""
        right = join((self.badge, plain(progress(frame), "strong"), plain(look), heard(frame)))
        above = () if frame.recorded is None else (origin_line(frame.recorded, width),)
        return (
            *above,
            clip(first, width),
            spread((*plain(" "), *health_line(self.frame)), (*right, *plain(" ")), width),
        )
