"""The live source: one thread that owns sockets, job state and diagnosis.

Everything the agents say goes into the job state; a few times a second the state is
judged and the frame put where the screen finds it. Nothing ever waits for one host.
"""

from __future__ import annotations

import queue
import threading
import time
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from frtop_probe import keys
from frtop_tui.errors import KeyTrouble
from frtop_tui.job.model import Frame
from frtop_tui.job.naming import JobKey
from frtop_tui.sources.line import Line
from frtop_tui.sources.listener import Listener
from frtop_tui.sources.places import LOCAL, Resolver, expand


class LiveSource:
    """Frames of a running job, from the agents of its hosts."""

    def __init__(self, specs: Sequence[str] = (LOCAL,), job: str | None = None) -> None:
        """Reads the key and starts the thread.

        Args:
            specs: host lists as people write them; `local` is this host.
            job: name or run id of the job to show; None is the newest.

        Raises:
            UsageError: a spec is no host list.
            KeyTrouble: our key is missing, or not only ours.
        """
        named = [spec for spec in specs if spec != LOCAL]
        self._names = expand(named) if named else ()
        self._local = LOCAL in specs
        try:
            # For this host the first to come makes the key, be it agent or operator.
            # Elsewhere a second key would be minted silently, and refused.
            self._pair = keys.load(create=not self._names)
        except keys.KeyProblem as error:
            raise KeyTrouble(error.text, error.next) from error
        self._job = job
        self._wishes: queue.SimpleQueue[tuple[str, frozenset[int]]] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._frame = Frame(now_ns=time.monotonic_ns(), wall_ns=time.time_ns())
        self._thread = threading.Thread(target=self._run, name="frtop source", daemon=True)
        self._thread.start()

    def frame(self) -> Frame:
        return self._frame

    def watch(self, ranks: Iterable[int]) -> None:
        self._wishes.put(("watch", frozenset(ranks)))

    def dump(self, ranks: Iterable[int]) -> None:
        self._wishes.put(("dump", frozenset(ranks)))

    def inspect(self, rank: int) -> None:
        raise NotImplementedError

    def save(self, rank: int, sequence: int, path: Path) -> None:
        raise NotImplementedError

    def capture(self, path: Path, *, automatic: bool = False) -> None:
        raise NotImplementedError

    def choose(self, job: JobKey | None) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self._closing.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        line = Line(self._pair)
        try:
            listener = Listener(line, self._names, self._job)
            resolver = Resolver(self._names)
            while not self._closing.is_set():
                self._turn(listener, resolver, line)
        except Exception as error:  # noqa: BLE001 - a screen that freezes silently would lie
            self._frame = _failed(self._frame, error)
        finally:
            line.close()

    def _turn(self, listener: Listener, resolver: Resolver, line: Line) -> None:
        """One round: the screen's wishes, hosts that resolved, what the sockets say."""
        while not self._wishes.empty():
            verb, ranks = self._wishes.get()
            wish = listener.asking.watch if verb == "watch" else listener.asking.dump
            wish(ranks)
        for name, found in resolver.found():
            listener.resolved(name, found)
        if self._local:
            listener.look_here(time.monotonic_ns())
        for happening in line.wait(50):
            listener.take(happening, time.monotonic_ns())
        self._frame = listener.frame() or self._frame


def _failed(frame: Frame, error: Exception) -> Frame:
    """The last frame, with nothing claimed any more."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    problem = (
        f"frtop itself failed: {error!r} at {Path(where.filename).name}:{where.lineno}; what is "
        "shown is the moment before. Quit and start again; the job is not touched"
    )
    return replace(frame, problem=problem, health="undecided", verdicts=())
