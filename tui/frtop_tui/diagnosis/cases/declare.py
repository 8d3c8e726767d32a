"""How a case is declared: its detector, its rules of confirmation, its words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from frtop_tui.diagnosis.cases.context import Context
from frtop_tui.diagnosis.finding import Detail, Finding
from frtop_tui.diagnosis.model import Sentences
from frtop_tui.diagnosis.words.phrases import Tense
from frtop_tui.job.model import BaseFrame

Clock = Literal[
    "at once",  # it is its own proof
    "window",  # the window that shows it is proof
    "frames",  # two frames, `CONFIRM_NS` apart
    "snapshots",  # two snapshots of each culprit, `CONFIRM_NS` apart
    "never",
]
Detector = Callable[[Context], list[Finding]]
Words = Callable[[Finding, Any, BaseFrame, Tense], Sentences]
"""Takes a finding, its detail, and the frame in which it was found."""
Vetoes = tuple[tuple[str, Callable[[Finding, Context], bool]], ...]
"""What keeps a finding a suspicion, with the reason that `--explain` prints."""


class Rule(NamedTuple):
    """What confirms a finding.

    While `unless` holds, the clock does not start. While one of `vetoes` holds, it runs without
    confirming.
    `when` selects the findings of the rule.
    """

    clock: Clock
    unless: Vetoes = ()
    vetoes: Vetoes = ()
    when: Callable[[Finding], bool] = lambda _: True


class Kind(NamedTuple):
    """Findings with one kind of detail: their words and rules. The first rule that fits counts."""

    detail: type[Detail]
    words: Words
    rules: tuple[Rule, ...]


class Case(NamedTuple):
    """One way in which jobs go wrong. Without `detect`, another case or the engine finds it."""

    kinds: tuple[Kind, ...]
    detect: Detector | None = None
