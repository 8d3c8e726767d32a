"""When the recorder starts and ends in this process: by hand, by wrapper, or not at all.

Everything here is idempotent and safe to call before torch is imported. The recorder
itself begins with the first process group, or with `start()` in a program's own process.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

from frtop_probe.recorder import fetches, membership, steps
from frtop_probe.recorder.arrival import when_imported
from frtop_probe.recorder.boundary import of_handler, shield
from frtop_probe.recorder.recorder import Recorder
from frtop_probe.recorder.saying import say
from frtop_probe.recorder.writer import NoRoom, create
from frtop_probe.ring.folder import FolderError, candidates

C10D: Final = "torch.distributed.distributed_c10d"
OPTIMIZERS: Final = "torch.optim.optimizer"
LOADERS: Final = "torch.utils.data.dataloader"


class Life:
    """The process's one recorder, if it has one, and what listens on its behalf."""

    def __init__(self) -> None:
        self.recorder: Recorder | None = None
        self.wanted = True
        self._lock = threading.RLock()
        self._prepared = False
        self._refused = False
        self._watched: set[str] = set()
        self._parents: Recorder | None = None

    # -- called from outside

    def prepare(self, c10d: ModuleType | None = None) -> None:
        """Waits for `torch.distributed`; cheap, and all that a prepared program does.

        Whoever has waited already passes `distributed_c10d`, just executed.
        """
        if self._prepared or os.environ.get("FRTOP_OFF") == "1":
            return
        self._prepared = True
        atexit.register(self._at_exit)
        os.register_at_fork(after_in_child=self._after_fork)
        if c10d is not None:
            self._anyway(self._wrap)(c10d)
        else:
            when_imported(C10D, self._anyway(self._wrap))

    def start(self) -> None:
        """Records from now on, or from the first process group on if this is no rank yet."""
        self._anyway(self._start)()

    def _start(self) -> None:
        if os.environ.get("FRTOP_OFF") == "1":
            return
        self.wanted = True
        self.prepare()
        c10d: Any = sys.modules.get(C10D)
        grouped = c10d is not None and c10d.is_initialized()
        if grouped or _launched():
            self._begin()
        if grouped:
            self._attach(c10d)

    def stop(self) -> None:
        self.wanted = False
        if self.recorder is not None and self.recorder.running:
            self.recorder.stop()

    def step(self, number: int | None) -> None:
        if self._active():
            self._recorder.steps.stepped(number)

    def annotate(self, text: str) -> None:
        if self._active():
            self._recorder.writer.note(text)

    # -- membership.Listener

    def entering(self, arguments: dict[str, Any]) -> None:
        self._anyway(self._entering)(arguments)

    def begin(self, kind: str, arguments: dict[str, Any]) -> int:
        try:
            if not self._on():
                return 0
            members = membership.awaited(kind, arguments, sys.modules[C10D])
            return self._recorder.begin_pseudo(kind, members)
        except Exception as error:
            if of_handler(error):
                raise
            self._failed(error)
            return 0

    def end(self, kind: str, token: int, failed: bool) -> None:
        if token:
            self._shield(self._ended)(kind, token, failed)

    def registered(self, name: str, process_group: Any) -> None:
        if self._on():
            self._shield(self._recorder.groups.register)(name, process_group)

    def ending(self, process_group: Any | None) -> None:
        if self._on():
            self._shield(self._recorder.group_ending)(_one(process_group))

    def ended(self, process_group: Any | None) -> None:
        if self._on():
            self._shield(self._recorder.groups.end)(_one(process_group))

    # -- inside

    def _entering(self, arguments: dict[str, Any]) -> None:
        if not self.wanted:
            return
        self._begin()
        if self.recorder is not None:
            self.recorder.entered(arguments)
            self._attach(sys.modules[C10D])

    def _ended(self, kind: str, token: int, failed: bool) -> None:
        recorder = self._recorder
        recorder.end_pseudo(token, failed)
        recorder.groups.describe_all()
        if kind == membership.ENTRY and not failed:
            recorder.default_group_made(sys.modules[C10D])

    def _begin(self) -> None:
        with self._lock:
            if self._refused:
                return
            if self.recorder is not None:
                self.recorder.resume()
                return
            try:
                folders = candidates()
                # An agent serves all folders of its user, and is looked for in the first,
                # even when there was no room for the ring in it.
                self.recorder = Recorder(create(folders), folders[0])
            except (FolderError, NoRoom) as error:
                self._refused = True
                say(f"recorder off: {error}. Training goes on")
                return
            self.recorder.exceptions.install(self._shield)
            self.recorder.begin()

    def _attach(self, c10d: Any) -> None:
        with self._lock:
            recorder = self.recorder
            if recorder is None or recorder.hook is not None:
                return
            parents, self._parents = self._parents, None
            recorder.attach(sys.modules["torch"], c10d, parents)
            if recorder.hook is None:
                return  # it has said why
            when_imported(OPTIMIZERS, self._anyway(self._watch_optimizers))
            when_imported(LOADERS, self._anyway(self._watch_loaders))
            if c10d.is_initialized():
                recorder.default_group_made(c10d)

    def _wrap(self, c10d: ModuleType) -> None:
        membership.wrap(c10d, self, sys.modules.get("torch.distributed"))

    # The recorder is looked up at each call: a forked child's is another one.

    def _watch_optimizers(self, module: ModuleType) -> None:
        def stepped(optimizer: Any) -> None:
            self._recorder.steps.optimizer_stepped(optimizer)

        if OPTIMIZERS not in self._watched:
            self._watched.add(OPTIMIZERS)
            steps.watch_optimizers(sys.modules["torch"], module, self._shield(stepped))

    def _watch_loaders(self, module: ModuleType) -> None:
        def begin(iterator: Any) -> None:
            self._recorder.fetches.begin(iterator)

        def end() -> None:
            self._recorder.fetches.end()

        if LOADERS not in self._watched:
            self._watched.add(LOADERS)
            fetches.watch_fetches(module, self._shield(begin), self._shield(end))

    @property
    def _recorder(self) -> Recorder:
        assert self.recorder is not None
        return self.recorder

    def _active(self) -> bool:
        return self.recorder is not None and self.recorder.running

    def _on(self) -> bool:
        return self.recorder is not None and self.recorder.switch[0]

    def _shield(self, function: Callable[..., object]) -> Callable[..., None]:
        return shield(function, self._active, self._failed)

    def _anyway(self, function: Callable[..., object]) -> Callable[..., None]:
        return shield(function, lambda: True, self._failed)

    def _failed(self, error: BaseException) -> None:
        if self.recorder is not None:
            self.recorder.fail(error)
        else:
            self._refused = True
            say(f"recorder off: {type(error).__name__}: {error}. Training goes on")

    def _at_exit(self) -> None:
        if self._active():
            self._shield(self._recorder.exceptions.recall)()
            self._shield(self._recorder.stop)()

    def _after_fork(self) -> None:
        """Leaves the parent's ring alone; the child may have one of its own later."""
        recorder, self.recorder = self.recorder, None
        self._lock = threading.RLock()
        if recorder is not None:
            recorder.cut_off()
            # Kept: its handles on the parent's ops must not be dropped here.
            self._parents = recorder


def _launched() -> bool:
    """Whether a launcher made this very process a rank.

    The parent of `mp.spawn` is none, and spawned DataLoader workers, which import the
    program too, are none either though they inherit its environment.
    """
    pool: Any = sys.modules.get("multiprocessing.process")
    inherits = pool is not None and (
        pool.parent_process() is not None or getattr(pool.current_process(), "_inheriting", False)
    )
    return "RANK" in os.environ and not inherits


def _one(process_group: Any | None) -> Any | None:
    """The group that is destroyed, None for all: destroying the default group ends all."""
    whole = process_group is None or process_group is sys.modules[C10D].group.WORLD
    return None if whole else process_group


life: Final = Life()
