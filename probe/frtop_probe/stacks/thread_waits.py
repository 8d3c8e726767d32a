"""Finds which threads of a process wait for which others, from a dump of their stacks.

Python does not record who holds a lock or who works on a future. But the object that a thread waits
for is a local variable in the library's frames, and the threads that it waits for have the same
object in theirs: the address identifies them. Only the result leaves this module, not the program's
variables.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from frtop_probe import wire

_ADDRESS: Final = re.compile(r" at 0x([0-9a-f]{1,16})>$")
_THREADING: Final = re.compile(r"/threading\.py$")
_WORKER: Final = re.compile(r"/concurrent/futures/thread\.py$")
_LIBRARY: Final = re.compile(
    r"/(?:threading|queue|concurrent/futures/(?:_base|thread|process)"
    r"|multiprocess(?:ing)?/(?:queues|pool|connection|synchronize|process|popen_\w+))\.py$"
)
"""Files in which threads wait for others. Waits in C have no frame: a lock, `SimpleQueue`."""
_KINDS: Final = (
    # By file and function; of the frames that belong to a wait, the outermost comes first.
    (r"/multiprocess(?:ing)?/pool\.py$", r"get|wait|next|join|map|starmap|apply", "pool"),
    (r"/multiprocess(?:ing)?/queues\.py$", r"get", "child's queue"),
    (r"/multiprocess(?:ing)?/queues\.py$", r"put", "child's full queue"),
    (r"/concurrent/futures/thread\.py$", r"shutdown|_python_exit", "thread"),
    (r"/concurrent/futures/_base\.py$", r"result|exception|result_iterator|wait|as_completed",
     "future"),
    (r"/queue\.py$", r"get", "queue"),
    (r"/queue\.py$", r"put", "full queue"),
    (r"/queue\.py$", r"join", "tasks of a queue"),
    (r"/threading\.py$", r"join|_shutdown|_wait_for_tstate_lock", "thread"),
    (r"/threading\.py$", r"acquire|__enter__", "semaphore"),
    (r"/threading\.py$", r"wait|wait_for", "event"),
)  # fmt: skip
_PATTERNS: Final = tuple(
    (re.compile(file), re.compile(f"^(?:{function})$"), kind) for file, function, kind in _KINDS
)
_WITH: Final = re.compile(r"^(?:async )?with ([A-Za-z_][\w.]*)(?: as \w+)?:")
_TAKEN: Final = re.compile(r"^(?:(?:el)?if )?([A-Za-z_][\w.]*)\.acquire\(")
_ACQUIRE: Final = re.compile(r"\b([A-Za-z_][\w.]*)\.acquire\(")
_CONDITION: Final = re.compile(r"\b([A-Za-z_][\w.]*)\.wait(?:_for)?\(")
_MOST: Final = 8
"""Most threads that one wait lists."""
Blocks = Callable[[str, int], Sequence[str]]
"""Returns the text of a file's line and the headers of the blocks around it, innermost first."""


@dataclass(frozen=True, slots=True)
class AtFrame:
    """A frame with the names of its variables, and the addresses of their objects."""

    file: str
    function: str
    line: int
    addresses: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls, file: str, function: str, line: int, variables: Sequence[tuple[str, str]]
    ) -> AtFrame:
        """Makes a frame of variables as py-spy writes them: `<Queue at 0x7fba538d5690>`."""
        found = ((name, _ADDRESS.search(text)) for name, text in variables)
        addresses = {name: int(at[1], 16) for name, at in found if at is not None}
        return cls(file, function.rpartition(".")[2], line, addresses)


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A thread at a wait: its kind, and the object or the name of the lock that it waits for.

    A `counted` lock is a semaphore: who acquires it may be a consumer and never release it.
    """

    kind: str
    address: int = 0
    lock: str = ""
    at: AtFrame | None = None
    counted: bool = False


def waits_of(
    threads: Mapping[int, Sequence[AtFrame]], blocks: Blocks
) -> dict[int, wire.ThreadWait]:
    """Returns what each waiting thread waits for.

    Threads go by their pthread handle, and their innermost frames come first.
    """
    waiting = {ident: at for ident, steps in threads.items() if (at := _wait(steps, blocks))}
    return {ident: _resolved(ident, at, threads, waiting, blocks) for ident, at in waiting.items()}


def _wait(steps: Sequence[AtFrame], blocks: Blocks) -> _Waiting | None:
    if not steps or _is_idle_worker(steps):
        return None
    inner = next((n for n, step in enumerate(steps) if not _LIBRARY.search(step.file)), len(steps))
    kind, step = "", None
    for one in steps[:inner]:
        found = _kind(one)
        if found:
            kind, step = found, one
    caller = steps[inner] if inner < len(steps) else None
    if kind == "semaphore" or not inner:
        lock = _lock_at(caller, blocks)
        if lock:
            return _Waiting("lock", lock=lock, at=caller, counted=kind == "semaphore")
    if step is None:
        return None
    # An executor joins its threads one by one.
    name = "t" if kind == "thread" and step.function in ("shutdown", "_python_exit") else "self"
    return _Waiting(kind, step.addresses.get(name, 0), at=step)


def _kind(step: AtFrame) -> str:
    return next(
        (kind for file, function, kind in _PATTERNS
         if file.search(step.file) and function.search(step.function)), "")  # fmt: skip


def _is_idle_worker(steps: Sequence[AtFrame]) -> bool:
    """Whether it is an executor's thread that waits for work."""
    return steps[0].function == "_worker" and _WORKER.search(steps[0].file) is not None


def _resolved(
    ident: int,
    wait: _Waiting,
    threads: Mapping[int, Sequence[AtFrame]],
    waiting: Mapping[int, _Waiting],
    blocks: Blocks,
) -> wire.ThreadWait:
    if wait.kind == "lock":
        # It may be the thread itself: unlike an RLock, a lock blocks its own holder.
        found = [other for other, steps in threads.items() if _holds(steps, wait, blocks)]
        return wire.ThreadWait(wait.kind, tuple(found[:_MOST]))
    others = {other: steps for other, steps in threads.items() if other != ident}
    if wait.kind == "thread":
        found = [other for other, steps in others.items() if _thread_object(steps) == wait.address]
    elif wait.kind == "future":
        found = [other for other, steps in others.items() if _runs_item(steps)]
    else:
        found = [
            other for other, steps in others.items()
            if wait.address and _has(steps, wait.address)
            and not (other in waiting and waiting[other].address == wait.address)
        ]  # fmt: skip
    return wire.ThreadWait(wait.kind, tuple(found[:_MOST]) if wait.address else ())


def _thread_object(steps: Sequence[AtFrame]) -> int:
    """The address of the thread's own object, from its outermost frames; 0 if unknown."""
    outer = steps[-1]
    is_own = _THREADING.search(outer.file) and outer.function == "_bootstrap"
    return outer.addresses.get("self", 0) if is_own else 0


def _runs_item(steps: Sequence[AtFrame]) -> bool:
    """Whether it is an executor's thread that has work."""
    return any(_WORKER.search(step.file) and step.function == "run" for step in steps)


def _has(steps: Sequence[AtFrame], address: int) -> bool:
    return any(address in step.addresses.values() for step in steps)


def _lock_at(step: AtFrame | None, blocks: Blocks) -> str:
    """The name of the lock that a line takes, as in the source; "" if it takes none."""
    text = next(iter(blocks(step.file, step.line)), "") if step is not None else ""
    found = _WITH.match(text) or _ACQUIRE.search(text)
    return found[1] if found else ""


def _holds(steps: Sequence[AtFrame], wait: _Waiting, blocks: Blocks) -> bool:
    """Whether a frame is inside a `with` of the same lock, or after a line that acquires it."""
    assert wait.at is not None
    given_back = _given_back(steps, blocks)
    for step in steps:
        if given_back == wait.lock or not _may_share(step, wait.at, wait.lock):
            continue
        # On that line itself a thread is only about to take the lock.
        headers = blocks(step.file, step.line)[1:]
        patterns = (_WITH,) if wait.counted else (_WITH, _TAKEN)
        found = (pattern.match(text) for text in headers for pattern in patterns)
        if any(one is not None and one[1] == wait.lock for one in found):
            return True
    return False


def _given_back(steps: Sequence[AtFrame], blocks: Blocks) -> str:
    """The name of the condition that a thread waits on: it has released the condition's lock."""
    inner = [step for step in steps if not _LIBRARY.search(step.file)]
    text = next(iter(blocks(inner[0].file, inner[0].line)), "") if inner else ""
    found = _CONDITION.search(text)
    return found[1] if found and steps[0] is not inner[0] else ""


def _may_share(step: AtFrame, other: AtFrame, lock: str) -> bool:
    """Whether a name means the same object in both frames: one variable, or one global."""
    name = lock.partition(".")[0]
    mine, theirs = step.addresses.get(name), other.addresses.get(name)
    if mine is None and theirs is None:
        return step.file == other.file
    return mine == theirs
