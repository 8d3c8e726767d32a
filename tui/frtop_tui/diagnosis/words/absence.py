"""Sentences about why a rank is absent: the cause, the next step, and what shows it."""

from __future__ import annotations

import signal
from contextlib import suppress
from typing import Final

from msgspec import Struct

from frtop_probe import wire
from frtop_tui.diagnosis.causes import CAUSES, LOCATIONS, Cause, LocationKind
from frtop_tui.diagnosis.evidence.absence_cause import (
    AbsenceCause,
    BatchWait,
    absence_cause,
    doing,
    is_unseen_dump,
)
from frtop_tui.diagnosis.evidence.dataloader_worker import (
    WorkerStack,
    children_in_question,
    loading_threads,
    starter_of,
    worker_stack,
)
from frtop_tui.diagnosis.evidence.program_end import ProgramEnd
from frtop_tui.diagnosis.evidence.rank_activity import last_issued_ns
from frtop_tui.diagnosis.evidence.rpc_call import rpc_call_of
from frtop_tui.diagnosis.evidence.stack_location import (
    FILE_KINDS,
    StackLocation,
    is_asleep_on_lock,
    line_and_function,
    locate,
    serves_rpc,
    system_call,
)
from frtop_tui.diagnosis.evidence.working_thread import (
    ThreadChain,
    acting_process,
    acting_stack,
    kernel_view,
    name_of,
    program_threads,
    thread_name,
    working_name,
    working_process,
    working_stack,
)
from frtop_tui.diagnosis.model import Why
from frtop_tui.job.model import Rank
from frtop_tui.job.naming import typed
from frtop_tui.job.stack_frames import short_file, user_frame
from frtop_tui.job.units import duration
from frtop_tui.job.unprepared import age_words, last_issue_is_least

_ANY: Final = {
    "thread": "for a thread to end",
    "future": "for a future",
    "lock": "for a lock",
    "queue": "at an empty queue",
    "full queue": "for room in a full queue",
    "tasks of a queue": "until all items of a queue are done",
    "semaphore": "for a semaphore",
    "event": "for an event or a condition",
    "pool": "for a result of its pool of processes",
    "child's queue": "for what a child process puts into a queue",
    "child's full queue": "for a child process to empty a queue",
}
"""What a thread waits for, by `wire.ThreadWait.kind`."""
_WHOSE: Final = {
    "thread": "for {} to end",
    "future": "for a future, most likely that of {}",
    "lock": "for a lock that {} holds",
}
"""The same if it is known which thread is meant; otherwise that thread has the object at hand."""
_MOST: Final = 4
"""How many threads or children are listed."""
_FOR_OTHERS: Final = frozenset[Cause]({"lock", "pipe", "dataloader", "subprocess", "unknown"})
"""Causes with which a rank may wait for a child that has ended."""
_MOST_OF_TEXT: Final = 160
"""Characters of an exception's text."""
_WITHIN: Final = frozenset({"lock", "sleeping", "unknown"})
"""Places where a thread may wait for another one, or poll for it."""
_FOR_CHILDREN: Final = _FOR_OTHERS | {"socket", "sleeping"}
"""Causes with which it may wait for a child that lives: it may ask now and then."""


def links_text(view: Rank, chain: ThreadChain) -> str:
    """`waits at train.py:70 (save) for thread "saver" to end, which waits ...`: all links."""
    meant = [*chain.links[1:], chain.end]
    return ", which ".join(
        _link(view, stack, other) for stack, other in zip(chain.links, meant, strict=True)
    )


def _link(view: Rank, stack: wire.ThreadStack, other: wire.ThreadStack | None) -> str:
    kind = stack.wait.kind if stack.wait is not None else ""
    at = f"waits at {line_and_function(user_frame(stack.frames))}"
    if other is not None:
        name = "it" if other is stack else name_of(view, other)
        return f"{at} {_WHOSE.get(kind, _ANY.get(kind, '') + ' that {} has at hand').format(name)}"
    idents = stack.wait.threads if stack.wait is not None else ()
    several = [name_of(view, one) for one in view.threads if one.ident in idents]
    return f"{at} {_ANY.get(kind, '')}" + (f" ({' or '.join(several)})" if several else "")


def others_evidence(view: Rank) -> tuple[str, ...]:
    """Where the program's other threads are: it may wait for one of them."""
    others = program_threads(view)
    lines = [_where(view, one) for one in others[:_MOST]]
    if len(others) > _MOST:
        lines.append(f"{len(others) - _MOST} more threads of the program")
    return tuple(lines)


def _where(view: Rank, stack: wire.ThreadStack) -> str:
    call = system_call(kernel_view(view, stack))
    at = line_and_function(user_frame(stack.frames))
    return f"{name_of(view, stack)} is at {at}{f', in {call}' if call else ''}"


def stuck_children(view: Rank, cause: Cause) -> tuple[str, ...]:
    """Children at a file, or stopped: the rank may wait for what one of them does."""
    if cause not in (*_FOR_CHILDREN, "computing") or view.snapshot is None:
        return ()
    pids, found = children_in_question(view), []
    for child in (one for one in view.snapshot.processes[1:] if one.pid in pids):
        if cause == "computing" and not _stays(view, child):
            continue  # it may poll for a child, or compute while others load batches ahead
        stack = worker_stack(view, child)
        place = (stack.location if stack is not None else None) or locate(None, child)
        does, file = LOCATIONS[place.kind].text.rstrip(":,"), _file_text(child)
        does = "is stopped" if child.state in "Tt" else f"is in{file}" if file else does
        found.append(f"its child pid {child.pid} ({child.name}) {does}{_at(place)}")
    return tuple(found)


def _ended_thread(view: Rank, cause: AbsenceCause, now_ns: int) -> tuple[str, ...]:
    """The last thread that an exception ended: the rank may wait for it."""
    raised = view.exception
    if raised is None or raised.main or cause.cause not in _FOR_OTHERS:
        return ()
    since = f" {duration(view.age_s(raised.at_ns, now_ns))} ago" if now_ns else ""
    lines = raised.text.strip().splitlines()
    text = f": {lines[0][:_MOST_OF_TEXT]}" if lines else ""
    at = f" at {line_and_function(user_frame(raised.frames))}" if raised.frames else ""
    return (f'its thread "{raised.thread}" ended{since}: {raised.kind}{text}{at}',)


def _thread_step(view: Rank, cause: AbsenceCause) -> str:
    """Where to look if the rank waits for a thread, and nothing shows for which one.

    One that an exception ended, else the only one in the program's code that neither sleeps nor
    waits for a lock itself.
    """
    chain, raised = cause.chain, view.exception
    if cause.cause != "lock" or (chain is not None and chain.end is not None):
        return ""
    if raised is not None and not raised.main and raised.frames:
        line = line_and_function(user_frame(raised.frames))
        return f"look at {line}: the thread that ended there may be waited for"
    others = [
        one
        for one in (program_threads(view) if chain is not None else ())
        if locate(one, kernel_view(view, one)).kind not in _WITHIN
    ]
    if len(others) != 1:
        return ""
    line = line_and_function(user_frame(others[0].frames))
    return f"look at {line}: {name_of(view, others[0])} may be waited for"


def _children_evidence(view: Rank, cause: AbsenceCause, now_ns: int) -> tuple[str, ...]:
    has_worker = cause.batch is not None and cause.batch.worker is not None
    stuck = () if has_worker else stuck_children(view, cause.cause)
    return (*stuck, *ended_children(view, cause.cause, now_ns))


def _stays(view: Rank, child: wire.Process) -> bool:
    """Whether two looks found a child in the same call, and it did nothing in between."""
    before = view.prior_snapshot.processes[1:] if view.prior_snapshot is not None else ()
    did = (child.pid, child.syscall, child.file, child.cpu_ns, child.io_bytes)
    return any((o.pid, o.syscall, o.file, o.cpu_ns, o.io_bytes) == did for o in before)


def ended_children(view: Rank, cause: Cause, now_ns: int) -> tuple[str, ...]:
    """Children that have ended and were not waited for, or that ended since the rank's last op.

    How the latter ended is not known; workers also end because their work is done.
    """
    if cause not in _FOR_OTHERS or view.snapshot is None:
        return ()
    ended = [
        f"its child pid {child.pid} ({child.name}) has ended{_how(child.exit_status)}"
        for child in view.snapshot.processes[1:]
        if child.state in "ZX"
    ]
    last_ns = max((one.issued_ns for one in view.group_progress.values()), default=0)
    ended += [
        f"its child pid {child.pid} ({child.name}) ended"
        f" {duration(view.age_s(child.at_ns, now_ns))} ago"
        for child in reversed(view.snapshot.ended)
        if child.at_ns >= last_ns
    ]
    return tuple(ended[:_MOST])


def _how(status: int) -> str:
    """How a process ended, by its waitpid(2) status, which is 0 if we may not read it."""
    if status <= 0:
        return ""
    if number := status & 0x7F:
        with suppress(ValueError):
            return f", by {signal.Signals(number).name}"
        return f", by signal {number}"
    return f", with exit status {status >> 8}"


_LOCKED_AT_FORK: Final = (
    "a lock that another thread held during the fork stays locked in the worker: a library's, or"
    " the interpreter's own in CPython before 3.10.15, 3.11.10 and 3.12 (gh-112275); workers"
    " started by forkserver or spawn avoid this"
)
_MOST_CHILDREN: Final = 3
"""How many children a sentence lists."""


class Absence(Struct, frozen=True):
    """Why a rank is absent, the next step, what shows it, and what could not be seen."""

    why: Why
    next: str
    evidence: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def absence_of(view: Rank, now_ns: int, cause: AbsenceCause | None = None) -> Absence:
    """Why `view` is absent, in words; with `now_ns` 0, ages are left out."""
    cause = cause or absence_cause(view)
    shown = acting_process(view) if cause.chain is not None else working_process(view)
    evidence = _process_evidence(shown, "pid" if shown is view.process else "thread")
    missing = missing_stacks(view)
    if is_unseen_dump(view):
        text, step = _unseen(view), stacks_step(view)
        missing = ("its stack and its process",)
    elif cause.cause == "stopped":
        text, step = _stopped(view, now_ns)
        missing = ()
    elif cause.cause == "gil":
        text, step = _gil_held(cause.gil_holder, view, now_ns)
    elif cause.batch is not None:
        text, step = _loading(cause.batch, cause.location, view, now_ns)
        evidence += _worker_evidence(cause.batch)
    elif cause.cause == "out_of_loop":
        text = wire.LEFT_GROUPS if wire.LEFT_GROUPS in view.notes else CAUSES[cause.cause].sentence
        step = CAUSES[cause.cause].step
    elif cause.location is not None:
        text = _location_text(view, cause, cause.location, now_ns)
        step = _location_step(view, cause.location, shown)
        if cause.cause in ("lock", "idle") and (cause.chain is None or cause.chain.end is None):
            evidence += others_evidence(view)
    else:
        text, step = "nothing that was seen shows what it is doing", stacks_step(view)
    ended = _ended_thread(view, cause, now_ns)
    evidence = (*ended, *evidence, *_children_evidence(view, cause, now_ns))
    step = _thread_step(view, cause) or step
    return Absence(Why(cause.cause, cause.layer, text), step, evidence, missing)


def ending_text(end: ProgramEnd, doing: str) -> str:
    """What keeps a process whose program is over; `doing` is what its thread does."""
    if end.stage == "groups":
        return "MainThread is in destroy_process_group, which does not return"
    threads = "; ".join(f"{one.name} {location_text(one.location)}" for one in end.threads)
    if end.stage == "exit":
        text = f"its program has finished, and an exit handler does not return: {doing}"
        return f"{text}; {threads}" if threads else text
    joined = "its program has finished, and MainThread joins its non-daemon threads"
    if not threads:
        return f"{joined}: {doing}"
    return f"{joined}: {'one of these: ' if len(end.threads) > 1 else ''}{threads}"


def ending_step(end: ProgramEnd, step: str) -> str:
    """What to do about it; `step` is the step for what its thread does."""
    if end.stage != "threads" or not end.threads:
        return step
    if len(end.threads) > 1:
        return "which of these is not a daemon? end it before the program ends, or make it a daemon"
    line = end.threads[0].location.line
    return f"look at {line}: end that thread before the program ends, or make it a daemon"


def _unseen(view: Rank) -> str:
    if not view.evidence.has_completion:
        return "the lines do not show what it does instead"
    ops = "its unfinished ops do not block it"
    if not view.pending:
        ops = "it has finished all ops that it issued"
    if not view.group_progress:
        ops = "its dump has no op"
    return f"{ops}; a dump does not show what it does instead"


def stacks_step(view: Rank, pid: int = 0, *, native: bool = False) -> str:
    """How to see the stacks of `view` or its child `pid`; if refused, what to change first."""
    pid = pid or _pid(view)
    if not pid:
        return (
            f"read the end of rank {view.rank}'s output; if its process still runs:"
            " py-spy dump --pid PID on its host"
        )
    refused = next((d for d in _dumps(view) if d.error in ("refused", "missing")), None)
    if refused is None or view.threads:
        return f"py-spy dump {'--native ' if native else ''}--pid {pid}"
    if refused.help:
        return f"to see its stacks: {refused.help}"
    return f"grep -H . /proc/{pid}/status /proc/{pid}/wchan"


def missing_stacks(view: Rank) -> tuple[str, ...]:
    """Why there are no stacks of a rank; empty if there are some."""
    if view.threads:
        return ()
    own = next((d for d in _dumps(view) if d.pid == view.identity.pid), None)
    problem = own.help or own.error if own is not None and own.error else "not taken yet"
    return (f"stacks of rank {view.rank}: {problem}",)


def _dumps(view: Rank) -> tuple[wire.StackDump, ...]:
    return view.snapshot.dumps if view.snapshot is not None else ()


def _stopped(view: Rank, now_ns: int) -> tuple[str, str]:
    process, since = view.process, _heartbeat_age(view, now_ns)
    assert process is not None
    if process.state == "t":
        step = f"grep TracerPid /proc/{process.pid}/status, and detach that debugger"
        return f"a debugger or tracer holds its process{since}", step
    return f"its process is stopped (SIGSTOP, state T){since}", f"kill -CONT {process.pid}"


def _gil_held(holder: wire.ThreadStack | None, view: Rank, now_ns: int) -> tuple[str, str]:
    since = _heartbeat_age(view, now_ns)
    if holder is None or not holder.frames:
        text = f"no Python code has run in it{since}: a thread holds the GIL in C code"
        return text, stacks_step(view, native=True)
    frame = user_frame(holder.frames)
    line = line_and_function(frame)
    source = f" `{frame.source}`" if frame.source else ""
    text = f"{name_of(view, holder)} holds the GIL{since} at {line}{source}"
    return text, f"look at {line}: a C call that does not release the GIL"


def _loading(
    batch: BatchWait, location: StackLocation | None, view: Rank, now_ns: int
) -> tuple[str, str]:
    worker, stack, name = batch.worker, batch.worker_stack, working_name(view)
    since = ""
    if batch.fetch is not None:
        since = f", for {duration(view.age_s(batch.fetch.begin_ns, now_ns))}"
    if location is not None and location.line:
        since += f"; {location.line}"
    if batch.loads_itself:
        doing = _file_text(working_process(view))
        text = f"{name} loads the next batch itself{f':{doing}' if doing else ''}{since}"
        return text, _file_step(working_process(view)) or stacks_step(view)
    doing, forking = _file_text(worker).strip(), batch.worker_is_forking
    if worker is not None and stack is not None and (forking or not doing):
        doing = _worker_text(view, stack, worker)
    last_fetch = view.status.fetch if view.status is not None else None
    pid = last_fetch.worker_pid if last_fetch is not None else 0
    if worker is not None:
        pid = worker.pid
    waited_for = _worker_name(view, batch)
    text = f"{name} waits for {waited_for}{f': {doing}' if doing else ''}{since}"
    return text, _file_step(worker) or stacks_step(view, pid, native=forking)


def _worker_evidence(batch: BatchWait) -> tuple[str, ...]:
    if batch.loads_itself:
        return ()
    locked = batch.worker_is_forking and is_asleep_on_lock(batch.worker)
    return (*_process_evidence(batch.worker), *([_LOCKED_AT_FORK] if locked else []))


def _worker_name(view: Rank, batch: BatchWait) -> str:
    """`DataLoader worker 2 of 4 (pid 90112)`, as far as known."""
    fetch = batch.fetch
    if fetch is not None and fetch.worker >= 0:
        count = f" of {fetch.workers}" if fetch.workers else ""
        pid = f" (pid {fetch.worker_pid})" if fetch.worker_pid else ""
        return f"DataLoader worker {fetch.worker}{count}{pid}"
    if batch.worker is None:
        return "a DataLoader worker"
    worker = starter_of(view, batch.worker)
    started = ""
    if worker is not batch.worker:
        started = f", which started pid {batch.worker.pid} ({batch.worker.name})"
    return f"a DataLoader worker (pid {worker.pid}){started}"


def _worker_text(view: Rank, stack: WorkerStack, worker: wire.Process) -> str:
    """`sleeps at data.py:31 (decode)`: what a worker does; "" if not known."""
    text, location = "", stack.location
    if stack.awaits_index:
        text = "waits for the next index"
    elif location is not None and location.line:
        text = f"at {location.line}"
        if location.kind not in ("unknown", "dataloader"):
            end = _other_end_text(view, location.kind, worker)
            does = LOCATIONS[location.kind].text
            text = f"{does if end else does.rstrip(':,')}{end} {text}"
        if location.kind == "pipe" and (started := _started_text(view, worker)):
            text += f"; it started {started}"
        threads = loading_threads(view, worker) if location.kind in _WITHIN else ()
        if len(threads) == 1:
            at = line_and_function(user_frame(threads[0].frames))
            text += f", and its {thread_name(threads[0])} is at {at}"
    if not stack.is_forking:
        return text
    if location is None and not stack.awaits_index:
        asleep = ", asleep on a lock" if is_asleep_on_lock(worker) else ""
        return f"is still in its fork{asleep}"
    return f"is still in its fork: {text}"


def place_text(view: Rank, now_ns: int) -> str:
    """What a rank does and where, equal for ranks that do the same."""
    cause = doing(view)
    if cause.location is None or cause.batch is not None or cause.cause == "gil":
        return absence_of(view, now_ns, cause).why.text
    chain = cause.chain
    text = f"{_what(view, cause.location).rstrip(':,')}{_at(cause.location)}"
    if chain is not None:
        links = links_text(view, chain)
        text = links if chain.is_deadlock or chain.end is None else f"{links}, which {text}"
    if cause.cause == "idle":  # one of these threads may be the one that works
        text = ", ".join((text, *others_evidence(view)))
    return f"{working_name(view)} {text}"


def location_text(location: StackLocation) -> str:
    """`waits for a socket at train.py:9 (main)`."""
    return f"{LOCATIONS[location.kind].text.rstrip(':,')}{_at(location)}"


def _what(view: Rank, location: StackLocation) -> str:
    """What the acting thread does; for remote calls, by its stack."""
    stack = acting_stack(view)
    if stack is not None and location.kind == "rpc" and (call := rpc_call_of(stack)) is not None:
        return f"waits for the answer to {call.text}"
    if location.kind == "idle" and _only_answers(view):
        return "is in rpc.shutdown, where it answers calls until no rank has any left"
    return LOCATIONS[location.kind].text


def _only_answers(view: Rank) -> bool:
    stack = working_stack(view)
    return stack is not None and serves_rpc(stack.frames)


def _at(location: StackLocation) -> str:
    at, leaf = f" at {location.line}" if location.line else "", location.leaf
    if leaf is not None and leaf.source and location.line.startswith(short_file(leaf.file)):
        at += f" `{leaf.source}`"
    return at


def _location_text(view: Rank, cause: AbsenceCause, location: StackLocation, now_ns: int) -> str:
    chain, leaf = cause.chain, location.leaf
    process = acting_process(view) if chain is not None else working_process(view)
    in_file = location.kind in FILE_KINDS
    detail = _file_text(process) if in_file else _other_end_text(view, location.kind, process)
    source = "" if location.sure or leaf is not None else ", by the kernel alone"
    newest, since = last_issued_ns(view), ""
    if newest and now_ns and view.evidence.has_ages:
        ago = age_words(view.age_s(newest, now_ns), least=last_issue_is_least(view))
        since = f"; its last op was {ago} ago"
    subject = working_name(view)
    if chain is not None:
        links = f"{subject} {links_text(view, chain)}"
        if chain.is_deadlock:
            return f"{links}: a deadlock of threads of this rank{since}"
        if chain.end is None:
            return f"{links}{since}"
        subject = f"{links}, which"
    return f"{subject} {_what(view, location)}{detail}{_at(location)}{source}{since}"


def _other_end_text(view: Rank, kind: LocationKind, process: wire.Process | None) -> str:
    """` pid 4711 (ffmpeg), state S`: the children, pipe or terminal that it may wait for."""
    file = process.file if process is not None else ""
    if kind in ("pipe", "input"):
        return f" {system_call(process)} {file}" if file else ""
    if kind != "child":
        return ""
    texts = _started_text(view, process)
    return f": {texts};" if texts else ""


def _started_text(view: Rank, process: wire.Process | None) -> str:
    """`pid 4711 (ffmpeg), state S`: what a DataLoader worker started, or all that a rank did."""
    children = view.snapshot.processes[1:] if view.snapshot is not None else ()
    if process is not None and any(one is process for one in children):  # a worker
        children = tuple(
            one for one in children if one is not process and starter_of(view, one) is process
        )
    return "; ".join(
        f"pid {child.pid} ({child.name}), state {child.state}"
        for child in children[:_MOST_CHILDREN]
    )


def _location_step(view: Rank, location: StackLocation, process: wire.Process | None) -> str:
    pid, line, stacks = _pid(view), location.line, stacks_step(view)
    if location.kind in FILE_KINDS and (step := _file_step(process)):
        return step
    if location.kind == "idle" and _only_answers(view):
        return f"which rank has calls left? {stacks}"
    if location.kind == "sleeping" and not line:
        return stacks
    return LOCATIONS[location.kind].step.format(
        pid=pid,
        line=line,
        rank=view.rank,
        stacks=stacks,
        top=f"py-spy top --pid {pid}" if stacks.startswith("py-spy") else f"top -H -p {pid}",
        file=typed(process.file) if process is not None else "",
    )


def _file_step(process: wire.Process | None) -> str:
    """What to look at if a process hangs at a file; "" if it does not."""
    kind = locate(None, process).kind
    if process is None or kind not in FILE_KINDS:
        return ""
    named = process.file.startswith("/")
    file = typed(process.file)  # quoted: a path may hold anything
    if kind == "file_lock":
        holder = f"lslocks | grep -F {file}; fuser {file}"
        return f"find who holds it: {holder if named else 'lslocks, or cat /proc/locks'}"
    if named and "pipe" in process.wchan:
        other = "read from" if "write" in process.wchan else "write to"
        return f"fuser -v {file}: it is a pipe; which process should {other} it?"
    if named:
        return f"timeout 5 stat -f {file}; check the file system it lies on"
    return f"ls -l /proc/{process.pid}/fd; cat /proc/{process.pid}/stack"


def _file_text(process: wire.Process | None) -> str:
    """` read /data/shard-0412, state D`: the file operation of a process; "" if in none."""
    if process is None or locate(None, process).kind not in FILE_KINDS:
        return ""
    call = system_call(process) or process.wchan or "in the kernel"
    file = f" {process.file}" if process.file else ""
    return f" {call}{file}{', state D' if process.state == 'D' else ''}"


def _pid(view: Rank) -> int:
    """The rank's pid; a dump may not have it, but the main thread of a stack does."""
    main = view.main_stack
    return view.identity.pid or (main.tid if main is not None else 0)


def _heartbeat_age(view: Rank, now_ns: int) -> str:
    beat = view.status.heartbeat_ns if view.status is not None else 0
    return f" for {duration(view.age_s(beat, now_ns))}" if beat else ""


def _process_evidence(process: wire.Process | None, name: str = "pid") -> tuple[str, ...]:
    if process is None:
        return ()
    parts = [f"{name} {process.pid} state {process.state}"]
    if process.syscall:
        parts.append(f"syscall {system_call(process)}")
    if process.wchan.strip():
        parts.append(f"wchan {process.wchan}")
    if process.file:
        parts.append(process.file)
    return (", ".join(parts),)
