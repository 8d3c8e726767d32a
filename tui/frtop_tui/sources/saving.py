"""Fetches the tensors of one pending op in pieces and writes them to a file.

What has come is written at once and the next piece asked for when it is on disk: neither
our memory nor the rank's host ever holds more than two pieces for us.
"""

from __future__ import annotations

from collections import Counter, deque
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.export.output_path import write_unused
from frtop_tui.job.model import Writing
from frtop_tui.job.naming import group_label, job_place
from frtop_tui.sources.errands import Errands, Then
from frtop_tui.sources.safetensors import Draft, Entry, NoSuchDtype, header
from frtop_tui.sources.scribe import Scribe

WINDOW: Final = 2
SMALLEST_PIECE: Final = 64 * 1024
FIRST_PIECE: Final = 256 * 1024
LARGEST_PIECE: Final = 4 * 1024 * 1024
QUICK_NS: Final = 500_000_000
"""A piece that came this quickly may be followed by larger ones; a slow link keeps to small
ones, and stays free for the rest."""


class _Piece(Struct, frozen=True):
    """`size` bytes of tensor `index` from `offset`; the tensor begins at `start` of the data."""

    index: int
    offset: int
    size: int
    start: int

    def after(self, size: int) -> _Piece:
        """What is left when its first `size` bytes are had."""
        return _Piece(self.index, self.offset + size, self.size - size, self.start)


class Saving:
    """One file, from the wish to its end. Belongs to the source's thread.

    `writing` tells how far it is; callbacks that come after its end change nothing.
    """

    def __init__(
        self,
        errands: Errands,
        scribe: Scribe,
        frame: Frame,
        *,
        rank: int,
        sequence: int,
        path: Path,
        now: int,
    ) -> None:
        self._errands = errands
        self._scribe = scribe
        self._path = path
        self._sequence = sequence
        self._draft: Draft | None = None
        self._made: list[Draft] = []
        """The same, in the scribe's hands: made, perhaps, when nobody wants it any more."""
        self._todo: deque[_Piece] = deque()  # whole tensors; pieces are cut from the first
        self._under_way: set[int] = set()
        self._unwritten = 0
        self._piece = FIRST_PIECE
        self.writing = Writing("tensors", "collecting", str(path), at_ns=now)
        self._name = _named(None, rank, sequence)
        view = frame.ranks.get(rank)
        if view is None:
            self._fail(f"rank {rank} is not known; wait until it is heard", now)
            return
        self._host, self._key = view.host, view.key
        self._agent = errands.agent(view.host)
        op = next((op for op in view.pending if op.sequence == sequence), None)
        self._name = _named(op, rank, sequence)
        self._texts = _texts(frame, view, op, sequence)
        if view.tensors is not None and _has(view.tensors, sequence):
            self._prepare(view.tensors, now)
        else:
            question = wire.TensorsRequest(0, view.key, sequence)
            self._under_way.add(self._ask(question, self._told, now))

    @property
    def over(self) -> bool:
        return self.writing.state in ("written", "failed")

    def refuse(self, path: Path) -> None:
        """Another wish while this one is under way."""
        self.writing = replace(self.writing, problem=f"already saving: {path} was not begun")

    def give_up(self, why: str, now: int) -> None:
        """Nobody waits for it any more."""
        if not self.over:
            self._fail(why, now)

    def _ask(self, question: wire.Request, then: Then, now: int) -> int:
        return self._errands.ask(self._host, question, then, now, agent=self._agent)

    def _told(self, answer: wire.Response, now: int) -> None:
        """What the op's tensors are; from the rank itself."""
        self._under_way.clear()
        if isinstance(answer, wire.TensorsResponse) and not answer.error:
            self._prepare(answer, now)
        else:
            self._fail(_why(answer), now)

    def _prepare(self, answer: wire.TensorsResponse, now: int) -> None:
        found = next((op for op in answer.ops if op.sequence == self._sequence), None)
        if found is None or not found.tensors:
            why = found.error if found is not None else ""
            self._fail(why or f"{self._name} is not pending any more: nothing to save", now)
            return
        counts: Counter[str] = Counter()
        entries: list[Entry] = []
        total = 0
        for index, one in enumerate(found.tensors):
            entry = Entry(f"{one.role}.{counts[one.role]}", one.dtype, one.shape)
            counts[one.role] += 1
            try:
                size = entry.size
            except NoSuchDtype:
                self._fail(f"safetensors has no {one.dtype}: {entry.name} cannot be saved", now)
                return
            if one.error or size != one.size:
                why = one.error or f"its {one.size} bytes are not those of its shape"
                self._fail(f"{entry.name} cannot be read: {why}", now)
                return
            entries.append(entry)
            if size:
                self._todo.append(_Piece(index, 0, size, total))
            total += size
        self.writing = replace(self.writing, total=total)
        head, made = header(entries, self._texts), self._made

        def make() -> Draft:
            made.append(Draft(self._path, head, total))
            return made[0]

        self._scribe.do(make, self._drafted, self._fail)

    def _drafted(self, draft: Draft, now: int) -> None:
        if not self.over:
            self._draft = draft
            self._more(now)

    def _more(self, now: int) -> None:
        """Asks for the next pieces, or ends."""
        while self._todo and len(self._under_way) + self._unwritten < WINDOW:
            whole = self._todo.popleft()
            piece = replace(whole, size=min(whole.size, self._piece))
            if piece.size < whole.size:
                self._todo.appendleft(whole.after(piece.size))
            question = wire.DataRequest(
                0, self._key, self._sequence, piece.index, piece.offset, piece.size
            )
            then = partial(self._got, piece, now)
            self._under_way.add(self._ask(question, then, now))
        if not self._todo and not self._under_way and not self._unwritten:
            assert self._draft is not None
            self.writing = replace(self.writing, state="writing", at_ns=now)
            finish = partial(write_unused, self._path, self._draft.finish)
            self._scribe.do(finish, self._finished, self._fail)

    def _got(self, piece: _Piece, asked_ns: int, answer: wire.Response, now: int) -> None:
        self._under_way.discard(answer.id)
        if self.over or self._draft is None:
            return
        if not isinstance(answer, wire.DataResponse) or answer.error:
            self._fail(f"{self._name}: {_why(answer)}; nothing was written", now)
            return
        got = len(answer.data)
        asked = self._key, self._sequence, piece.index, piece.offset
        as_asked = asked == (answer.key, answer.sequence, answer.index, answer.offset)
        if not as_asked or not 0 < got <= piece.size:
            self._fail(f"{self._name}: other data came than asked for; nothing was written", now)
            return
        if now - asked_ns < QUICK_NS:
            self._piece = min(2 * self._piece, LARGEST_PIECE)
        else:
            self._piece = max(self._piece // 2, SMALLEST_PIECE)
        if got < piece.size:
            self._todo.appendleft(piece.after(got))
        self._unwritten += 1
        write = partial(self._draft.write, answer.data, piece.start + piece.offset)
        self._scribe.do(write, partial(self._written, got), self._fail)

    def _written(self, size: int, _: None, now: int) -> None:
        if not self.over:
            self._unwritten -= 1
            self.writing = replace(self.writing, done=self.writing.done + size)
            self._more(now)

    def _finished(self, put: tuple[Path, int], now: int) -> None:
        path, size = put
        self.writing = replace(
            self.writing, state="written", path=str(path), size=size, problem="", at_ns=now
        )

    def _fail(self, problem: str, now: int) -> None:
        """Ends without a file."""
        if self.over:
            return
        self.writing = replace(self.writing, state="failed", problem=problem, at_ns=now)
        for number in self._under_way:
            self._errands.drop(number)
        self._draft = None
        self._scribe.do(partial(_discard, self._made), _nothing, _nothing)


def _discard(made: list[Draft]) -> None:
    for draft in made:
        draft.discard()


def _named(op: wire.Op | None, rank: int, sequence: int) -> str:
    if op is None or op.signature is None:
        return f"op {sequence} of rank {rank}"
    return f"{op.signature.kind} #{op.number} of rank {rank}"


def _has(answer: wire.TensorsResponse, sequence: int) -> bool:
    return any(op.sequence == sequence and op.tensors for op in answer.ops)


def _why(answer: wire.Response) -> str:
    """Why an answer has nothing for us."""
    match answer:
        case wire.Error(text=text):
            return text
        case (
            wire.TensorsResponse(error=error, help=told) | wire.DataResponse(error=error, help=told)
        ):
            return told or error
        case _:
            return "the agent answered something else"


def _nothing(_result: object, _now: int) -> None:
    """Nobody needs to know."""


def _texts(frame: Frame, view: JudgedRank, op: wire.Op | None, sequence: int) -> dict[str, str]:
    """What the file says about itself; the format knows texts only."""
    moment = datetime.fromtimestamp(frame.wall_ns / 1e9, tz=timezone.utc)
    texts = {
        "written_by": "frtop",
        "job": job_place(frame.job) if frame.job is not None else "",
        "rank": str(view.rank),
        "host": view.host,
        "sequence": str(sequence),
        "time": moment.isoformat(timespec="milliseconds"),
        "torch": view.identity.torch,
    }
    if op is not None:
        group = view.groups.get(op.group)
        texts |= {
            "op": str(op.number),
            "kind": op.signature.kind if op.signature is not None else "",
            "group": group_label(group.name, group.description) if group is not None else "",
        }
    return texts
