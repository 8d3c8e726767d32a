"""How much of a job was seen, and what was lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from frtop_probe import wire
from frtop_probe.ring.layout import State
from frtop_probe.ring.rank_ranges import fold
from frtop_tui.job.device_settings import follows, settings_of_rank
from frtop_tui.job.model import Coverage, CoverageNote, ObservedRank, RankState
from frtop_tui.job.naming import folded, listed
from frtop_tui.job.transports import beside_c10d
from frtop_tui.job.units import counted
from frtop_tui.job.unprepared import NEXT_TIME, NOT_PREPARED, recorder_note


class RankCounts:
    """Counts of ranks by state and of their losses, kept up to date as ranks change."""

    def __init__(self) -> None:
        self.states: Counter[RankState] = Counter()
        self.unreachable: set[int] = set()
        self._unprepared: set[int] = set()
        self._unreadable: dict[int, tuple[str, ...]] = {}
        self._unread: dict[int, str] = {}
        self._beside: dict[int, tuple[wire.Transport, ...]] = {}
        self._blind: dict[int, tuple[str, ...]] = {}
        self._others_ended: set[int] = set()
        self._off: set[int] = set()
        self._hook_errors: set[int] = set()
        self._ops_lost: dict[int, int] = {}
        self._signatures_lost: dict[int, int] = {}

    def put(self, old: ObservedRank | None, new: ObservedRank | None) -> None:
        if old is not None and new is not None and _counts_alike(old, new):
            return
        if old is not None:
            self._remove(old)
        if new is not None:
            self._add(new)

    def coverage(
        self,
        ranks: Mapping[int, ObservedRank],
        world_size: int,
        lost_updates: int,
        nameless: int,
        searching: Sequence[str] = (),
    ) -> Coverage:
        """Coverage of the counted `ranks`.

        `nameless` processes have no rank yet; hosts in `searching` are not looked through yet.
        """
        expected = world_size or len(ranks)
        never = set(range(expected)).difference(ranks) if len(ranks) < expected else set()
        notes: list[CoverageNote] = []
        if never:
            text = (
                f"{folded(never)} never reported: not started yet, another user's, on a host that"
                " is not connected, or not searched for (FRTOP_UNPREPARED=0)"
            )
            if self._others_ended:
                text = f"{folded(never)} never reported: ended, according to the others' launcher"
            notes.append(CoverageNote(text, "never reported"))
        if self.unreachable:
            text = f"{folded(self.unreachable)}: host silent, last known state shown"
            notes.append(CoverageNote(text, "last known"))
        texts = self._recorder_notes()
        texts[:0] = _by_rank(self._unreadable, len(ranks))
        if unprepared := self._unprepared.difference(self._unreadable):
            text = f"{NOT_PREPARED}, so past ops only as far as torch records them; {NEXT_TIME}"
            everybody = len(unprepared) == len(ranks)
            texts.insert(0, text if everybody else f"{folded(unprepared)}: {text}")
            if searching:
                texts.insert(
                    0, f"{listed(searching, 4)}: ranks are still being looked at for the first time"
                )
        if self._unread:
            first = min(self._unread)
            text = f"c10d state of {folded(self._unread)} not read"
            texts.insert(0, f"{text}; rank {first}: {self._unread[first]}")
        if self._beside:
            names = dict.fromkeys(one.name for those in self._beside.values() for one in those)
            everybody = len(self._beside) == len(ranks)
            whose = "" if everybody else f"{folded(self._beside)}: "
            texts.append(f"{whose}{beside_c10d(names)}")
        texts += _by_rank(self._blind, len(ranks))
        if nameless:
            texts.append(nameless_text(nameless))
        if lost_updates:
            texts.append(f"{lost_updates} updates lost, state requested again")
        return Coverage(
            expected=expected,
            reporting=len(ranks) - len(self.unreachable),
            unreachable=tuple(sorted(self.unreachable | never)),
            lost_updates=lost_updates,
            notes=(*notes, *map(CoverageNote, texts)),
            unprepared=tuple(sorted(self._unprepared)),
            unreadable=tuple(sorted(self._unreadable)),
        )

    def _recorder_notes(self) -> list[str]:
        """What recorders lost, and which of them switched themselves off."""
        notes: list[str] = []
        ops, signatures = self._ops_lost, self._signatures_lost
        if self._off:
            notes.append(f"recorder switched itself off on {folded(self._off)}")
        elif self._hook_errors:
            notes.append(f"errors in the hook on {folded(self._hook_errors)}: ops may be missing")
        if ops:
            notes.append(f"{counted(sum(ops.values()), 'pending op')} lost on {folded(ops)}")
        if signatures:
            count = f"{sum(signatures.values()):,}"
            notes.append(f"{count} signatures or call sites lost on {folded(signatures)}")
        return notes

    def _remove(self, view: ObservedRank) -> None:
        rank = view.rank
        self.states[view.state] -= 1
        for ranks in (
            self.unreachable,
            self._unprepared,
            self._others_ended,
            self._off,
            self._hook_errors,
        ):
            ranks.discard(rank)
        self._unread.pop(rank, None)
        self._beside.pop(rank, None)
        self._blind.pop(rank, None)
        self._unreadable.pop(rank, None)
        self._ops_lost.pop(rank, None)
        self._signatures_lost.pop(rank, None)

    def _add(self, view: ObservedRank) -> None:
        rank, status = view.rank, view.status
        self.states[view.state] += 1
        signs = (
            (view.state == "unreachable", self.unreachable),
            (not view.identity.prepared, self._unprepared),
            (wire.OTHERS_ENDED in view.notes, self._others_ended),
        )
        for shown, ranks in signs:
            if shown:
                ranks.add(rank)
        if view.transports:
            self._beside[rank] = view.transports
        self._blind[rank] = tuple(one.sentence for one in settings_of_rank(view) if one.blinds)
        if note := recorder_note(view):
            self._unreadable[rank] = (f"{note}; it is seen from outside",)
        others = [one for one in view.notes if one != note]
        if not view.identity.c10d_readable and others:
            self._unread[rank] = others[0]
        if status is not None:
            self._add_losses(rank, status)

    def _add_losses(self, rank: int, status: wire.RankStatus) -> None:
        if status.state == State.OFF:
            self._off.add(rank)
        if status.hook_errors:
            self._hook_errors.add(rank)
        if status.pending_lost:
            self._ops_lost[rank] = status.pending_lost
        if status.side_lost:
            self._signatures_lost[rank] = status.side_lost


def _by_rank(sentences: Mapping[int, tuple[str, ...]], ranks: int) -> list[str]:
    """Each sentence about ranks once, with the ranks that it applies to."""
    found: dict[str, list[int]] = {}
    for rank, those in sorted(sentences.items()):
        for sentence in those:
            found.setdefault(sentence, []).append(rank)
    return [
        text if len(those) == ranks else f"{folded(those)}: {text}" for text, those in found.items()
    ]


def _counts_alike(old: ObservedRank, new: ObservedRank) -> bool:
    """Whether what is counted of a rank is the same; may be False even then.

    Called for every rank that reports, in every frame.
    """
    one, other = old.status, new.status
    if one is None or other is None:
        return False
    return (
        old.state == new.state
        and old.identity is new.identity
        and old.groups is new.groups
        and old.notes is new.notes
        and old.transports is new.transports
        and (old.group_progress is new.group_progress or follows(old) == follows(new))
        and one.state == other.state
        and one.hook_errors == other.hook_errors
        and one.pending_lost == other.pending_lost
        and one.side_lost == other.side_lost
    )


def nameless_text(count: int) -> str:
    who = "1 process has not said which rank it is"
    return who if count == 1 else f"{count} processes have not said which rank they are"


def coverage_text(coverage: Coverage) -> str:
    """`62 of 64 ranks reporting; not 5,9`, or just the count when all are."""
    text = f"{coverage.reporting:,} of {counted(coverage.expected, 'rank')} reporting"
    return f"{text}; not {fold(coverage.unreachable)}" if coverage.unreachable else text
