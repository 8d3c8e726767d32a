"""Why a rank has not entered an op: the best sign there is, from the surest to the weakest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.diagnosis.blocked.blocked_op import is_fetching, main_place
from frtop_tui.diagnosis.evidence import dataloader_worker as workers
from frtop_tui.diagnosis.evidence import stack_location as places
from frtop_tui.diagnosis.evidence.idle_server import awaits_work
from frtop_tui.diagnosis.evidence.stack_location import StackLocation
from frtop_tui.diagnosis.model import Layer, Why
from frtop_tui.job.frames import own_frame, short_file
from frtop_tui.job.model import Rank
from frtop_tui.job.naming import duration, folded, typed


@dataclass(frozen=True, slots=True)
class Absence:
    """A cause, the step that fits it, what shows it, and what could not be seen."""

    why: Why
    next: str
    evidence: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def absence_of(view: Rank, now_ns: int) -> Absence:
    """Why `view`, which is alive and not blocked in an op, is not there."""
    if not (view.evidence.has_process or view.evidence.has_stacks):
        return _by_dump(view)
    for explain in _EXPLANATIONS:
        found = explain(view, now_ns)
        if found is not None:
            return found
    return Absence(
        Why("unknown", "unknown", "nothing that could be seen tells what it is doing"),
        stacks_step(view),
        _process_evidence(view),
        missing_stacks(view),
    )


def stacks_step(view: Rank, pid: int = 0, *, native: bool = False) -> str:
    """How to see the stacks of `view` or its child `pid`; first what to change, if refused."""
    pid = pid or _pid(view)
    if not pid:
        return (
            f"read the end of rank {view.rank}'s output; if it still lives:"
            " py-spy dump --pid PID on its host"
        )
    dumps = view.snapshot.dumps if view.snapshot is not None else ()
    refused = next((dump for dump in dumps if dump.error in ("refused", "missing")), None)
    if refused is None or view.threads:
        return f"py-spy dump {'--native ' if native else ''}--pid {pid}"
    if refused.help:
        return f"to see its stacks: {refused.help}"
    return f"grep -H . /proc/{pid}/status /proc/{pid}/wchan"


def _pid(view: Rank) -> int:
    """Its process, also of one whose dump does not tell, but its stack: the main thread's."""
    main = view.main_stack
    return view.identity.pid or (main.tid if main is not None else 0)


def _by_dump(view: Rank) -> Absence:
    """A dump tells what a rank has issued, not what it does instead of the next op."""
    text = (
        "nothing of what it issued is unfinished"
        if not view.pending
        else ("what it issued keeps it from nothing")
    )
    return Absence(
        Why("unknown", "unknown", f"{text}; what it does instead is in no dump"),
        stacks_step(view),
        missing=("its stack and its process",),
    )


def _stopped(view: Rank, now_ns: int) -> Absence | None:
    process = view.process
    if process is None or process.state not in ("T", "t"):
        return None
    since = _beat_age(view, now_ns)
    if process.state == "t":
        return Absence(
            Why("stopped", "software", f"a debugger or tracer holds its process{since}"),
            f"grep TracerPid /proc/{process.pid}/status, and detach that debugger",
            _process_evidence(view),
        )
    return Absence(
        Why("stopped", "software", f"its process is stopped (SIGSTOP, state T){since}"),
        f"kill -CONT {process.pid}",
        _process_evidence(view),
    )


def _holds_gil(view: Rank, now_ns: int) -> Absence | None:
    owner = next((thread for thread in view.threads if thread.owns_gil), None)
    # Without a beat only a sleeper tells: who runs Python code has the GIL as well.
    asleep = view.status is None and owner is not None and not owner.active
    if view.state != "silent" and not asleep:
        return None
    since = _beat_age(view, now_ns)
    if owner is not None and owner.frames:
        frame = own_frame(owner.frames)
        source = f" `{frame.source}`" if frame.source else ""
        name = _thread_name(view, owner)
        text = f"{name} holds the GIL{since} at {places.place_line(frame)}{source}"
        step = f"look at {places.place_line(frame)}: a C call that does not release the GIL"
    else:
        text = f"no Python code runs in it{since}: some thread holds the GIL in C"
        step = stacks_step(view, native=True)
    return Absence(
        Why("gil", "software", text), step, _process_evidence(view), missing_stacks(view)
    )


def _fetches(view: Rank, now_ns: int) -> Absence | None:
    fetch = view.status.fetch if view.status is not None else None
    place = main_place(view)
    inside = is_fetching(view)
    if not inside and (place is None or place.kind != "dataloader"):
        return None
    if place is not None and place.kind != "dataloader" and place.sure and place.kind != "lock":
        return None  # the cell speaks of another thread, which prefetches
    line = f"; {place.line}" if place is not None and place.line else ""
    since = ""
    if inside and fetch is not None:
        since = f", for {duration(view.age_s(fetch.begin_ns, now_ns))}"
    worker = workers.worker_of(view)
    if fetch is not None and inside and fetch.worker == -2:
        text = f"MainThread loads the next batch itself{_doing(view.process)}{since}{line}"
        return Absence(
            Why("dataloader", "data", text),
            _file_step(view.process) or stacks_step(view),
            _process_evidence(view),
            missing_stacks(view),
        )
    who = "a DataLoader worker"
    if fetch is not None and inside and fetch.worker >= 0:
        count = f" of {fetch.workers}" if fetch.workers else ""
        pid = f" (pid {fetch.worker_pid})" if fetch.worker_pid else ""
        who = f"DataLoader worker {fetch.worker}{count}{pid}"
    elif worker is not None:
        who = f"a DataLoader worker (pid {worker.pid})"
    doing, forking = _doing(worker).strip(), False
    if worker is not None and (stack := workers.stack_of(view, worker)) is not None:
        forking = workers.is_forking(stack)
        doing = workers.doing(stack, worker) if forking or not doing else doing
    text = f"MainThread waits for {who}{f': {doing}' if doing else ''}{since}{line}"
    pid_there = worker.pid if worker is not None else fetch.worker_pid if fetch is not None else 0
    step = _file_step(worker) or stacks_step(view, pid_there, native=forking)
    evidence = (
        *_process_evidence(view),
        *([_process_line(worker)] if worker else []),
        *([workers.AT_FORK] if forking and places.is_asleep_on_lock(worker) else []),
    )
    layer: Layer = "software" if forking else "data"
    return Absence(Why("dataloader", layer, text), step, evidence, missing_stacks(view))


def _at_place(view: Rank, now_ns: int) -> Absence | None:
    """By the stack of the main thread, or by what the kernel alone says."""
    place = main_place(view) or places.classify(None, view.process)
    if place.kind == "lock" and awaits_work(view):
        place = replace(place, kind="idle")
    if place.kind == "unknown" and not place.line:
        return None
    cause, layer = _CAUSES[place.kind]
    at = f" at {place.line}" if place.line else ""
    if (
        place.leaf is not None
        and place.leaf.source
        and place.line.startswith(short_file(place.leaf.file))
    ):
        at += f" `{place.leaf.source}`"
    doing = _doing(view.process) if place.kind in places.FILES else _other_end(view, place.kind)
    since = _since(view, now_ns)
    text = f"MainThread {_VERBS[place.kind]}{doing}{at}{since}"
    return Absence(
        Why(cause, layer, text),
        _step(view, place),
        _process_evidence(view),
        missing_stacks(view),
    )


def _other_end(view: Rank, kind: places.Kind) -> str:
    """` pid 4711 (ffmpeg), state S`: children that it may wait for; else its pipe or terminal."""
    file = view.process.file if view.process is not None else ""
    if kind in ("pipe", "input"):
        return f" {places.system_call(view.process)} {file}" if file else ""
    if kind != "child" or view.snapshot is None:
        return ""
    children = [f"pid {c.pid} ({c.name}), state {c.state}" for c in view.snapshot.processes[1:4]]
    return f": {'; '.join(children)};" if children else ""


def _step(view: Rank, place: StackLocation) -> str:
    pid = _pid(view)
    pipe = typed(view.process.file) if view.process is not None else ""
    dump = stacks_step(view)
    steps: dict[places.Kind, str] = {
        "file_io": _file_step(view.process) or f"ls -l /proc/{pid}/fd; look at {place.line}",
        "file_lock": _file_step(view.process) or "lslocks; who holds the file?",
        "sleeping": f"look at {place.line}" if place.line else dump,
        "computing": _top(dump, pid),
        "backward": _top(dump, pid),
        "child": f"ps -o pid,stat,wchan:30,args --ppid {pid}",
        "pipe": f"who has its other end: ls -l /proc/[0-9]*/fd/* 2>/dev/null | grep -F {pipe}",
        "input": f"answer it at its terminal, or take out what asks at {place.line}",
        "key": f"who has to set the key? look at {place.line}",
        "socket": f"ss -tnp | grep pid={pid}",
        "idle": f"send rank {view.rank} work; if it may be long in coming, give the group a longer"
        " timeout, or let the others wait outside of collectives",
    }
    return steps.get(place.kind, dump)


def _top(dump: str, pid: int) -> str:
    return f"py-spy top --pid {pid}" if dump.startswith("py-spy") else f"top -H -p {pid}"


def _file_step(process: wire.Process | None) -> str:
    """What to look at when a process hangs in a file: the path, or its descriptors."""
    kind = places.classify(None, process).kind
    if process is None or kind not in places.FILES:
        return ""
    named = process.file.startswith("/")
    file = typed(process.file)  # to be typed: a path may hold more than a path
    if kind == "file_lock":
        holder = f"lslocks | grep {file}; fuser {file}"
        return f"who holds it: {holder if named else 'lslocks, or cat /proc/locks'}"
    if named:
        return f"timeout 5 stat -f {file}; check the file system it lies on"
    return f"ls -l /proc/{process.pid}/fd; cat /proc/{process.pid}/stack"


def _doing(process: wire.Process | None) -> str:
    """` read /data/shard-0412, state D`: what the kernel says a process does."""
    if process is None or places.classify(None, process).kind not in places.FILES:
        return ""
    call = places.system_call(process) or process.wchan or "in the kernel"
    file = f" {process.file}" if process.file else ""
    return f" {call}{file}{', state D' if process.state == 'D' else ''}"


def _beat_age(view: Rank, now_ns: int) -> str:
    beat = view.status.beat_ns if view.status is not None else 0
    return f" for {duration(view.age_s(beat, now_ns))}" if beat else ""


def _since(view: Rank, now_ns: int) -> str:
    """How long ago it did anything that we see. Of a dump the last op is the last we know."""
    if not view.evidence.has_ages:
        return ""
    newest = max((front.issued_ns for front in view.group_progress.values()), default=0)
    return f"; its last op was {duration(view.age_s(newest, now_ns))} ago" if newest else ""


def _thread_name(view: Rank, thread: wire.ThreadStack) -> str:
    if thread.ident == view.identity.main_ident:
        return "MainThread"
    return f"thread {thread.name or thread.tid}"


def _process_evidence(view: Rank) -> tuple[str, ...]:
    return (_process_line(view.process),) if view.process is not None else ()


def _process_line(process: wire.Process) -> str:
    parts = [f"pid {process.pid} state {process.state}"]
    if process.syscall:
        parts.append(f"syscall {places.system_call(process)}")
    if process.wchan.strip():
        parts.append(f"wchan {process.wchan}")
    if process.file:
        parts.append(process.file)
    return ", ".join(parts)


def missing_stacks(view: Rank) -> tuple[str, ...]:
    """Why there are no stacks, if there are none."""
    if view.threads:
        return ()
    dumps = view.snapshot.dumps if view.snapshot is not None else ()
    own = next((d for d in dumps if d.pid == view.identity.pid), None)
    if own is not None and own.error:
        return (f"stacks of rank {view.rank}: {own.help or own.error}",)
    return (f"stacks of rank {view.rank}: not taken yet",)


_EXPLANATIONS: Final[tuple[Callable[[Rank, int], Absence | None], ...]] = (
    _stopped,
    _holds_gil,
    _fetches,
    _at_place,
)

_CAUSES: Final[dict[places.Kind, tuple[str, Layer]]] = {
    "collective": ("other_group", "software"),
    "backward": ("computing", "software"),
    "device": ("device", "device"),
    "store": ("rendezvous", "network"),
    "dataloader": ("dataloader", "data"),
    "file_io": ("file_io", "data"),
    "file_lock": ("lock", "software"),
    "sleeping": ("sleeping", "software"),
    "lock": ("lock", "software"),
    "socket": ("socket", "network"),
    "idle": ("idle", "software"),
    "child": ("subprocess", "software"),
    "pipe": ("pipe", "software"),
    "input": ("input", "software"),
    "key": ("store", "software"),
    "compiling": ("compiling", "software"),
    "importing": ("computing", "software"),
    "computing": ("computing", "software"),
    "unknown": ("unknown", "unknown"),
}
_VERBS: Final[dict[places.Kind, str]] = {
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
    "child": "waits for a process that it has started",
    "pipe": "waits for the other end of a pipe:",
    "input": "waits for its input, or for somebody to type:",
    "key": "waits for a key of the store, which another rank has to set,",
    "compiling": "compiles",
    "importing": "imports a module",
    "computing": "runs",
    "unknown": "is",
}


def never_joined(ranks: Sequence[int]) -> Absence:
    """For ranks of the world of which nobody has ever heard."""
    return Absence(
        Why(
            "never_joined",
            "unknown",
            f"{folded(ranks)} never appeared: not started, died before the first group,"
            " not prepared, on a host that is not connected, or given another MASTER_ADDR or"
            " MASTER_PORT",
        ),
        "look whether the processes of these ranks were started at all: squeue, ps, their output",
        (),
        (f"{folded(ranks)} cannot be seen",),
    )
