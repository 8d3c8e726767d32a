"""Sentences about why a rank is absent: the cause, the next step, and what shows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from frtop_probe import wire
from frtop_tui.diagnosis.evidence.absence_cause import (
    NEVER_JOINED,
    AbsenceCause,
    BatchWait,
    absence_cause,
    is_unseen_dump,
)
from frtop_tui.diagnosis.evidence.dataloader_worker import WorkerStack
from frtop_tui.diagnosis.evidence.rank_activity import last_issued_ns
from frtop_tui.diagnosis.evidence.stack_location import (
    FILE_KINDS,
    LocationKind,
    StackLocation,
    is_asleep_on_lock,
    line_and_function,
    locate,
    system_call,
)
from frtop_tui.diagnosis.model import Why
from frtop_tui.job.model import Rank
from frtop_tui.job.naming import duration, folded, typed
from frtop_tui.job.stack_frames import short_file, user_frame

LOCKED_AT_FORK: Final = (
    "a lock that another thread held during the fork stays locked in the worker: a library's, or"
    " the interpreter's own in CPython before 3.10.15, 3.11.10 and 3.12 (gh-112275); workers"
    " started by forkserver or spawn avoid this"
)
_MAIN_THREAD_TEXTS: Final[dict[LocationKind, str]] = {
    "collective": "waits in another collective or for another rank's send",
    "backward": "is in the backward pass",
    "device": "waits for its device",
    "store": "waits for the rendezvous store",
    "dataloader": "loads data",
    "file_io": "is in a file operation:",
    "file_lock": "waits for a file that another process has locked:",
    "sleeping": "sleeps",
    "lock": "waits for a lock or another thread",
    "socket": "waits for a socket",
    "idle": "waits for work from outside the job, in an event loop or at a listening socket",
    "child": "waits for a process that it started",
    "pipe": "waits for the other end of a pipe:",
    "input": "waits for input, or for somebody to type:",
    "key": "waits for a key of the store that another rank has to set,",
    "compiling": "compiles",
    "importing": "imports a module",
    "computing": "runs",
    "unknown": "is",
}
_MOST_CHILDREN: Final = 3
"""Children that a sentence lists."""


class Absence(Struct, frozen=True):
    """Why a rank is absent, the next step, what shows it, and what could not be seen."""

    why: Why
    next: str
    evidence: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def absence_of(view: Rank, now_ns: int) -> Absence:
    """Why `view` is absent, in words."""
    return explain(absence_cause(view), view, now_ns)


def explain(cause: AbsenceCause, view: Rank, now_ns: int) -> Absence:
    """The words for a cause.

    Args:
        cause: as `absence_cause` found it for `view`.
        view: the rank that is absent.
        now_ns: the operator's time, in ns.
    """
    if is_unseen_dump(view):
        return _dumped(view)
    if cause.cause == "stopped":
        return _stopped(cause, view, now_ns)
    if cause.cause == "gil":
        return _gil_held(cause, view, now_ns)
    if cause.batch is not None:
        return _loading(cause, cause.batch, view, now_ns)
    if cause.location is not None:
        return _located(cause, cause.location, view, now_ns)
    return Absence(
        Why(cause.cause, cause.layer, "nothing that was seen shows what it is doing"),
        stacks_step(view),
        _process_evidence(view),
        missing_stacks(view),
    )


def never_joined(ranks: Sequence[int]) -> Absence:
    """The words for ranks of the world that no agent has ever reported."""
    return Absence(
        Why(
            NEVER_JOINED.cause,
            NEVER_JOINED.layer,
            f"{folded(ranks)} never appeared: not started, dead before the first group, without"
            " the recorder, on a host that is not connected, or with another MASTER_ADDR or"
            " MASTER_PORT",
        ),
        "check whether these ranks were started: squeue, ps, their output",
        missing=(f"{folded(ranks)} cannot be seen",),
    )


def stacks_step(view: Rank, pid: int = 0, *, native: bool = False) -> str:
    """How to see the stacks of `view`, or of its child `pid`; if refused, what to change first."""
    pid = pid or _pid(view)
    if not pid:
        return (
            f"read the end of rank {view.rank}'s output; if its process still runs:"
            " py-spy dump --pid PID on its host"
        )
    dumps = view.snapshot.dumps if view.snapshot is not None else ()
    refused = next((dump for dump in dumps if dump.error in ("refused", "missing")), None)
    if refused is None or view.threads:
        return f"py-spy dump {'--native ' if native else ''}--pid {pid}"
    if refused.help:
        return f"to see its stacks: {refused.help}"
    return f"grep -H . /proc/{pid}/status /proc/{pid}/wchan"


def missing_stacks(view: Rank) -> tuple[str, ...]:
    """Why there are no stacks of a rank; empty if there are."""
    if view.threads:
        return ()
    dumps = view.snapshot.dumps if view.snapshot is not None else ()
    own = next((d for d in dumps if d.pid == view.identity.pid), None)
    if own is not None and own.error:
        return (f"stacks of rank {view.rank}: {own.help or own.error}",)
    return (f"stacks of rank {view.rank}: not taken yet",)


def _dumped(view: Rank) -> Absence:
    text = (
        "it has finished all ops that it issued"
        if not view.pending
        else "its unfinished ops do not block it"
    )
    return Absence(
        Why("unknown", "unknown", f"{text}; a dump does not show what it does instead"),
        stacks_step(view),
        missing=("its stack and its process",),
    )


def _stopped(cause: AbsenceCause, view: Rank, now_ns: int) -> Absence:
    process = view.process
    assert process is not None
    since = _beat_age(view, now_ns)
    if process.state == "t":
        text = f"a debugger or tracer holds its process{since}"
        step = f"grep TracerPid /proc/{process.pid}/status, and detach that debugger"
    else:
        text = f"its process is stopped (SIGSTOP, state T){since}"
        step = f"kill -CONT {process.pid}"
    return Absence(Why(cause.cause, cause.layer, text), step, _process_evidence(view))


def _gil_held(cause: AbsenceCause, view: Rank, now_ns: int) -> Absence:
    holder, since = cause.gil_holder, _beat_age(view, now_ns)
    if holder is not None and holder.frames:
        frame = user_frame(holder.frames)
        source = f" `{frame.source}`" if frame.source else ""
        name = _thread_name(view, holder)
        text = f"{name} holds the GIL{since} at {line_and_function(frame)}{source}"
        step = f"look at {line_and_function(frame)}: a C call that does not release the GIL"
    else:
        text = f"no Python code has run in it{since}: a thread holds the GIL in C code"
        step = stacks_step(view, native=True)
    return Absence(
        Why(cause.cause, cause.layer, text), step, _process_evidence(view), missing_stacks(view)
    )


def _loading(cause: AbsenceCause, batch: BatchWait, view: Rank, now_ns: int) -> Absence:
    location, worker, stack = cause.location, batch.worker, batch.worker_stack
    line = f"; {location.line}" if location is not None and location.line else ""
    since = ""
    if batch.fetch is not None:
        since = f", for {duration(view.age_s(batch.fetch.begin_ns, now_ns))}"
    if batch.loads_itself:
        doing = _file_text(view.process)
        text = f"MainThread loads the next batch itself{f':{doing}' if doing else ''}{since}{line}"
        return Absence(
            Why(cause.cause, cause.layer, text),
            _file_step(view.process) or stacks_step(view),
            _process_evidence(view),
            missing_stacks(view),
        )
    doing, forking = _file_text(worker).strip(), batch.worker_is_forking
    if worker is not None and stack is not None and (forking or not doing):
        doing = _worker_text(stack, worker)
    text = f"MainThread waits for {_worker_name(batch)}{f': {doing}' if doing else ''}{since}{line}"
    pid = worker.pid if worker is not None else 0
    if worker is None and batch.last_fetch is not None:
        pid = batch.last_fetch.worker_pid
    evidence = (
        *_process_evidence(view),
        *([_process_text(worker)] if worker else []),
        *([LOCKED_AT_FORK] if forking and is_asleep_on_lock(worker) else []),
    )
    step = _file_step(worker) or stacks_step(view, pid, native=forking)
    return Absence(Why(cause.cause, cause.layer, text), step, evidence, missing_stacks(view))


def _worker_name(batch: BatchWait) -> str:
    """`DataLoader worker 2 of 4 (pid 90112)`, as far as that is known."""
    fetch = batch.fetch
    if fetch is not None and fetch.worker >= 0:
        count = f" of {fetch.workers}" if fetch.workers else ""
        pid = f" (pid {fetch.worker_pid})" if fetch.worker_pid else ""
        return f"DataLoader worker {fetch.worker}{count}{pid}"
    return "a DataLoader worker" + (f" (pid {batch.worker.pid})" if batch.worker else "")


def _worker_text(stack: WorkerStack, worker: wire.Process) -> str:
    """`sleeping at data.py:31 (decode)`: what a worker does, "" if its stack does not show it."""
    text, location = "", stack.location
    if stack.awaits_index:
        text = "waits for the next index"
    elif location is not None and location.line:
        known = "" if location.kind in ("unknown", "dataloader") else f"{location.kind} "
        text = f"{known}at {location.line}"
    if not stack.is_forking:
        return text
    if location is None and not stack.awaits_index:
        asleep = ", asleep on a lock" if is_asleep_on_lock(worker) else ""
        return f"is still in its fork{asleep}"
    return f"is still in its fork: {text}"


def _located(cause: AbsenceCause, location: StackLocation, view: Rank, now_ns: int) -> Absence:
    at, leaf = f" at {location.line}" if location.line else "", location.leaf
    if leaf is not None and leaf.source and location.line.startswith(short_file(leaf.file)):
        at += f" `{leaf.source}`"
    in_file = location.kind in FILE_KINDS
    detail = _file_text(view.process) if in_file else _other_end_text(view, location.kind)
    since = _last_op_text(view, now_ns)
    source = "" if location.sure or location.leaf is not None else ", by the kernel alone"
    text = f"MainThread {_MAIN_THREAD_TEXTS[location.kind]}{detail}{at}{source}{since}"
    return Absence(
        Why(cause.cause, cause.layer, text),
        _location_step(view, location),
        _process_evidence(view),
        missing_stacks(view),
    )


def _other_end_text(view: Rank, kind: LocationKind) -> str:
    """` pid 4711 (ffmpeg), state S`: the children, pipe or terminal that it may wait for."""
    file = view.process.file if view.process is not None else ""
    if kind in ("pipe", "input"):
        return f" {system_call(view.process)} {file}" if file else ""
    if kind != "child" or view.snapshot is None:
        return ""
    children = view.snapshot.processes[1 : 1 + _MOST_CHILDREN]
    texts = [f"pid {child.pid} ({child.name}), state {child.state}" for child in children]
    return f": {'; '.join(texts)};" if texts else ""


def _location_step(view: Rank, location: StackLocation) -> str:
    pid, line, stacks = _pid(view), location.line, stacks_step(view)
    pipe = typed(view.process.file) if view.process is not None else ""
    steps: dict[LocationKind, str] = {
        "file_io": _file_step(view.process) or f"ls -l /proc/{pid}/fd; look at {line}",
        "file_lock": _file_step(view.process) or "lslocks: which process holds the file?",
        "sleeping": f"look at {line}" if line else stacks,
        "computing": _top_step(stacks, pid),
        "backward": _top_step(stacks, pid),
        "child": f"ps -o pid,stat,wchan:30,args --ppid {pid}",
        "pipe": f"find its other end: ls -l /proc/[0-9]*/fd/* 2>/dev/null | grep -F {pipe}",
        "input": f"answer it at its terminal, or remove what asks at {line}",
        "key": f"look at {line}: which rank has to set the key?",
        "socket": f"ss -tnp | grep pid={pid}",
        "idle": f"send rank {view.rank} work; if that may take long, give the group a longer"
        " timeout, or let the other ranks wait outside collectives",
    }
    return steps.get(location.kind, stacks)


def _top_step(stacks: str, pid: int) -> str:
    return f"py-spy top --pid {pid}" if stacks.startswith("py-spy") else f"top -H -p {pid}"


def _file_step(process: wire.Process | None) -> str:
    """What to look at if a process hangs in a file, "" if it does not."""
    kind = locate(None, process).kind
    if process is None or kind not in FILE_KINDS:
        return ""
    named = process.file.startswith("/")
    file = typed(process.file)  # quoted: a path may hold anything
    if kind == "file_lock":
        holder = f"lslocks | grep {file}; fuser {file}"
        return f"find who holds it: {holder if named else 'lslocks, or cat /proc/locks'}"
    if named:
        return f"timeout 5 stat -f {file}; check the file system it lies on"
    return f"ls -l /proc/{process.pid}/fd; cat /proc/{process.pid}/stack"


def _file_text(process: wire.Process | None) -> str:
    """` read /data/shard-0412, state D`: the file operation of a process, "" if in none."""
    if process is None or locate(None, process).kind not in FILE_KINDS:
        return ""
    call = system_call(process) or process.wchan or "in the kernel"
    file = f" {process.file}" if process.file else ""
    return f" {call}{file}{', state D' if process.state == 'D' else ''}"


def _pid(view: Rank) -> int:
    """The rank's process; a dump may not name it, but the main thread of a stack does."""
    main = view.main_stack
    return view.identity.pid or (main.tid if main is not None else 0)


def _beat_age(view: Rank, now_ns: int) -> str:
    beat = view.status.beat_ns if view.status is not None else 0
    return f" for {duration(view.age_s(beat, now_ns))}" if beat else ""


def _last_op_text(view: Rank, now_ns: int) -> str:
    """How long ago it issued its last op; "" for a dump, of which nobody knows the age."""
    newest = last_issued_ns(view)
    if not view.evidence.has_ages or not newest:
        return ""
    return f"; its last op was {duration(view.age_s(newest, now_ns))} ago"


def _thread_name(view: Rank, thread: wire.ThreadStack) -> str:
    if thread.ident == view.identity.main_ident:
        return "MainThread"
    return f"thread {thread.name or thread.tid}"


def _process_evidence(view: Rank) -> tuple[str, ...]:
    return (_process_text(view.process),) if view.process is not None else ()


def _process_text(process: wire.Process) -> str:
    parts = [f"pid {process.pid} state {process.state}"]
    if process.syscall:
        parts.append(f"syscall {system_call(process)}")
    if process.wchan.strip():
        parts.append(f"wchan {process.wchan}")
    if process.file:
        parts.append(process.file)
    return ", ".join(parts)
