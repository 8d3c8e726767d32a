"""One rank seen from outside at one time: processes, stacks, connections."""

from __future__ import annotations

from frtop_probe.wire.histories import Mark
from frtop_probe.wire.ops import Op
from frtop_probe.wire.ranks import RankStatus, TraceFrame
from frtop_probe.wire.values import Int, Value


class Process(Value, frozen=True, cache_hash=True):
    """A process or thread as /proc shows it. `wchan` and `syscall` are the main thread's.

    Both are "" if unreadable. `state` is the main thread's state letter, `file` the target of its
    current read, write or similar call, `cpu_ns` user + system time of all threads, `io_bytes` the
    bytes read + written (-1 unreadable), `rss` in bytes. `ready_ns` is how long the main thread
    ran or was ready to run, up to its last turn (-1 unreadable). `exit_status` is as in
    waitpid(2) (-1: the process lives, or it is unreadable).
    """

    pid: Int
    state: str
    name: str = ""
    wchan: str = ""
    syscall: str = ""
    file: str = ""
    cpu_ns: Int = 0
    io_bytes: Int = -1
    rss: Int = 0
    threads: Int = 0
    children: Int = 0
    parent: Int = 0
    ready_ns: Int = -1
    exit_status: Int = -1


class ThreadWait(Value, frozen=True):
    """What a thread waits for other threads of its process (or children) to do.

    `kind` is one of "thread" (its end), "future", "lock", "queue", "full queue", "tasks of a
    queue", "semaphore", "event" (or a condition, a barrier), and for children "pool", "child's
    queue", "child's full queue". `threads` are the pthread handles of the threads that it waits
    for: the joined one; those inside a `with` of that lock, or after its `acquire()`; those with
    the object in a variable; for a future, executor threads that have work. Empty if unknown.
    """

    kind: str
    threads: tuple[Int, ...] = ()


class ThreadStack(Value, frozen=True, cache_hash=True):
    """One thread of a dump. `ident` is the pthread handle, `tid` the native thread id.

    `wait` is known only if the local variables of the library's frames could be read.
    """

    ident: Int
    tid: Int
    name: str
    active: bool
    owns_gil: bool
    frames: tuple[TraceFrame, ...]
    wait: ThreadWait | None = None


class StackDump(Value, frozen=True):
    """The stacks of one process, or why there are none.

    `error` is one of "", "refused", "gone", "deadline", "missing", "failed", and for native stacks
    also "stopped" (it was, or a debugger holds it) and "uninterruptible" (a thread in state D);
    `help` is the message for the user, with the next step.
    """

    pid: Int
    threads: tuple[ThreadStack, ...] = ()
    error: str = ""
    help: str = ""


class DeadConnection(Value, frozen=True):
    """A TCP connection whose peer acknowledges nothing: `10.0.0.1:4711`, `[fe80::1]:4711`.

    `queued` bytes are unacknowledged; the oldest were resent `retransmits` times.
    """

    local: str
    remote: str
    queued: Int = 0
    retransmits: Int = 0


class EndedChild(Value, frozen=True):
    """A rank's child that lived for a while and ended; the agent noticed the end at `at_ns`."""

    pid: Int
    name: str
    at_ns: Int


class Snapshot(Value, frozen=True):
    """One rank at one time. `processes` has the rank first, then its descendants.

    `dead_connections` are the rank's own; `addresses` are its host's addresses with connections.
    """

    key: Int
    at_ns: Int
    status: RankStatus | None = None
    processes: tuple[Process, ...] = ()
    dumps: tuple[StackDump, ...] = ()
    ops: tuple[Op, ...] = ()
    ops_lost: Int = 0  # ops in between that cannot be read
    threads: tuple[Process, ...] = ()  # the rank's own threads; `pid` is the native thread id
    dead_connections: tuple[DeadConnection, ...] = ()
    addresses: tuple[str, ...] = ()
    ops_note: str = ""  # without a recorder: where `ops` come from, or why there are none
    marks: tuple[Mark, ...] = ()  # since the first of `ops`, oldest first
    ended: tuple[EndedChild, ...] = ()  # the last children of its main thread to end
