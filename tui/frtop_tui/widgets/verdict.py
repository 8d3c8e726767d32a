"""The verdict in full: culprit, cause, next step and evidence; or why there is none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.job_activity import other_jobs_line
from frtop_tui.text.health_words import no_verdict_words
from frtop_tui.text.lines import WordLine
from frtop_tui.text.notes import job_notes, why_silent
from frtop_tui.text.verdict import VerdictText, status, verdict_text
from frtop_tui.widgets.file_status import file_lines
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.spans import Line, plain, word_rows, wrap


def verdict_lines(said: VerdictText, width: int) -> list[Line]:
    """Headline, cause and next step: visible in a small terminal, too."""
    facts = [(label, said.fact(label)) for label in ("why", "cost")]
    words = [WordLine(f"{label:<4}", text) for label, text in facts if text]
    rows = wrap(said.headline, width, "strong") + word_rows(words, width)
    return rows + (wrap(said.next, width, "", ("next  ", "key")) if said.next else [])


def evidence_lines(said: VerdictText, width: int, which: str = "") -> list[Line]:
    """What frtop saw and could not see; `which` numbers one of several verdicts."""
    rows: list[Line] = []
    for label, tone, sentences in (
        (f"seen{which}", "dim", said.evidence),
        (f"not seen{which}", "warn", said.missing),
    ):
        words = (WordLine("" if n else label, one, tone) for n, one in enumerate(sentences))
        rows += word_rows(words, width, len(label) + 2, tone=tone)
    return rows


def panel_lines(frame: Frame, width: int, remarks: Sequence[WordLine] = ()) -> list[Line]:
    """The frame's problem first, then verdicts, files, evidence and notes.

    `remarks` of features are not part of a verdict.
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
    rows += word_rows(remarks, width)
    if not frame.verdicts and not frame.problem:
        tone = "good" if frame.health == "healthy" else ""
        rows += wrap(no_verdict_words(frame), width, tone)
    # Before the evidence: the file's path must be visible in a small terminal.
    rows += file_lines(frame, width)
    for index, said in enumerate(texts):
        # After all verdicts: the second cause matters more than the evidence of the first.
        rows += evidence_lines(said, width, f" {index + 1}" if several else "")
    return rows + note_lines(frame, width)


def note_lines(frame: Frame, width: int) -> list[Line]:
    """Notes on hosts, coverage and ranks: they limit what the verdict can know."""
    silent = [
        WordLine(host.name, why_silent(host), "warn" if host.problem else "dim")
        for host in frame.hosts
        if (host.problem != frame.problem if host.problem else host.state == "connecting")
    ]
    return [
        *word_rows(silent, width, tone="strong"),
        *word_rows(_notes(frame), width),
    ]


def _notes(frame: Frame) -> Iterator[WordLine]:
    yield from (WordLine(host.name, note, "dim") for host in frame.hosts for note in host.notes)
    recorded = frame.recorded.notes if frame.recorded is not None else ()
    yield from (WordLine("note", note, "dim") for note in (*recorded, *job_notes(frame)))
    if jobs := other_jobs_line(frame):
        yield WordLine("other jobs" if frame.job else "jobs", jobs)


class VerdictPanel(LineView):
    """All verdicts; scrolls when they do not fit."""

    def __init__(self) -> None:
        super().__init__(id="verdict", classes="pane")
        self.entitle("verdict")
        self.frame: Frame | None = None
        self.remarks: Sequence[WordLine] = ()

    def copied(self) -> str:
        return ""

    def show(self, frame: Frame, remarks: Sequence[WordLine] = ()) -> None:
        self.frame, self.remarks = frame, remarks
        verdicts = frame.verdicts
        if len(verdicts) == 1:
            self.entitle(f"verdict: {status(verdicts[0], frame)}")
        elif verdicts:
            self.entitle(f"{len(verdicts)} verdicts, root causes first")
        else:
            self.entitle("verdict")
        self.redraw()

    def content(self, width: int) -> Sequence[Line]:
        return () if self.frame is None else panel_lines(self.frame, width, self.remarks)
