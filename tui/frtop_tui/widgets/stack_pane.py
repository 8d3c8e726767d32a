"""The call stacks of one rank: the working thread first, then all other threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from textual.binding import Binding, BindingType

from frtop_probe import wire
from frtop_tui.diagnosis.evidence.working_thread import working_stack
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.job.native_stacks import group_alike, held_for
from frtop_tui.job.stack_frames import frame_line, shown_frames, user_frame_index
from frtop_tui.job.units import live_duration
from frtop_tui.text.merged_stacks import why_no_thread
from frtop_tui.text.stacks import frame_cells, thread_parts
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.spans import Line, Span, fit, join, plain, tail, wrap

YOURS: Final[Span] = ("  ◀ yours", "yours")
NO_STACK: Final = "no stack: what was recorded has none of this rank"
_NAME: Final = 30
_NATIVE_NAME: Final = 56
"""Most cells of a function's name."""


def frame_lines(
    frames: Sequence[wire.TraceFrame], width: int, *, folded: bool = False, native: bool = False
) -> list[Line]:
    """Frames innermost first; the user's own line is marked, with its source.

    `folded` hides the frames between the innermost and the user's own. `native` names are long:
    they get more room, and keep their end.
    """
    cells = frame_cells(frames)
    mine = next((index for index, cell in enumerate(cells) if cell.is_mine), 0)
    hidden = range(1, mine) if folded and mine > 2 else range(0)
    least, most = (width * 3 // 5, _NATIVE_NAME) if native else (width // 3, _NAME)
    longest = max((len(cell.function) for cell in cells), default=16)
    names = min(most, max(16, least), longest)
    rows: list[Line] = []
    for index, (mark, function, place, source, is_mine) in enumerate(cells):
        if index in hidden:
            if index == hidden.start:
                rows.append(plain(f"  … {len(hidden)} frames, enter unfolds", "dim"))
            continue
        tone = "yours" if is_mine else ""
        name = fit(tail(function, names) if native else function, names)
        where = tail(place, max(8, width - names - 3 - (10 if is_mine else 0)))
        row: Line = ((f"{mark} ", "key"), (f"{name} ", tone), (where, tone or "dim"))
        rows.append((*row, YOURS) if is_mine else row)
        if source and not native:
            rows.append(plain("    " + fit(source, max(8, width - 4)).rstrip(), tone))
    return rows or [plain("  no frames" if native else "  no Python frames", "dim")]


def dump_lines(
    dump: wire.StackDump,
    main_ident: int,
    snapshot: wire.Snapshot,
    width: int,
    *,
    folded: bool,
    working_ident: int = 0,
) -> list[Line]:
    """The threads of one process, the working one first, or why they could not be read."""
    if dump.error:
        return wrap(dump.help or f"no stack: {dump.error}", width, "warn")
    rows: list[Line] = []
    for thread in sorted(
        dump.threads, key=lambda thread: thread.ident != (working_ident or main_ident)
    ):
        name = "MainThread" if thread.ident == main_ident else ""
        seen = next((process for process in snapshot.threads if process.pid == thread.tid), None)
        kernel = f"{seen.state} {seen.wchan}".strip() if seen is not None else ""
        rows.append(join(thread_parts(thread, name=name, kernel=kernel)))
        rows += frame_lines(shown_frames(thread.frames), width, folded=folded)
    return rows or [plain(why_no_thread(dump), "dim")]


def stack_lines(
    rank: JudgedRank, width: int, *, folded: bool = False, live: bool = True
) -> list[Line]:
    """The rank's uncaught exception first, then the last stack dump of its processes."""
    rows: list[Line] = []
    if rank.exception is not None:
        rows.append(plain(f"raised in {rank.exception.thread}", "bad"))
        rows += frame_lines(shown_frames(rank.exception.frames), width, folded=folded)
    snapshot = rank.snapshot
    if rank.exit_info is not None:
        if snapshot is None or not any(thread.frames for thread in rank.threads):
            return rows or [plain("its process has ended: no stack", "dim")]
        rows.append(plain("last stack before its process ended", "dim"))
    elif snapshot is None or not snapshot.dumps:
        return [*rows, plain("no stack yet; b takes one" if live else NO_STACK, "dim")]
    for dump in snapshot.dumps:
        if dump.pid != rank.identity.pid:
            child = next((p for p in snapshot.processes if p.pid == dump.pid), None)
            rows.append(plain(f"child {dump.pid} {child.name if child else ''}".rstrip(), "strong"))
        working = working_stack(rank) if dump.pid == rank.identity.pid else None
        rows += dump_lines(
            dump,
            rank.identity.main_ident,
            snapshot,
            width,
            folded=folded,
            working_ident=working.ident if working is not None else 0,
        )
    return rows


def native_title(rank: JudgedRank, now_ns: int) -> str:
    """When the stacks were taken, and how long the rank stood still."""
    taken = rank.native
    if taken is None or not taken.at_ns:
        return "native stacks"
    age = live_duration(rank.age_s(taken.at_ns, now_ns))
    return ", ".join(filter(None, (f"native stacks, {age} old", held_for(taken))))


def native_lines(rank: JudgedRank, width: int, *, waiting: bool = False) -> list[Line]:
    """All threads, the main thread first, equal stacks once; `waiting`: they are being taken."""
    taken = rank.native
    if waiting:
        return wrap(f"taking them: rank {rank.rank} stands still meanwhile", width, "warn")
    if taken is None:
        return [plain("no native stacks yet; N takes them", "dim")]
    rows = wrap(taken.note, width, "bad") if taken.note else []
    if not taken.dump.threads:
        return [*rows, *wrap(why_no_thread(taken.dump), width, "warn")]
    for alike in group_alike(taken.dump.threads):
        rows.append(join(thread_parts(alike.first, alike.count)))
        rows += frame_lines(alike.frames, width, native=True)
        if alike.hidden:
            rows.append(plain(f"  … the interpreter's start: {alike.hidden}", "dim"))
    return rows


class StackPane(LineView):
    """The rank's stacks, folded if the user's own frame would be out of sight.

    With `native`, those with C and C++ frames, which are taken on request only. With `names_rank`,
    the title names the rank.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "enter,space",
            "toggle_fold",
            "unfold",
            tooltip="show or hide all frames",
            id="stack.open",
        ),
    ]

    def __init__(self, *, names_rank: bool = False) -> None:
        super().__init__(id="stack", classes="pane")
        self.entitle("stack")
        self.names_rank = names_rank
        self.rank: JudgedRank | None = None
        self.unfolded = False
        self.foldable = False
        self.native = self.waiting = False
        self.live = True

    def switch(self, *, native: bool, waiting: bool = False) -> None:
        """Shows native or Python stacks; `waiting`: they are being taken."""
        if native != self.native:
            self.scroll_to(y=0, animate=False)
        self.native, self.waiting = native, waiting

    def show(self, frame: Frame, rank: JudgedRank) -> None:
        if self.rank is None or self.rank.rank != rank.rank:
            self.unfolded = False
        self.rank, self.live = rank, frame.recorded is None
        snapshot = rank.snapshot
        name = f"rank {rank.rank}: " if self.names_rank else ""
        if self.native:
            self.entitle(native_title(rank, frame.now_ns))
        elif snapshot is None or not any(dump.threads for dump in snapshot.dumps):
            self.entitle(f"{name}stack")
        else:
            taken = rank.stacks_taken_ns or snapshot.at_ns
            # The user's own line may be out of sight below frames of torch.
            stack = working_stack(rank)
            mine = user_frame_index(stack.frames) if stack is not None else None
            where = (
                f", yours: {frame_line(stack.frames[mine])}" if stack and mine is not None else ""
            )
            self.entitle(
                f"{name}stack, {live_duration(rank.age_s(taken, frame.now_ns))} old{where}"
            )
        self.redraw()

    def content(self, width: int) -> Sequence[Line]:
        if self.rank is None:
            return ()
        if self.native:
            self._set_foldable(False)
            return native_lines(self.rank, width, waiting=self.waiting)
        rows = stack_lines(self.rank, width, live=self.live)
        height = self.scrollable_content_region.height
        mine = next((y for y, row in enumerate(rows) if row[-1] == YOURS), 0)
        self._set_foldable(mine >= height)
        if self.unfolded or not self.foldable:
            return rows
        return stack_lines(self.rank, width, folded=True, live=self.live)

    def _set_foldable(self, foldable: bool) -> None:
        if foldable != self.foldable:
            self.foldable = foldable
            self.refresh_bindings()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Shows `enter` only if there is something to fold."""
        return (
            self.foldable if action == "toggle_fold" else super().check_action(action, parameters)
        )

    def action_toggle_fold(self) -> None:
        self.unfolded = not self.unfolded
        self.scroll_to(y=0, animate=False)
        self.redraw()
