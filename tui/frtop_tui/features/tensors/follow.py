"""Writes the tensors of a pending op to a file, piece by piece, one file at a time."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from frtop_probe import wire
from frtop_probe.features.tensors.messages import ReadTensor, SummarizeTensors
from frtop_tui.connect.asking import why_not_ask
from frtop_tui.connect.file_worker import FileWorker
from frtop_tui.connect.followers import Follower, Order
from frtop_tui.connect.pieces import PartWanted, Pieces
from frtop_tui.connect.request_tracker import RequestTracker
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.features.tensors.safetensors import Entry, NoSuchDtype, PartialFile, header
from frtop_tui.files.output_path import write_unused
from frtop_tui.job.model import Problem, Writing
from frtop_tui.job.naming import group_label, job_place, same_job

WINDOW: Final = 2


class TensorDownload:
    """Writes one file, from the source's thread; `writing` says how far it is.

    Callbacks that arrive after its end change nothing.
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
        """The same file as the file worker sees it: it may be created after this has failed."""
        self._sizes: list[int] = []  # of the tensors, as they follow each other in the file
        self._pieces: Pieces | None = None
        self._asked = 0
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
            self._asked = tracker.request(
                view.host, request, self._described, now, agent=self._agent
            )

    @property
    def over(self) -> bool:
        return self.writing.state in ("written", "failed")

    def refuse(self, path: Path) -> None:
        """Rejects another file while this one is under way."""
        problem = Problem(f"already saving: {path} was not started", "try again afterwards")
        self.writing = replace(self.writing, problem=problem)

    def give_up(self, problem: Problem, now: int) -> None:
        """Ends without a file."""
        if not self.over:
            self._fail(problem, now)

    def _described(self, response: wire.Response, now: int) -> None:
        """Takes the rank's description of the op's tensors."""
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
        for one in found.tensors:
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
            self._sizes.append(size)
            total += size
        self.writing = replace(self.writing, total=total)
        remark = {"remark": found.error} if found.error else {}
        head, created = header(entries, self._metadata | remark), self._created

        def create() -> PartialFile:
            created.append(PartialFile(self._path, head, total))
            return created[0]

        self._files.submit(create, self._file_created, self._fail)

    def _file_created(self, file: PartialFile, now: int) -> None:
        if self.over:
            return
        start, parts = 0, []
        for index, size in enumerate(self._sizes):
            ask = partial(self._piece_request, index)
            parts.append(PartWanted(size, ask, partial(_put, file, start)))
            start += size
        self._file = file
        self._pieces = Pieces(
            self, self._tracker, self._files, parts,
            host=self._host, agent=self._agent, window=WINDOW,
        )  # fmt: skip
        self._pieces.go_on(now)

    def _piece_request(self, index: int, offset: int, size: int) -> ReadTensor:
        return ReadTensor(0, self._key, offset, size, self._sequence, index)

    def piece_written(self, size: int, now: int) -> None:  # noqa: ARG002
        self.writing = replace(self.writing, done=self.writing.done + size)

    def pieces_complete(self, now: int) -> None:
        if not self.over and self._file is not None:
            self.writing = replace(self.writing, state="writing", at_ns=now)
            finish = partial(write_unused, self._path, self._file.finish)
            self._files.submit(finish, self._finished, self._fail)

    def pieces_refused(self, text: str, now: int) -> None:
        self._fail(Problem(f"{self._name}: {text}; nothing was written", "try again"), now)

    def pieces_unwritten(self, problem: Problem, now: int) -> None:
        self._fail(problem, now)

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
        self._tracker.drop(self._asked)
        if self._pieces is not None:
            self._pieces.stop()
        self._file = None
        self._files.submit_silently(partial(_discard, self._created))


def _put(file: PartialFile, start: int, data: bytes, offset: int) -> None:
    file.write(data, start + offset)


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
        case wire.TensorsResponse(error=error, help=text):
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


_EMPTY: Final = Frame(0, 0)


class SaveOrder(Struct, Order, frozen=True):
    """Write the tensors of one pending op as safetensors: `Frame.writings`."""

    rank: int
    sequence: int
    path: Path


class TensorDownloads(Follower):
    """The last file is shown as long as its job is."""

    name = "tensors"
    orders = (SaveOrder,)

    def __init__(self, tracker: RequestTracker) -> None:
        super().__init__(tracker)
        self._files = FileWorker()
        self._download: TensorDownload | None = None
        self._shown: wire.Job | None = None

    @property
    def writings(self) -> tuple[Writing, ...]:
        return () if self._download is None else (self._download.writing,)

    def take(self, order: SaveOrder, frame: Frame | None, now: int) -> None:
        if self._download is not None and not self._download.over:
            self._download.refuse(order.path)
            return
        frame = frame if frame is not None else _EMPTY
        self._download = TensorDownload(
            self._tracker,
            self._files,
            frame,
            rank=order.rank,
            sequence=order.sequence,
            path=order.path,
            now=now,
        )
        view = frame.ranks.get(order.rank)
        reason, text = why_not_ask(frame, view) if view is not None else ("", "")
        if reason:
            self._download.give_up(Problem.parse(text), now)

    def update(self, frame: Frame | None, now: int) -> None:
        self._files.update(now)
        if frame is None or frame.job is None:
            return
        other = self._shown is not None and not same_job(frame.job, self._shown)
        if other and self._download is not None and self._download.over:
            self._download = None
        self._shown = frame.job

    def close(self, now: int) -> None:
        """Leaves no partial file; lets the last write end."""
        if self._download is not None and self._download.writing.state == "collecting":
            self._download.give_up(Problem("frtop was closed"), now)
        self._files.close()


FOLLOWERS: Final = (TensorDownloads,)
