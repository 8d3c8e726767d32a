"""What is looked for in the lines of a log: one row per message.

The formats are those of the programs' own sources. `since` is the first version that has a message
or its present form; a row goes on to match later versions until one changes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal[
    "timeout", "status", "fault", "mismatch", "barrier", "reached", "join", "world",
    "restart", "failed", "traceback", "stack", "fatal", "heap", "op stack", "remark", "repeats",
    "version", "failure time", "failure host", "failure rank", "failure exit",
    "ended process", "ended with", "ended by", "ended tasks", "ended spawned", "step ends",
    "closing", "chained", "peer", "communicator", "address", "analysis",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Pattern:
    """`word` is a part of the line that is searched first; the named groups of `form` are facts.

    `means` says what a quoted line does not show by itself.
    """

    kind: Kind
    word: str
    form: re.Pattern[str]
    since: str
    means: str = ""

    def match(self, text: str) -> re.Match[str] | None:
        return self.form.search(text) if self.word in text else None


def _row(kind: Kind, word: str, form: str, since: str, means: str = "") -> Pattern:
    return Pattern(kind, word, re.compile(form), since, means)


GROUP: Final = re.compile(
    r"\[PG (?:ID \d+ PG GUID (?P<guid>[^\s(\]]{1,200})|(?P<name>[^\s\]]{1,200}))"
    r"(?: ?\((?P<description>[^()]{0,200})\))? Rank (?P<rank>\d{1,7})\]"
)
"""What torch 2.3 and later put before lines of a group; the rank is that within the group."""
WORK_RANK: Final = re.compile(r"\[Rank (?P<rank>\d{1,7})\]")
"""The same before torch 2.3; later, in lines on one op, of whichever group the process logged."""
_OP: Final = (
    r"WorkNCCL\((?:SeqNum=(?P<number>\d{1,20}), )?OpType=(?P<op>\w{1,64})"
    r"(?:, TensorShape=\[[^\]]{0,200}\])?"
    r"(?:, NumelIn=(?P<numel_in>\d{1,20}), NumelOut=(?P<numel_out>\d{1,20}))?"
    r", Timeout\(ms\)=(?P<timeout>\d{1,12})\)"
)
PATTERNS: Final = (
    _row("timeout", "Timeout(ms)=",
         _OP + r" (?:ran for (?P<ran>\d{1,12}) milliseconds before timing out"
         r"|timed out in blocking wait)", "torch 1.8"),
    _row("status", "ast enqueued ",
         r"(?:(?:Timeout at NCCL work|detected by watchdog at work(?: sequence id)?): "
         r"(?P<at>-?\d{1,20}),?(?: PG status:)? l|L)"
         r"ast enqueued (?:NCCL )?work: (?P<enqueued>-?\d{1,20})"
         r"(?:, last started (?:NCCL )?work: -?\d{1,20}(?: \([^)]{0,64}\))?)?"
         r", last completed (?:NCCL )?work: (?P<completed>-?\d{1,20})", "torch 2.3"),
    _row("fault", "watchdog thread terminated with exception",
         r"watchdog thread terminated with exception: "
         r"(?:\[Rank \d{1,7}\] )?(?P<text>(?:CUDA|NCCL) error: .{1,400})", "torch 2.0"),
    _row("fault", "what():  ",
         r"^ *what\(\): +(?:\[Rank \d{1,7}\] )?(?P<text>(?:CUDA|NCCL) error: .{1,400})",
         "torch 2.0"),
    _row("fault", "raised the following async exception",
         r"raised the following async exception: "
         r"(?P<text>NCCL error: remote process exited.{0,400})", "torch 2.5"),
    _row("remark", "raised the following async exception",
         r"raised the following async exception", "torch 2.5"),
    _row("mismatch", "Detected mismatch between collectives on ranks",
         r"Rank (?P<one>\d{1,7}) is running collective: CollectiveFingerPrint\("
         r"(?:SequenceNumber=(?P<one_number>\d{1,20}),? ?)?OpType=(?P<one_op>\w{1,64})"
         r"(?:, TensorShape=\[(?P<one_shape>[^\]]{0,400})\], TensorDtypes=(?P<one_dtype>\w{1,64}))?"
         r".{0,2000}?but Rank (?P<other>\d{1,7}) is running collective: CollectiveFingerPrint\("
         r"(?:SequenceNumber=(?P<other_number>\d{1,20}),? ?)?OpType=(?P<other_op>\w{1,64})"
         r"(?:, TensorShape=\[(?P<other_shape>[^\]]{0,400})\]"
         r", TensorDtypes=(?P<other_dtype>\w{1,64}))?", "torch 1.9"),
    _row("barrier", "failed to pass monitoredBarrier",
         r"\[Rank (?P<by>\d{1,7})\]: (?P<all>Ranks|Rank) (?P<ranks>\d{1,7}(?:, ?\d{1,7})*)"
         r" failed to pass monitoredBarrier in \d{1,12} ms", "torch 1.8"),
    _row("reached", "successfully reached monitoredBarrier",
         r"Rank (?P<rank>\d{1,7}) successfully reached monitoredBarrier", "torch 1.8"),
    # gloo: a rank puts its address into the store before it waits for those of others.
    _row("join", "wait timeout after ",
         r"wait timeout after \d{1,12}ms, keys: /default_pg/\d+//cpu//\d+/(?P<rank>\d{1,7})\s*$",
         "torch 2.12"),
    _row("world", "num_workers_joined=",
         r"world_size=(?P<size>\d{1,7}), num_workers_joined=\d{1,7}", "torch 2.0"),
    _row("restart", "will restart worker group",
         r"\[\w{1,64}\] (?:Worker group \w{1,20}\.|Detected ).{0,200}will restart worker group",
         "torch 1.9"),
    _row("failed", "failed (exitcode: ",
         r"failed \(exitcode: -?\d{1,5}\) local_rank: \d{1,7} \(pid: \d+\) of ", "torch 1.9"),
    _row("repeats", "Ray deduplicates logs", r"Ray deduplicates logs", "Ray 2.4"),
    _row("closing", "closing signal ", r"Sending process (?P<pid>\d{1,10}) closing signal SIG",
         "torch 1.9"),
    # torchrun's table of failures: a line for each fact.
    _row("failure time", "time      : ",
         r"^\s*time {6}: (\d{4})-(\d\d)-(\d\d)_(\d\d):(\d\d):(\d\d)", "torch 1.9"),
    _row("failure host", "host      : ", r"^\s*host {6}: (?P<host>\S{1,255})", "torch 1.9"),
    _row("failure rank", "rank      : ",
         r"^\s*rank {6}: (?P<rank>\d{1,7}) \(local_rank: (?P<local>-?\d{1,7})\)", "torch 1.9"),
    _row("failure exit", "exitcode  : ",
         r"^\s*exitcode {2}: (?P<code>-?\d{1,5}) \(pid: (?P<pid>\d{1,10})\)", "torch 1.9"),
    # The same of Open MPI, on two lines or one, and of Slurm.
    _row("ended process", "Process name: [",
         r"^\s*Process name: \[.{1,200},(?P<rank>\d{1,7})\]", "Open MPI"),
    _row("ended with", "Exit code: ", r"^\s*Exit code: +(?P<code>\d{1,5})\s*$", "Open MPI"),
    _row("ended by", "noticed that process rank ",
         r"noticed that process rank (?P<rank>\d{1,7}) with PID \d+ on node (?P<host>\S{1,255})"
         r" exited on signal (?P<signal>\d{1,3})", "Open MPI"),
    _row("step ends", "srun: launch/slurm: ",
         r"srun: launch/slurm: \w+: Terminating StepId", "Slurm 20.11"),
    _row("step ends", "srun: Terminating job step",
         r"srun: Terminating job step \d", "Slurm 2"),
    _row("step ends", "srun: Job step aborted: ", r"srun: Job step aborted: Waiting", "Slurm 2"),
    # torch.multiprocessing.spawn counts the processes that it has started.
    _row("ended spawned", "-- Process ",
         r"^-- Process (?P<rank>\d{1,7}) terminated with the following error:", "torch 1.1"),
    _row("ended spawned", "terminated with ",
         r"ProcessExitedException: process (?P<rank>\d{1,7}) terminated with "
         r"(?:exit code (?P<code>\d{1,3})|signal SIG(?P<signal>[A-Z]{1,10}))", "torch 1.6"),
    _row("ended tasks", "srun: error: ",
         r"srun: error: (?P<host>\S{1,255}): tasks? (?P<tasks>[\d,-]{1,1000}): "
         r"(?:Exited with exit code (?P<code>\d{1,3})|(?P<signal>[A-Z][\w /]{1,40}))", "Slurm"),
    # torch's analyzer of Flight Recorder dumps: a line for each fact.
    _row("analysis", "Not all ranks joining", r"Not all ranks joining collective, sequence number: "
         r"(?P<number>\d{1,15})$", "torch 2.7"),
    _row("analysis", "group info: ",
         r"group info: (?P<group>[^:]{1,200}):(?P<description>.{0,200})$", "torch 2.5"),
    _row("analysis", "collective: ",
         r"(?:^|[ :])collective: \w{1,20}:(?P<op>\w{1,64})$", "torch 2.5"),
    _row("analysis", "missing ranks: {", r"missing ranks: \{(?P<missing>\d{1,7}(?:, \d{1,7})*)\}",
         "torch 2.5"),
    _row("analysis", "expected ranks: {", r"expected ranks: \{(?P<members>\d{1,7}(?:, \d{1,7})*)\}",
         "torch 2.7"),
    _row("traceback", "ost recent call ",
         r"^(?P<row> +traceback : )?(?P<ends>Scheduler hit an exception: )?"
         r"Traceback \(most recent call last\):", "Python; SGLang"),
    _row("chained", "above exception", r"^(?:The|During handling of the) above exception"
         r"(?: was the direct cause|, another exception occurred)", "Python 3"),
    _row("stack", "ost recent call ",
         r"^(?:(?:Current thread|Thread) 0x[0-9a-f]{1,16}(?: \[.{0,200}\])?|Stack)"
         r" \(most recent call first\):$", "Python 3.3; names in 3.14"),
    # The C library aborts a process whose memory was overwritten.
    _row("heap", "free(): ",
         r"(?P<what>\bfree\(\): (?:double free detected|invalid|corrupted) .{1,100})", "glibc"),
    _row("heap", "corrupt", r"(?P<what>\bdouble free or corruption \(.{1,20}\)"
         r"|\b(?:malloc|realloc)\(\): corrupted .{1,100}"
         r"|\bcorrupted (?:size vs\.|double-linked) .{1,50})", "glibc"),
    _row("heap", "stack smashing detected", r"(?P<what>stack smashing detected)", "glibc"),
    _row("fatal", "Fatal Python error: ", r"^Fatal Python error: (?P<what>.{1,200})", "Python 3.3"),
    _row("fatal", "Timeout (", r"^(?P<what>Timeout) \(\d+:\d\d:\d\d(?:\.\d{1,6})?\)!$",
         "Python 3.3"),
    _row("stack", "Process ", r"^Process \d{1,10}: ", "py-spy"),
    _row("stack", "Python v3.", r"^Python v3\.\d", "py-spy"),
    _row("op stack", "Stack trace of the failed collective: ",
         r"Stack trace of the failed collective: \s*$", "torch 2.6"),
    _row("remark", "NVRM: Xid (", r"NVRM: Xid \([^)]*\): (?P<xid>\d{1,4})\b", "NVIDIA's driver"),
    # Of vLLM and SGLang. That shared memory has no free block is no sign: readers may be at work.
    _row("remark", "Worker proc ", r"Worker proc \S{1,64} died unexpectedly", "vLLM V1"),
    _row("remark", "EngineCore encountered a fatal error",
         r"EngineCore encountered a fatal error", "vLLM V1"),
    _row("remark", "RPC call to ", r"RPC call to \w{1,64} timed out", "vLLM V1",
         "some worker did not answer; which one, this does not say"),
    _row("remark", "atchdog timeout (self.", r"[Ww]atchdog timeout \(self\.", "SGLang",
         "this scheduler hangs or waits for another one; its stack shows which"),
    _row("remark", "Received sigquit from a child process",
         r"Received sigquit from a child process", "SGLang",
         "a child failed; which one, this does not say"),
    _row("remark", "oom", r"oom[-_]kill|oom_reaper: reaped", "Linux, Slurm"),
    _row("remark", "ut of memory: Killed process",
         r"[Oo]ut of memory: Killed process \d+", "Linux"),
    _row("remark", "error: *** ",
         r"slurmstepd\S*: error: \*\*\* (?:JOB|STEP) \S+ ON \S+ (?:CANCELLED|FAILED)", "Slurm"),
    _row("remark", "srun: error: ", r"srun: error: Node failure", "Slurm"),
    _row("peer", "NCCL WARN",
         r"(?:(?P<host>[^\s:\[\]]{1,255}):(?P<pid>\d{1,10}):\d+ \[-?\d+\] .{0,200})?"
         r"NCCL WARN .{0,200}?(?:remote peer|completion from peer|recv from|send to)"
         r" (?P<peer>[^\s<]{1,64})<\d+>",
         "NCCL 2.18"),
    _row("remark", "NCCL WARN", r"NCCL WARN .+", "NCCL 2"),
    _row("communicator", "Init COMPLETE",
         r"(?P<host>[^\s:\[\]]{1,255}):(?P<pid>\d{1,10}):\d+ \[-?\d+\] NCCL INFO .{0,200}"
         r"\brank (?P<rank>\d{1,7}) nranks (?P<size>\d{1,7}) .{0,300}Init COMPLETE", "NCCL 2.18"),
    _row("address", ": Using ",
         r"(?P<host>[^\s:\[\]]{1,255}):\d+:\d+ \[-?\d+\] NCCL INFO Bootstrap ?: Using"
         r" [\w.\[\]-]{1,32}:(?P<address>[^\s<]{1,64})<\d+>", "NCCL 2.18"),
    _row("remark", "watchdog got stuck for", r"watchdog got stuck for \d+ seconds", "torch 2.3"),
    _row("remark", "Could not acquire GIL",
         r"Could not acquire GIL within \d+ ms", "torch 2.3"),
    _row("remark", "waiting for clients", r"Timed out after \d+ seconds waiting for clients",
         "torch 1.8"),
    _row("remark", "uninterruptible kernel sleep", r"may be in uninterruptible kernel sleep",
         "torch 2.13"),
    _row("remark", "DataLoader worker (pid",
         r"DataLoader worker \(pid\S* \d+\) (?:is killed by signal|exited unexpectedly)",
         "torch 1.0"),
    _row("remark", "below the recommended minimum of",
         r"Detected kernel version \S{1,64}, which is below the recommended minimum of",
         "accelerate 0.22"),
    _row("remark", "rank to GPU mapping",
         r"cause a hang if (?:this )?rank to GPU mapping is", "torch 2.1"),
    # Of a desync report: its ranks are a group's, and groups overwrite each other's. Only a note.
    _row("remark", "collective #",
         r"\[[\d, ]{1,400}\] (?:joined but didn't finish collective #\d{1,20}"
         r"|finished collective #\d{1,20}, but didn't join collective #)", "torch 2.0"),
    _row("version", "NCCL version ", r"NCCL version (?P<version>\d{1,3}\.\d{1,3}\.\d{1,3})",
         "NCCL 2"),
)  # fmt: skip
SECONDS: Final = (b"Python v3.",)
"""What `scan` searches for to find the line before it, too: py-spy's header has two."""
WORDS: Final = tuple(
    word
    for word in dict.fromkeys(one.word.encode() for one in PATTERNS)
    if word not in (b"Process ", *SECONDS)
)
"""What `scan` searches for."""
_XIDS: Final = {
    "usually the program's own: an illegal access of a kernel": (13, 31, 43),
    "usually follows from another error, or from the end of the process": (45,),
    "usually hardware: memory of the GPU": (48, 63, 64, 92, 94, 95, 140, 171, 172),
    "usually hardware: NVLink": (74, 136, 137, 144, 145, 146, 147, 148, 149, 150, 155),
    "usually hardware: the GPU, or its PCIe link": (79, 167),
    "usually the driver or the GPU's firmware": (61, 62, 109, 119, 120, 143, 158),
    "says which reset the GPU needs": (154,),
}
XIDS: Final = {str(xid): means for means, xids in _XIDS.items() for xid in xids}
"""What class of error an Xid mostly is. NVIDIA's list has them all."""
OPS: Final = {
    "ALLREDUCE": "all_reduce",
    "ALLREDUCE_COALESCED": "all_reduce_coalesced",
    "ALLGATHER": "all_gather",
    "_ALLGATHER_BASE": "all_gather_into_tensor",
    "ALLGATHER_COALESCED": "all_gather_coalesced",
    "ALLTOALL": "all_to_all",
    "ALLTOALL_BASE": "all_to_all_single",
    "_REDUCE_SCATTER_BASE": "reduce_scatter_tensor",
}
"""Names as users write them, where c10d's `OpType` in lower case is another one."""
NOT_COMPARABLE: Final = frozenset({"SEND", "RECV", "RECVANYSOURCE", "COALESCED", "UNKNOWN"})
"""Counted apart from collectives, or several calls as one."""
