"""The verdict in full: culprit, cause, next step and evidence; or why there is none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.job_activity import other_jobs_line, rank_notes
from frtop_tui.job.units import counted
from frtop_tui.text.rank_states import URGENCY
from frtop_tui.text.verdict import VerdictText, status, verdict_text
from frtop_tui.widgets.file_status import file_lines
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.spans import Line, plain, wrap


def verdict_lines(said: VerdictText, width: int) -> list[Line]:
    """Headline, cause and next step: visible in a small terminal, too."""
    rows = wrap(said.headline, width, "strong")
    for label, text, tone in (
        ("why   ", said.fact("why"), "dim"),
        ("cost  ", said.fact("cost"), "dim"),
        ("next  ", said.next, "key"),
    ):
        if text:
            rows += wrap(text, width, "", (label, tone))
    return rows


def evidence_lines(said: VerdictText, width: int, which: str = "") -> list[Line]:
    """What was seen and what could not be seen; `which` numbers one of several verdicts."""
    rows: list[Line] = []
    for label, tone, sentences in (
        (f"seen{which}  ", "dim", said.evidence),
        (f"not seen{which}  ", "warn", said.missing),
    ):
        for index, sentence in enumerate(sentences):
            rows += wrap(sentence, width, tone, (label if not index else " " * len(label), tone))
    return rows


def no_verdict(frame: Frame) -> str:
    """The states of all ranks, when no rank is blamed."""
    if frame.health == "connecting":
        return "connecting: no report yet"
    if frame.health == "empty":
        return "agents answer, but there is no job"
    if not frame.ranks:
        return "no ranks yet"
    counts = Counter(rank.state for rank in frame.ranks.values())
    never_reported = len(frame.coverage.unreachable) - counts["unreachable"]
    words = [f"{counts[p]:,} {p}" for p in sorted(counts, key=URGENCY.__getitem__)]
    if never_reported > 0:
        words.append(f"{never_reported:,} never reported")
    if len(words) == 1:
        only = next(iter(counts))
        return f"no verdict: all {counted(len(frame.ranks), 'rank')} {only}"
    return "no verdict: " + ", ".join(words)


def panel_lines(frame: Frame, width: int, numbers: str = "") -> list[Line]:
    """The frame's problem first, then verdicts, files, evidence and notes.

    `numbers` is what sampled numbers say, which is no part of a verdict.
    """
    rows: list[Line] = []
    if frame.problem:
        rows += wrap(str(frame.problem), width, "warn")
    several = len(frame.verdicts) > 1
    texts = [verdict_text(verdict, frame) for verdict in frame.verdicts]
    for index, verdict in enumerate(frame.verdicts):
        if several:
            head = f"{index + 1} of {len(frame.verdicts)}  {status(verdict, frame)}"
            rows.append(plain(head, "dim"))
        rows += verdict_lines(texts[index], width)
    if numbers:
        rows += wrap(f"{numbers}: `:record`", width, "warn", ("numbers  ", "dim"))
    if frame.verdicts:
        # Before the evidence: the file's path must be visible in a small terminal.
        rows += file_lines(frame, width)
    for index, said in enumerate(texts):
        # After all verdicts: the second cause matters more than the evidence of the first.
        rows += evidence_lines(said, width, f" {index + 1}" if several else "")
    if not frame.verdicts and not frame.problem:
        rows += wrap(no_verdict(frame), width, "good" if frame.health == "healthy" else "")
    if not frame.verdicts:
        rows += file_lines(frame, width)
    return rows + note_lines(frame, width)


def note_lines(frame: Frame, width: int) -> list[Line]:
    """Notes on hosts, coverage and ranks: they limit what the verdict can know."""
    rows: list[Line] = []
    for host in frame.hosts:
        label = f"{host.name}  "
        if host.problem and host.problem != frame.problem:
            rows += wrap(str(host.problem), width, "warn", (label, "strong"))
        elif host.state == "connecting" and not host.problem:
            words = f"connecting: {host.progress}" if host.progress else "connecting"
            rows += wrap(words, width, "dim", (label, "strong"))
        for note in host.notes:
            rows += wrap(note, width, "dim", (label, "dim"))
    recorded = frame.recorded.notes if frame.recorded is not None else ()
    missing = (note.text for note in frame.coverage.notes)
    for note in (*recorded, *frame.notes, *missing, *rank_notes(frame.ranks.values())):
        rows += wrap(note, width, "dim", ("note  ", "dim"))
    jobs = other_jobs_line(frame)
    if jobs:
        rows += wrap(jobs, width, "", ("other jobs  " if frame.job else "jobs  ", "dim"))
    return rows


class VerdictPanel(LineView):
    """All verdicts; scrolls when they do not fit."""

    def __init__(self) -> None:
        super().__init__(id="verdict", classes="pane")
        self.entitle("verdict")
        self.frame: Frame | None = None
        self.numbers = ""

    def show(self, frame: Frame, numbers: str = "") -> None:
        self.frame, self.numbers = frame, numbers
        verdicts = frame.verdicts
        if len(verdicts) == 1:
            self.entitle(f"verdict: {status(verdicts[0], frame)}")
        elif verdicts:
            self.entitle(f"{len(verdicts)} verdicts, root causes first")
        else:
            self.entitle("verdict")
        self.redraw()

    def content(self, width: int) -> Sequence[Line]:
        return () if self.frame is None else panel_lines(self.frame, width, self.numbers)
