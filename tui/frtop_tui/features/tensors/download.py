"""Downloads the tensors of one pending op in pieces and writes them to a file.

The next piece is requested when one is on disk: neither our memory nor the rank's host
ever holds more than `WINDOW` pieces.
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
from frtop_probe.features.tensors.messages import ReadTensor, SummarizeTensors
from frtop_tui.connect.file_worker import FileWorker
from frtop_tui.connect.request_tracker import OnResponse, RequestTracker
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.features.tensors.safetensors import Entry, NoSuchDtype, PartialFile, header
from frtop_tui.files.output_path import write_unused
from frtop_tui.job.model import Problem, Writing
from frtop_tui.job.naming import group_label, job_place

WINDOW: Final = 2
SMALLEST_PIECE: Final = 64 * 1024
FIRST_PIECE: Final = 256 * 1024
LARGEST_PIECE: Final = 4 * 1024 * 1024
QUICK_NS: Final = 500_000_000
"""A piece that came within this time is followed by larger ones; a slow link gets small
pieces, and stays free for other messages."""


class _Piece(Struct, frozen=True):
    """`size` bytes of tensor `index` from `offset`; `start` is the tensor's offset in the file."""

    index: int
    offset: int
    size: int
    start: int

    def after(self, size: int) -> _Piece:
        """The rest without its first `size` bytes."""
        return _Piece(self.index, self.offset + size, self.size - size, self.start)


class TensorDownload:
    """One file, from the command to its end. Belongs to the source's thread.

    `writing` says how far it is; callbacks after its end change nothing.
    """

    def __init__(
        self,
        tracker: RequestTracker,
        files: FileWorker,
        frame: Frame,
        *,
        rank: int,
        sequence: int,
        path: Path,
        now: int,
    ) -> None:
        self._tracker = tracker
        self._files = files
        self._path = path
        self._sequence = sequence
        self._file: PartialFile | None = None
        self._created: list[PartialFile] = []
        """The same, as the file worker sees it: it may be created after this has failed."""
        self._todo: deque[_Piece] = deque()  # one per tensor; requests take parts of the first
        self._under_way: set[int] = set()
        self._unwritten = 0
        self._piece_size = FIRST_PIECE
        self.writing = Writing("tensors", "collecting", str(path), at_ns=now)
        self._name = _op_name(None, rank, sequence)
        view = frame.ranks.get(rank)
        if view is None:
            self._fail(Problem(f"rank {rank} is not known", "wait until it is reporting"), now)
            return
        self._host, self._key = view.host, view.key
        self._agent = tracker.agent(view.host)
        op = next((op for op in view.pending if op.sequence == sequence), None)
        self._name = _op_name(op, rank, sequence)
        self._metadata = _metadata(frame, view, op, sequence)
        if view.tensors is not None and _describes(view.tensors, sequence):
            self._prepare(view.tensors, now)
        else:
            request = SummarizeTensors(0, view.key, sequence, devices=True)
            self._under_way.add(self._request(request, self._described, now))

    @property
    def over(self) -> bool:
        return self.writing.state in ("written", "failed")

    def refuse(self, path: Path) -> None:
        """Rejects another file while this one is under way."""
        problem = Problem(f"already saving: {path} was not begun", "repeat it afterwards")
        self.writing = replace(self.writing, problem=problem)

    def give_up(self, problem: Problem, now: int) -> None:
        """Ends without a file."""
        if not self.over:
            self._fail(problem, now)

    def _request(self, request: wire.Request, on_response: OnResponse, now: int) -> int:
        return self._tracker.request(self._host, request, on_response, now, agent=self._agent)

    def _described(self, response: wire.Response, now: int) -> None:
        """Takes the rank's description of the op's tensors."""
        self._under_way.clear()
        if isinstance(response, wire.TensorsResponse) and not response.error:
            self._prepare(response, now)
        else:
            self._fail(Problem.parse(_error_text(response)), now)

    def _prepare(self, response: wire.TensorsResponse, now: int) -> None:
        found = next((op for op in response.ops if op.sequence == self._sequence), None)
        if found is None or not found.tensors:
            why = found.error if found is not None else ""
            self._fail(
                Problem(why or f"{self._name} is not pending any more: nothing to save"), now
            )
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
                problem = f"{entry.name} cannot be saved: safetensors has no {one.dtype}"
                self._fail(Problem(problem), now)
                return
            if one.error or size != one.size:
                why = one.error or f"its {one.size} bytes do not fit its shape"
                self._fail(Problem(f"{entry.name} cannot be read: {why}"), now)
                return
            entries.append(entry)
            if size:
                self._todo.append(_Piece(index, 0, size, total))
            total += size
        self.writing = replace(self.writing, total=total)
        remark = {"remark": found.error} if found.error else {}
        head, created = header(entries, self._metadata | remark), self._created

        def create() -> PartialFile:
            created.append(PartialFile(self._path, head, total))
            return created[0]

        self._files.submit(create, self._file_created, self._fail)

    def _file_created(self, file: PartialFile, now: int) -> None:
        if not self.over:
            self._file = file
            self._continue(now)

    def _continue(self, now: int) -> None:
        """Requests the next pieces, or finishes the file."""
        while self._todo and len(self._under_way) + self._unwritten < WINDOW:
            rest = self._todo.popleft()
            piece = replace(rest, size=min(rest.size, self._piece_size))
            if piece.size < rest.size:
                self._todo.appendleft(rest.after(piece.size))
            request = ReadTensor(
                0, self._key, piece.offset, piece.size, self._sequence, piece.index
            )
            received = partial(self._received, piece, now)
            self._under_way.add(self._request(request, received, now))
        if not self._todo and not self._under_way and not self._unwritten:
            assert self._file is not None
            self.writing = replace(self.writing, state="writing", at_ns=now)
            finish = partial(write_unused, self._path, self._file.finish)
            self._files.submit(finish, self._finished, self._fail)

    def _received(self, piece: _Piece, sent_ns: int, response: wire.Response, now: int) -> None:
        self._under_way.discard(response.id)
        if self.over or self._file is None:
            return
        if not isinstance(response, wire.Piece) or response.error:
            self._fail(Problem(f"{self._name}: {_error_text(response)}; nothing was written"), now)
            return
        size = len(response.data)
        matches = (response.key, response.offset) == (self._key, piece.offset)
        if not matches or size != response.size or not 0 < size <= piece.size:
            text = f"{self._name}: the response does not match the request; nothing was written"
            self._fail(Problem(text, "try again"), now)
            return
        if now - sent_ns < QUICK_NS:
            self._piece_size = min(2 * self._piece_size, LARGEST_PIECE)
        else:
            self._piece_size = max(self._piece_size // 2, SMALLEST_PIECE)
        if size < piece.size:
            self._todo.appendleft(piece.after(size))
        self._unwritten += 1
        write = partial(self._file.write, response.data, piece.start + piece.offset)
        self._files.submit(write, partial(self._written, size), self._fail)

    def _written(self, size: int, _: None, now: int) -> None:
        if not self.over:
            self._unwritten -= 1
            self.writing = replace(self.writing, done=self.writing.done + size)
            self._continue(now)

    def _finished(self, put: tuple[Path, int], now: int) -> None:
        path, size = put
        self.writing = replace(
            self.writing, state="written", path=str(path), size=size, problem=None, at_ns=now
        )

    def _fail(self, problem: Problem, now: int) -> None:
        """Ends without a file."""
        if self.over:
            return
        self.writing = replace(self.writing, state="failed", problem=problem, at_ns=now)
        for number in self._under_way:
            self._tracker.drop(number)
        self._file = None
        self._files.submit_silently(partial(_discard, self._created))


def _discard(created: list[PartialFile]) -> None:
    for file in created:
        file.discard()


def _op_name(op: wire.Op | None, rank: int, sequence: int) -> str:
    if op is None or op.signature is None:
        return f"op {sequence} of rank {rank}"
    return f"{op.signature.kind} #{op.number} of rank {rank}"


def _describes(response: wire.TensorsResponse, sequence: int) -> bool:
    return any(op.sequence == sequence and op.tensors for op in response.ops)


def _error_text(response: wire.Response) -> str:
    match response:
        case wire.Error(text=text):
            return text
        case wire.TensorsResponse(error=error, help=text) | wire.Piece(error=error, help=text):
            return text or error
        case _:
            return "the agent sent a response of another kind"


def _metadata(frame: Frame, view: JudgedRank, op: wire.Op | None, sequence: int) -> dict[str, str]:
    """Texts about the file in its header."""
    taken_at = datetime.fromtimestamp(frame.wall_ns / 1e9, tz=timezone.utc)
    texts = {
        "written_by": "frtop",
        "job": job_place(frame.job) if frame.job is not None else "",
        "rank": str(view.rank),
        "host": view.host,
        "sequence": str(sequence),
        "time": taken_at.isoformat(timespec="milliseconds"),
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
