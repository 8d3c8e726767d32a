"""One rank's recorder: its parts, and the order in which they start and stop."""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from frtop_probe.recorder import fetches, identity, launch, steps
from frtop_probe.recorder.exceptions import Exceptions
from frtop_probe.recorder.groups import Groups
from frtop_probe.recorder.hook import Hook, Signatures, TorchTooOldError, hide_from_dynamo
from frtop_probe.recorder.pending import Pending
from frtop_probe.recorder.responder import Responder
from frtop_probe.recorder.saying import say
from frtop_probe.recorder.sites import Sites
from frtop_probe.recorder.tensors import Reply, Tensors
from frtop_probe.recorder.thread import Thread
from frtop_probe.recorder.writer import Writer
from frtop_probe.ring import contact, layout
from frtop_probe.ring.folder import FolderError, claim
from frtop_probe.ring.layout import Cell, Event, Flag, Side, State

AGENT_EVERY_S: Final = 5.0
MAX_DECODED: Final = 1024
"""Reduce ops kept for the next tick of the thread, the newest: some 4,000 a second are known.
Each takes 2.5 µs of the GIL, beside the 10 that the hook takes for the op itself."""
DECODING_S: Final = 0.05
"""So long at most in one tick, what comes meanwhile too: each gives the GIL away and may have
to wait to get it back, and the next beat must not be late."""
PREMUL: Final = 9
"""Torch numbers reduce ops from 0 (sum) to 8 (premul_sum), a slot from 1."""


class Recorder:
    """Begun with a ring of its own; `attach` adds torch once it is there."""

    def __init__(self, writer: Writer, home: Path) -> None:
        self.writer = writer
        self.home = home
        self.pid = os.getpid()
        self.switch = [False]
        self.reduces: deque[tuple[int, Any]] = deque(maxlen=MAX_DECODED)
        self.pending = Pending(writer)
        self.signatures = Signatures(writer)
        self.steps = steps.Steps(writer)
        self.fetches = fetches.Fetches(writer)
        self.exceptions = Exceptions(writer)
        self.groups: Groups
        self.sites: Sites
        self.hook: Hook | None = None
        self.tensors: Tensors | None = None
        self.who = identity.from_environment()
        self._site: Callable[..., int] | None = None
        self._pseudo_numbers: dict[str, itertools.count[int]] = {}
        self._thread: Thread | None = None
        self._next_agent = 0.0
        self._spoken: set[str] = set()
        self.introduce(self.who)

    # -- life

    def begin(self) -> None:
        self.writer.cells[Cell.STATE] = State.ON if self.hook else State.STARTING
        self.writer.cells[Cell.BEAT_NS] = time.monotonic_ns()
        responder = self._responder()
        thread = Thread(self._tick, self.fail, responder)
        try:
            thread.start()
        except BaseException:  # where processes are counted; then there is none to join
            if responder is not None:
                responder.close()
                responder.remove()
            raise
        self._thread = thread

    def attach(self, torch: ModuleType, c10d: ModuleType, parents: Recorder | None = None) -> None:
        """Installs the kernels, or says once why this torch will not do.

        In a forked child those of its parent's recorder, long off, make room first.
        """
        if self.hook is not None:
            return
        if parents is not None and parents.hook is not None:
            parents.hook.remove()
            parents.hook = None
        self.introduce(replace(self.who, torch=str(torch.__version__)))
        self.groups = Groups(self.writer, c10d)
        self.sites = Sites(self.writer, str(Path(str(torch.__file__)).parent))
        self._site = self.sites.finder()
        try:
            self.hook = Hook(self, self.signatures, torch)
        except TorchTooOldError as error:
            self.turn_off(f"{error}: recorder off, it needs torch 2.8 or newer. Training goes on")
            return
        for function in (self._site, self.sites.intern, self.pending.finish):
            hide_from_dynamo(torch, getattr(function, "__func__", function))
        self.groups.adopt_existing()
        self.tensors = Tensors(self.pending, torch)
        self.switch[0] = True
        self.writer.cells[Cell.STATE] = State.ON

    def resume(self) -> None:
        """`start()` after `stop()`: what went by meanwhile makes all numbers relative."""
        if self._thread is not None:
            return
        if self.hook is not None:
            self.groups.loosen()
            self.switch[0] = True
        self.begin()

    def stop(self) -> None:
        """Switches off and joins the thread; kernels and ring stay."""
        self.switch[0] = False
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.stop()
            self.pending.let_go()
            self.reduces.clear()
        if self.writer.cells[Cell.STATE] != State.OFF:
            self.writer.cells[Cell.STATE] = State.STOPPED

    def cut_off(self) -> None:
        """In a forked child: the ring is the parent's, the thread is not here."""
        self.switch[0] = False
        self.exceptions.writer = None
        if self.tensors is not None:
            self.tensors.close()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.cut_off()

    @property
    def running(self) -> bool:
        return self._thread is not None and self.pid == os.getpid()

    # -- failing

    def fail(self, error: BaseException) -> None:
        """An exception of our own: off, once, visibly. Never raises."""
        try:
            self.writer.cells[Cell.HOOK_ERRORS] += 1
            where = error.__traceback__
            while where is not None and where.tb_next is not None:
                where = where.tb_next
            place = ""
            if where is not None:
                file = Path(where.tb_frame.f_code.co_filename).name
                place = f" at {file}:{where.tb_lineno}"
            self.turn_off(
                f"recorder switched itself off ({type(error).__name__}: {error}{place}); "
                "training goes on; please report this"
            )
        except Exception:  # noqa: BLE001 - the last line of the boundary
            self.switch[0] = False

    def turn_off(self, why: str) -> None:
        self.switch[0] = False
        self.writer.cells[Cell.STATE] = State.OFF
        if self._note_once(why):
            say(why)

    def _note_once(self, text: str) -> bool:
        """Whether this is the first time that it is said."""
        if text in self._spoken:
            return False
        self._spoken.add(text)
        self.writer.note(text)
        return True

    # -- what happens beside ops

    def introduce(self, who: identity.Who) -> None:
        self.who = who
        self.writer.enter(Side.IDENTITY, 0, who.payload())
        self.writer.cells[Cell.RANK] = who.rank

    def begin_pseudo(self, kind: str, members: str = "") -> int:
        """A slot for something that is no op but that a rank can hang in."""
        writer = self.writer
        now = time.monotonic_ns()
        number = next(self._pseudo_numbers.setdefault(kind, itertools.count(1)))
        signature = self.signatures.pseudo(kind, members)
        site = self._site(sys._getframe().f_back) if self._site else 0  # noqa: SLF001
        sequence = writer.next_sequence()
        self.pending.open[sequence] = layout.NO_GROUP
        layout.SLOT.pack_into(
            writer.map,
            writer.shape.slots_offset + sequence % writer.shape.slots * layout.SLOT_SIZE,
            *(sequence, now, 0, number, threading.get_ident(), layout.NO_GROUP, signature),
            *(site, 0, Flag.SYNC, 0, Event.PSEUDO, 0, sequence),
        )
        writer.reach(sequence)
        return sequence

    def end_pseudo(self, sequence: int, failed: bool) -> None:
        entry = (None, sequence, 0, 0, layout.NO_GROUP, False, None, None)
        self.pending.finish(entry, time.monotonic_ns(), failed)

    def default_group_made(self, c10d: ModuleType) -> None:
        who = identity.with_default_group(self.who, c10d)
        if who != self.who:
            self.introduce(who)

    def entered(self, arguments: dict[str, Any]) -> None:
        """`init_process_group` was called: what the launcher and the call say now."""
        who = identity.with_arguments(identity.from_environment(), arguments)
        self.introduce(replace(who, nonce=self.who.nonce, torch=self.who.torch))

    def group_ending(self, process_group: Any | None) -> None:
        """Handles must go first: they would keep the group's connections open."""
        if process_group is None:
            self.pending.let_go()
            return
        group = self.groups.known.get(id(process_group))
        if group is not None:
            self.pending.let_go(group.id)

    # -- the thread

    def _tick(self) -> None:
        cells = self.writer.cells
        cells[Cell.BEAT_NS] = time.monotonic_ns()
        cells[Cell.BEATS] += 1
        self.writer.name_thread(threading.get_native_id())
        self._decode()
        self.pending.reap()
        self.pending.advance()
        self._see_to_agent()

    def _decode(self) -> None:
        """Reduce ops, too slow to decode in the hook, into the slots they belong to.

        Oldest first, so that what was issued in a row becomes known in a row.
        """
        writer = self.writer
        shape, words = writer.shape, writer.words
        until = time.monotonic() + DECODING_S
        while self.reduces and time.monotonic() < until:
            try:
                sequence, reduce = self.reduces.popleft()
            except IndexError:  # `stop` was faster
                return
            number = int(reduce.op()) + 1
            if not 0 < number <= PREMUL:
                number = len(layout.REDUCE_OPS) - 1
            at = shape.slots_offset + sequence % shape.slots * layout.SLOT_SIZE
            if words[at // 8] == sequence:
                writer.map[at + layout.SLOT_REDUCE] = number

    def _see_to_agent(self) -> None:
        now = time.monotonic()
        if now < self._next_agent:
            return
        self._next_agent = now + AGENT_EVERY_S
        try:
            trouble = launch.ensure_agent(claim(self.home))
        except (OSError, FolderError) as error:
            trouble = f"no agent could be started: {error}; run `frtop agent` on this host"
        if trouble:
            self._note_once(trouble)

    # -- answering

    def _responder(self) -> Responder | None:
        try:
            return Responder(contact.socket_of(self.writer.path), self._answer)
        except OSError as error:
            folder = self.writer.path.parent
            self._note_once(
                f"tensors cannot be looked into: no socket in {folder} ({error.strerror}); "
                "set FRTOP_DIR to another folder"
            )
            return None

    def _answer(self, request: Mapping[str, Any], go_on: Callable[[], bool]) -> Reply:
        if self.tensors is None:  # no process group yet, so no ops
            return {"error": "none"}, b""
        return self.tensors.answer(request, go_on)
