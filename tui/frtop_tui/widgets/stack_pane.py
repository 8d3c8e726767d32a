"""The call stacks of one rank: main thread first, all others after, idle ones too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from textual.binding import Binding, BindingType

from frtop_probe import wire
from frtop_tui.diagnosis.judged import Frame, JudgedRank
from frtop_tui.job.stack_frames import frame_line, is_user_code, user_frame_index
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.spans import Line, Span, fit, join, plain, tail, wrap
from frtop_tui.widgets.wording import calm

YOURS: Final[Span] = ("  ◀ yours", "yours")


def thread_line(thread: wire.ThreadStack, main_ident: int, look: wire.Snapshot) -> Line:
    """Name and state; a waiting thread reads `idle`, which is not the same as harmless."""
    name = "MainThread" if thread.ident == main_ident else thread.name or "thread"
    # The kernel's side of the same thread: what it sleeps in.
    native = next((process for process in look.threads if process.pid == thread.tid), None)
    kernel = f"{native.state} {native.wchan}".strip() if native is not None else ""
    return join(
        (
            plain(name, "strong"),
            plain("active" if thread.active else "idle", "" if thread.active else "dim"),
            plain("holds the GIL" if thread.owns_gil else "", "warn"),
            plain(kernel, "dim"),
            plain(f"tid {thread.tid}", "dim"),
        )
    )


def frame_lines(
    frames: Sequence[wire.TraceFrame], width: int, *, folded: bool = False
) -> list[Line]:
    """Innermost first, the user's own line marked, with its text where it is known.

    `folded` leaves out what lies between the innermost frame and the user's own: what a
    rank is in and who called it stand side by side.
    """
    rows: list[Line] = []
    mine = user_frame_index(frames)
    hidden = range(1, mine) if folded and mine is not None and mine > 2 else range(0)
    names = min(30, max(16, width // 3), max((len(f.function) for f in frames), default=16))
    for index, frame in enumerate(frames):
        if index in hidden:
            if index == hidden.start:
                rows.append(plain(f"  … {len(hidden)} frames, enter unfolds", "dim"))
            continue
        is_mine = index == mine
        tone = "yours" if is_mine else ""
        where = tail(frame_line(frame), max(8, width - names - 3 - (10 if is_mine else 0)))
        row: Line = (("  " + fit(frame.function, names) + " ", tone), (where, tone or "dim"))
        rows.append((*row, YOURS) if is_mine else row)
        # The text of torch's lines would push one's own out of sight.
        if frame.source and is_user_code(frame):
            rows.append(plain("    " + fit(frame.source.strip(), max(8, width - 4)).rstrip(), tone))
    return rows or [plain("  no Python frames", "dim")]


def dump_lines(
    dump: wire.StackDump, main_ident: int, look: wire.Snapshot, width: int, *, folded: bool
) -> list[Line]:
    """One process: its threads, or the sentence that says why there are none."""
    if dump.error:
        return wrap(dump.help or f"no stack: {dump.error}", width, "warn")
    rows: list[Line] = []
    for thread in sorted(dump.threads, key=lambda thread: thread.ident != main_ident):
        rows.append(thread_line(thread, main_ident, look))
        rows += frame_lines(thread.frames, width, folded=folded)
    return rows or [plain("no threads with Python frames", "dim")]


def stack_lines(rank: JudgedRank, width: int, *, folded: bool = False) -> list[Line]:
    """The exception that ended the rank first, then the last dump of all its processes."""
    rows: list[Line] = []
    if rank.exception is not None:
        rows.append(plain(f"raised in {rank.exception.thread}", "bad"))
        rows += frame_lines(rank.exception.frames, width, folded=folded)
    look = rank.snapshot
    if rank.exit_info is not None:
        if look is None or not any(thread.frames for thread in rank.threads):
            return rows or [plain("the process is gone: no stack to take", "dim")]
        rows.append(plain("the last stack seen before its end", "dim"))
    elif look is None or not look.dumps:
        return [*rows, plain("no stack yet; b asks for one", "dim")]
    for dump in look.dumps:
        if dump.pid != rank.identity.pid:
            child = next((p for p in look.processes if p.pid == dump.pid), None)
            rows.append(plain(f"child {dump.pid} {child.name if child else ''}".rstrip(), "strong"))
        rows += dump_lines(dump, rank.identity.main_ident, look, width, folded=folded)
    return rows


class StackPane(LineView):
    """Stacks of the rank on the screen; folded where the user's own frame has no room."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "enter,space", "turn", "unfold", tooltip="all frames, or fold them", id="stack.open"
        ),
    ]

    def __init__(self) -> None:
        super().__init__(id="stack", classes="pane")
        self.entitle("stack")
        self.rank: JudgedRank | None = None
        self.unfolded = False
        self.foldable = False

    def show(self, frame: Frame, rank: JudgedRank) -> None:
        if self.rank is None or self.rank.rank != rank.rank:
            self.unfolded = False
        self.rank = rank
        look = rank.snapshot
        if look is None or not look.dumps:
            self.entitle("stack")
        else:
            taken = rank.stacks_taken_ns or look.at_ns
            # The line to look at may be out of sight below a dozen frames of torch.
            stack = rank.main_stack
            mine = user_frame_index(stack.frames) if stack is not None else None
            where = (
                f", yours: {frame_line(stack.frames[mine])}" if stack and mine is not None else ""
            )
            self.entitle(f"stack, {calm(rank.age_s(taken, frame.now_ns))} old{where}")
        self.redraw()

    def content(self, width: int) -> Sequence[Line]:
        if self.rank is None:
            return ()
        rows = stack_lines(self.rank, width)
        height = self.scrollable_content_region.height
        mine = next((y for y, row in enumerate(rows) if row[-1] == YOURS), 0)
        self._foldable(mine >= height)
        if self.unfolded or not self.foldable:
            return rows
        return stack_lines(self.rank, width, folded=True)

    def _foldable(self, foldable: bool) -> None:
        if foldable != self.foldable:
            self.foldable = foldable
            self.refresh_bindings()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that do nothing here are not shown."""
        return self.foldable if action == "turn" else super().check_action(action, parameters)

    def action_turn(self) -> None:
        self.unfolded = not self.unfolded
        self.scroll_to(y=0, animate=False)
        self.redraw()
