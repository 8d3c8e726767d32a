"""The live source: one thread that owns sockets, job state and diagnosis.

Everything the agents say goes into the job state; a few times a second the state is
judged and the frame put where the screen finds it. Nothing ever waits for one host.
"""

from __future__ import annotations

import queue
import resource
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from frtop_probe import keys
from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import KeyTrouble
from frtop_tui.job.naming import JobKey
from frtop_tui.sources.here import Here
from frtop_tui.sources.line import Line
from frtop_tui.sources.listener import Listener
from frtop_tui.sources.places import LOCAL, expand

KEY_AGAIN_S: Final = 0.2
FILES_PER_HOST: Final = 2
SPARE_FILES: Final = 256

Wish = Callable[[Listener], None]


class LiveSource:
    """Frames of a running job, from the agents of its hosts."""

    def __init__(
        self,
        specs: Sequence[str] = (LOCAL,),
        job: str | None = None,
        *,
        read_only: bool = False,
    ) -> None:
        """Reads the key and starts the thread.

        Args:
            specs: host lists as people write them; `local` is this host.
            job: name or run id of the job to show; None is the newest.
            read_only: give up asking anything of ranks; the agents hold us to it.

        Raises:
            UsageError: a spec is no host list.
            KeyTrouble: our key is missing, or not only ours.
        """
        named = [spec for spec in specs if spec != LOCAL]
        self._names = expand(named) if named else ()
        self._local = LOCAL in specs
        self._pair = self._key()
        self._job = job
        self._read_only = read_only
        self._wishes: queue.SimpleQueue[Wish] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._frame = Frame(now_ns=time.monotonic_ns(), wall_ns=time.time_ns())
        self._thread = threading.Thread(target=self._run, name="frtop source", daemon=True)
        self._thread.start()

    def _key(self) -> keys.KeyPair | None:
        """Our pair. We never make one: it would be a second one, that no agent admits.

        For this host alone it may be missing: the first agent here makes it.
        """
        try:
            return keys.load(create=False)
        except keys.NoKey as error:
            if not self._names:
                return None
            raise KeyTrouble(error.text, error.next) from error
        except keys.KeyProblem as error:
            raise KeyTrouble(error.text, error.next) from error

    def frame(self) -> Frame:
        return self._frame

    def watch(self, ranks: Iterable[int]) -> None:
        wanted = frozenset(ranks)
        self._wishes.put(lambda listener: listener.asking.watch(wanted))

    def dump(self, ranks: Iterable[int]) -> None:
        wanted = frozenset(ranks)
        self._wishes.put(lambda listener: listener.asking.dump(wanted))

    def inspect(self, rank: int) -> None:
        self._wishes.put(partial(Listener.inspect, rank=rank))

    def save(self, rank: int, sequence: int, path: Path) -> None:
        self._wishes.put(partial(Listener.save, rank=rank, sequence=sequence, path=path))

    def capture(self, path: Path, *, automatic: bool = False) -> None:
        self._wishes.put(partial(Listener.capture, path=path, automatic=automatic))

    def choose(self, job: JobKey | None) -> None:
        self._wishes.put(partial(Listener.choose, job=job))

    def close(self) -> None:
        self._closing.set()
        self._thread.join(timeout=12)

    def _run(self) -> None:
        line: Line | None = None
        try:
            pair = self._await_key()
            if pair is None:
                return
            _make_room(len(self._names))
            line = Line(pair)
            here = Here(self._names) if self._local else None
            listener = Listener(line, self._names, self._job, here, read_only=self._read_only)
            while not self._closing.is_set():
                self._turn(listener, line)
            listener.close()
        except Exception as error:  # noqa: BLE001 - a screen that freezes silently would lie
            self._frame = _failed(self._frame, error)
        finally:
            if line is not None:
                line.close()

    def _await_key(self) -> keys.KeyPair | None:
        """Our pair, as soon as it is there; None when we are closed before."""
        if self._pair is not None:
            return self._pair
        here = Here(())
        while not self._closing.wait(KEY_AGAIN_S):
            now = time.monotonic_ns()
            try:
                return keys.load(create=False)
            except keys.NoKey as missing:
                here.look(now)
                # An agent has its key before it is announced: that one's is elsewhere.
                problem = here.problem or _sentence(missing)
            except keys.KeyProblem as trouble:
                problem = _sentence(trouble)
            self._frame = replace(self._frame, now_ns=now, wall_ns=time.time_ns(), problem=problem)
        return None

    def _turn(self, listener: Listener, line: Line) -> None:
        """One round: the screen's wishes, hosts that were found, what the sockets say."""
        while not self._wishes.empty():
            self._wishes.get()(listener)
        listener.discover(time.monotonic_ns())
        for happening in line.wait(50):
            listener.take(happening, time.monotonic_ns())
        self._frame = listener.frame() or self._frame


def _sentence(problem: keys.KeyProblem) -> str:
    return f"{problem.text}; {problem.next}"


def _make_room(hosts: int) -> None:
    """Each host takes two connections, and a shell allows 1,024 files as a rule."""
    wanted = FILES_PER_HOST * hosts + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if wanted > soft:
        with suppress(ValueError, OSError):  # as many hosts as fit are heard all the same
            most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _failed(frame: Frame, error: Exception) -> Frame:
    """The last frame, with nothing claimed any more."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    problem = (
        f"frtop itself failed: {error!r} at {Path(where.filename).name}:{where.lineno}; what is "
        "shown is the moment before. Quit and start again; the job is not touched"
    )
    return replace(frame, problem=problem, health="undecided", verdicts=())
