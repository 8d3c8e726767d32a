"""Why a rank is absent, slow or dead, and where its thread is: each word declared once.

A new cause or place is a word in its `Literal` and a line in its table. `evidence.absence_cause`
finds a rank's cause, `evidence.stack_location` finds where its thread is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

Layer = Literal["software", "data", "device", "network", "unknown"]
SlowWord = Literal[
    "data", "compute", "network", "throttled", "starved", "neighbour", "sleeping", "lock",
    "file_io", "socket", "subprocess", "pipe", "unknown",
]  # fmt: skip
"""Causes of slowness."""
Cause = (
    Literal[
        "stopped", "gil", "dataloader", "input", "store", "rendezvous", "compiling", "computing",
        "device", "idle", "other_group", "rpc", "out_of_loop", "never_joined", "exited",
        "exception", "exit_status", "signal", "oom", "interrupted", "mismatch", "deadlock",
        "transport", "cut_off", "unobserved", "unreachable",
    ]
    | SlowWord
)  # fmt: skip
"""Causes of verdicts: stable words, in `--json` as well."""
CERTAIN: Final = frozenset[Cause]({"stopped", "gil"})
"""Causes that updates alone prove: they need no snapshot, and are never mere slowness."""


class CauseWords(NamedTuple):
    """What a cause means, for people."""

    layer: Layer  # unless a verdict knows better
    cell: str  # for a cell of a table
    sentence: str  # about a rank, if a verdict has nothing more precise
    step: str  # what to do, if a verdict has nothing better


_OUTPUT: Final = "read the end of its output"
_STEPS: Final = "compare the number of steps per rank"
_STACKS: Final = "py-spy dump --pid PID on its host"
CAUSES: Final[Mapping[Cause, CauseWords]] = {
    "stopped": CauseWords(
        "software", "stopped", "its process is stopped (SIGSTOP) or held by a debugger",
        "kill -CONT PID, or detach the debugger",
    ),
    "gil": CauseWords(
        "software", "holds the GIL", "a thread of it holds the GIL in C code",
        "py-spy dump --native --pid PID on its host",
    ),
    "dataloader": CauseWords(
        "data", "loads data", "it waits for a batch of its DataLoader, or loads one itself",
        "look at what the worker does, and at its storage",
    ),
    "file_io": CauseWords(
        "data", "file I/O", "it is in a file operation: read, write, open, stat",
        "timeout 5 stat -f FILE: does the file system answer?",
    ),
    "lock": CauseWords(
        "software", "waits for a lock",
        "it waits for a lock, a thread, a queue or a locked file, and nothing shows who has to act",
        _STACKS,
    ),
    "sleeping": CauseWords("software", "sleeps", "it sleeps", "look at the line that sleeps"),
    "socket": CauseWords(
        "network", "network", "it waits for a connection of its own, not of torch.distributed",
        "ss -tnp | grep pid=PID on its host",
    ),
    "pipe": CauseWords(
        "software", "waits at a pipe", "it waits for the other end of a pipe",
        "find the process at the other end",
    ),
    "input": CauseWords(
        "software", "waits for input", "it waits for standard input, or at a debugger's prompt",
        "answer it at its terminal",
    ),
    "subprocess": CauseWords(
        "software", "waits for a child", "it waits for a process that it started",
        "ps --ppid PID on its host",
    ),
    "store": CauseWords(
        "software", "waits for a store key",
        "it waits for a key of the store that another rank has to set",
        "which rank has to set the key?",
    ),
    "rendezvous": CauseWords(
        "network", "waits for the store", "it is in the rendezvous of `init_process_group`",
        "print MASTER_ADDR and MASTER_PORT of all ranks: the same?",
    ),
    "compiling": CauseWords("software", "compiles", "a compiler runs in it", _STACKS),
    "computing": CauseWords(
        "software", "computes", "it runs its own code, imports, or is in the backward pass",
        "py-spy top --pid PID on its host",
    ),
    "device": CauseWords(
        "device", "waits for its device",
        "it waits for its device, its device lags, or a call does not hand its op over",
        "nvidia-smi and dmesg on its host",
    ),
    "idle": CauseWords(
        "software", "waits for work",
        "it is an idle server: in an event loop, at a listening socket or at an empty queue",
        "send it work, or let the other ranks wait outside collectives",
    ),
    "other_group": CauseWords(
        "software", "in another collective", "it is in a collective of another group", _STACKS
    ),
    "rpc": CauseWords(
        "software", "in a remote call", "it waits for another rank's answer to a remote call",
        _STACKS,
    ),
    "out_of_loop": CauseWords(
        "software", "left the training loop",
        "it is in destroy_process_group or past it, and will issue nothing more", _STEPS,
    ),
    "never_joined": CauseWords(
        "unknown", "never joined", "it never appeared during start-up",
        "check whether it was started: squeue, ps, its output",
    ),
    "exited": CauseWords(
        "software", "left the program",
        "it ended by itself while others still had ops to do: fewer batches, or an early return",
        "compare the number of steps per rank: uneven data, or `break`/`return` on one rank"
        " (torch.distributed.algorithms.join.Join evens them out)",
    ),
    "exception": CauseWords("software", "raised", "an exception ended it", _OUTPUT),
    "exit_status": CauseWords(
        "software", "exit status", "it ended with a non-zero exit status; no exception was seen",
        _OUTPUT,
    ),
    "signal": CauseWords("software", "killed", "a signal ended it: a crash, or a kill", _OUTPUT),
    "oom": CauseWords(
        "software", "out of memory", "the kernel killed it for lack of memory",
        "less memory per rank, or a higher limit: dmesg | grep -i oom",
    ),
    "interrupted": CauseWords(
        "unknown", "interrupted", "somebody pressed Ctrl-C, or sent SIGINT",
        "nothing to look at in the code: it was ended on purpose",
    ),
    "mismatch": CauseWords(
        "software", "collective mismatch",
        "collective mismatch (desync): it issued another op than the others",
        "compare the calls of both sides: one too many, one too few, or a branch on the rank",
    ),
    "deadlock": CauseWords(
        "software", "deadlock", "deadlock: it waits for a rank that waits for it",
        "use groups in the same order on all of their ranks",
    ),
    "transport": CauseWords(
        "network", "op does not finish", "all have entered, and the op does not finish",
        "look at links and devices of these hosts: `ss -ti`, `ip -s link`, dmesg",
    ),
    "cut_off": CauseWords(
        "network", "cut off", "what is sent to it is never acknowledged",
        "ip -br link and ip -s link on its host; then its cable, its switch, its firewall",
    ),
    "unobserved": CauseWords(
        "unknown", "in an unobserved wait", "it is in a wait that frtop does not observe",
        "py-spy dump --native --pid PID on its host; nvidia-smi",
    ),
    "unreachable": CauseWords(
        "unknown", "does not report", "no agent reports it",
        "reach its host: is it up, and does the agent run there?",
    ),
    "unknown": CauseWords("unknown", "", "nothing that was seen shows the cause", _STACKS),
    "data": CauseWords(
        "data", "slow data", "a straggler: its batches take longer",
        "compare its shards, its storage and its workers' processors with those of the others",
    ),
    "compute": CauseWords(
        "software", "computes longer", "a straggler: it computes for longer than the others",
        "does it get more work than the others?",
    ),
    "network": CauseWords(
        "network", "slow network", "its link, or its host's network, is slow",
        "compare the interfaces of these hosts: speed and errors (ethtool, ibstat)",
    ),
    "throttled": CauseWords(
        "device", "GPU throttled", "a straggler: its GPU runs at a lower clock",
        "nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER on its host",
    ),
    "starved": CauseWords(
        "software", "lacks processors", "a straggler: it lacks processors or memory",
        "top on its host",
    ),
    "neighbour": CauseWords(
        "device", "shares its GPU", "a straggler: another process computes on its GPU",
        "nvidia-smi on its host lists them",
    ),
}  # fmt: skip

LocationKind = Literal[
    "collective",  # inside a c10d call or the wait for one
    "backward",  # the autograd engine runs, or waits for the gradient reducer
    "device",  # waits for a device to finish
    "store",  # in torch's rendezvous: waits for the key-value store
    "dataloader",
    "file_io",
    "file_lock",  # waits for a file that another process has locked
    "build_lock",  # waits for another process to build a C++ extension
    "sleeping",
    "lock",
    "socket",
    "idle",  # in an event loop or at a listening socket, with nothing to do
    "child",  # waits for a process that it started
    "pipe",  # at a full pipe that nobody reads, or at an empty one that nobody writes to
    "input",  # waits for its standard input, or for somebody to type into a debugger
    "key",  # waits for a key of a store, in a call that the program makes
    "rpc",  # waits for another rank's answer to a remote call
    "compiling",
    "importing",
    "computing",
    "unknown",
]


class LocationWords(NamedTuple):
    """What a place of a rank's thread means."""

    cause: Cause  # of the rank's absence
    text: str  # what the thread does there; a colon or comma at its end introduces details
    step: str = "{stacks}"  # what to do; `words.absence` fills in the fields


LOCATIONS: Final[Mapping[LocationKind, LocationWords]] = {
    "collective": LocationWords(
        "other_group", "waits in another collective or for another rank's send"
    ),
    "backward": LocationWords("computing", "is in the backward pass", "{top}"),
    "device": LocationWords("device", "waits for its device"),
    "store": LocationWords("rendezvous", "waits for the rendezvous store"),
    "dataloader": LocationWords("dataloader", "loads data"),
    "file_io": LocationWords(
        "file_io", "is in a file operation:", "ls -l /proc/{pid}/fd; look at {line}"
    ),
    "file_lock": LocationWords(
        "lock",
        "waits for a file that another process has locked:",
        "lslocks: which process holds the file? if none does, it may be a lock file that was left"
        " behind: does the process that made it still run?",
    ),
    "build_lock": LocationWords(
        "lock",
        "waits for another process to build a C++ extension, whose lock file it polls,",
        "if nobody builds (pgrep -a ninja), its builder was killed: remove the file"
        " `lock` of that extension in TORCH_EXTENSIONS_DIR (~/.cache/torch_extensions)",
    ),
    "sleeping": LocationWords("sleeping", "sleeps", "look at {line}"),
    "lock": LocationWords("lock", "waits for a lock or another thread"),
    "socket": LocationWords("socket", "waits for a socket", "ss -tnp | grep pid={pid}"),
    "idle": LocationWords(
        "idle",
        "waits for work from outside the job, in an event loop or at a listening socket",
        "send rank {rank} work; if that may take long, give the group a longer timeout, or let"
        " the other ranks wait outside collectives",
    ),
    "child": LocationWords(
        "subprocess",
        "waits for a process that it started",
        "ps -o pid,stat,wchan:30,args --ppid {pid}",
    ),
    "pipe": LocationWords(
        "pipe",
        "waits for the other end of a pipe:",
        "find its other end: ls -l /proc/[0-9]*/fd/* 2>/dev/null | grep -F {file}",
    ),
    "input": LocationWords(
        "input",
        "waits for input, or for somebody to type:",
        "answer it at its terminal, or remove what asks at {line}",
    ),
    "key": LocationWords(
        "store",
        "waits for a key of the store that another rank has to set,",
        "look at {line}: which rank has to set the key?",
    ),
    "rpc": LocationWords("rpc", "waits for another rank's answer to a remote call"),
    "compiling": LocationWords("compiling", "compiles"),
    "importing": LocationWords("computing", "imports a module"),
    "computing": LocationWords("computing", "runs", "{top}"),
    "unknown": LocationWords("unknown", "is"),
}
