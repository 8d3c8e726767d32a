"""How a case is declared: who finds it, what confirms it, and its sentences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from frtop_tui.diagnosis.cases.context import Context
from frtop_tui.diagnosis.finding import Detail, Finding
from frtop_tui.diagnosis.model import Sentences
from frtop_tui.diagnosis.words.phrases import Tense
from frtop_tui.job.model import BaseFrame

Clock = Literal[
    "at once",  # it proves itself
    "window",  # the window that shows it does so beyond doubt
    "frames",  # two frames, `CONFIRM_NS` apart
    "snapshots",  # two snapshots of each culprit, `CONFIRM_NS` apart
    "never",
]
Detector = Callable[[Context], list[Finding]]
Words = Callable[[Finding, Any, BaseFrame, Tense], Sentences]
"""Takes a finding and its detail; the frame is the one that it was found in."""
Vetoes = tuple[tuple[str, Callable[[Finding, Context], bool]], ...]
"""What keeps a finding a suspicion, each with the reason that `--explain` prints."""


class Rule(NamedTuple):
    """What confirms a finding.

    `unless` keeps it a suspicion, and the clock does not start; `vetoes` keep it one although the
    clock runs. `when` says of which findings the rule is.
    """

    clock: Clock
    unless: Vetoes = ()
    vetoes: Vetoes = ()
    when: Callable[[Finding], bool] = lambda _: True


class Kind(NamedTuple):
    """Findings with one detail: their words, and their rules; the first rule that fits counts."""

    detail: type[Detail]
    words: Words
    rules: tuple[Rule, ...]


class Case(NamedTuple):
    """One way to go wrong. Without `detect` another case finds it, or the engine asks for it."""

    kinds: tuple[Kind, ...]
    detect: Detector | None = None
