"""Realistic frames for the tests of screens and for the pictures.

Every host's clock is `CLOCK` late: a screen that does not convert times shows wrong ages.
"""

from __future__ import annotations

from msgspec.structs import replace

from frtop_probe import wire
from frtop_probe.ring.rank_ranges import fold, unfold
from frtop_tui.diagnosis.model import Frame, JudgedRank, OpName, Verdict, Why
from frtop_tui.job.model import (
    Coverage,
    CoverageNote,
    GroupView,
    HostView,
    Problem,
    RankState,
)
from frtop_tui.job.naming import GroupKey

S = 1_000_000_000
NOW = 90_000 * S
CLOCK = 40_000 * S
HOST_NOW = NOW - CLOCK
WALL = 1_790_000_000 * S
JOB = wire.Job("node0", 29500, 64, run_id="r1", name="llama-70b")
WORLD, TP = 1, 2
CULPRIT = 37
MAIN = 140_001
DP_KEY = GroupKey("0", "0-63")

SITE = wire.Site("/home/ml/llama/train.py", 231, "train")
TP_SITE = wire.Site("/home/ml/llama/model/parallel.py", 88, "forward")
GRAD = wire.Signature(
    "all_reduce", reduce="avg", inputs=(wire.TensorSpec("bfloat16", (26214400,)),)
)
GATHER = wire.Signature("all_gather", inputs=(wire.TensorSpec("bfloat16", (4096, 8192)),))


def op(
    sequence: int,
    number: int,
    age_s: float,
    took_ms: float = 0.0,
    *,
    group: int = WORLD,
    signature: wire.Signature = GRAD,
    site: wire.Site = SITE,
) -> wire.Op:
    issued = HOST_NOW - int(age_s * S)
    done = issued + int(took_ms * 1e6) if took_ms else 0
    return wire.Op(sequence, group, number, signature, site, issued, done, MAIN, sync=True)


def history(last: int, age_s: float, length: int = 40) -> tuple[wire.Op, ...]:
    """The last ops of a rank, oldest first: two gathers, then an all_reduce."""
    ops: list[wire.Op] = []
    for back in range(length, 0, -1):
        sequence = last * 3 - back
        since = age_s + back * 0.3
        if back % 3 == 1:
            ops.append(op(sequence, last - back // 3, since, 18.2 + back % 5))
        else:
            ops.append(
                op(sequence, 41207 - back, since, 1.1, group=TP, signature=GATHER, site=TP_SITE)
            )
    return tuple(ops)


def trace_frame(function: str, file: str, line: int, source: str = "") -> wire.TraceFrame:
    return wire.TraceFrame(function, file, line, source=source)


_PACKAGES = "/opt/venv/lib/python3.12/site-packages/"
_DATALOADER = _PACKAGES + "torch/utils/data/dataloader.py"
LOADING = (
    trace_frame("wait", "/usr/lib/python3.12/threading.py", 359),
    trace_frame("get", "/usr/lib/python3.12/queue.py", 180),
    trace_frame("_try_get_data", _DATALOADER, 1275),
    trace_frame("_get_data", _DATALOADER, 1444),
    trace_frame("_next_data", _DATALOADER, 1480),
    trace_frame("__next__", _DATALOADER, 733),
    trace_frame("train", SITE.file, 214, "batch = next(batches)"),
    trace_frame("main", SITE.file, 301, "train(model, loader, args)"),
    trace_frame("<module>", SITE.file, 310, "main()"),
)
REDUCING = (
    trace_frame("all_reduce", _PACKAGES + "torch/distributed/distributed_c10d.py", 2990),
    trace_frame("wrapper", _PACKAGES + "torch/distributed/c10d_logger.py", 81),
    trace_frame("train", SITE.file, 231, "dist.all_reduce(grad, op=dist.ReduceOp.AVG)"),
    trace_frame("main", SITE.file, 301, "train(model, loader, args)"),
    trace_frame("<module>", SITE.file, 310, "main()"),
)
PINNING = (
    trace_frame("wait", "/usr/lib/python3.12/threading.py", 359),
    trace_frame("do_one_step", _PACKAGES + "torch/utils/data/_utils/pin_memory.py", 37),
    trace_frame("_pin_memory_loop", _PACKAGES + "torch/utils/data/_utils/pin_memory.py", 61),
    trace_frame("run", "/usr/lib/python3.12/threading.py", 1012),
)


def snapshot(
    rank: int, frames: tuple[wire.TraceFrame, ...], age_s: float = 0.6, *, waits: bool = False
) -> wire.Snapshot:
    pid = 90_040 + rank
    threads = [wire.ThreadStack(MAIN, pid, "MainThread", False, False, frames)]
    processes = [
        wire.Process(pid, "S", "python", "futex_wait", "", "", 9_000 * S, 0, 41 << 30, 31, 4)
    ]
    if waits:
        threads.append(wire.ThreadStack(MAIN + 1, pid + 7, "Thread-1", False, False, PINNING))
        processes += [
            wire.Process(
                90_110 + index,
                "D" if index == 2 else "S",
                "pt_data_worker",
                "rpc_wait_bit" if index == 2 else "futex_wait",
                "read" if index == 2 else "",
                "/data/shard-0412" if index == 2 else "",
                800 * S,
                0,
                2 << 30,
                3,
                parent=pid,
            )
            for index in range(4)
        ]
    return wire.Snapshot(
        rank,
        HOST_NOW - int(age_s * S),
        None,
        tuple(processes),
        (wire.StackDump(pid, tuple(threads)),),
        history(8811 if waits else 8812, 252.0),
    )


def rank_view(
    number: int, state: RankState, *, per_host: int = 8, age_s: float = 252.0
) -> JudgedRank:
    """A rank that waits in #8812, or has not come so far, or moves."""
    pid = 90_040 + number
    late = state == "late"
    waits = op(30_000, 8812, age_s) if state == "blocked" else None
    last = 8811 if late else 8812
    group = wire.Group(WORLD, "0", "dp:0", "nccl", "0-63", timeout_s=600.0)
    base = number - number % 8
    tensor = wire.Group(TP, f"t{base}", f"tp:{base // 8}", "nccl", fold(range(base, base + 8)))
    fetch = wire.DataLoaderFetch(HOST_NOW - int(age_s * S), 0, 2, 90_112, 4) if late else None
    return JudgedRank(
        rank=number,
        host=f"node{number // per_host}",
        key=number,
        identity=wire.Identity(
            pid, 1, number, number % per_host, JOB, cwd="/home/ml/llama", main_ident=MAIN
        ),
        state=state,
        state_since_ns=NOW - int(age_s * S),
        reported_ns=NOW - S // 5,
        clock_ns=CLOCK,
        status=wire.RankStatus(
            1, HOST_NOW - S // 5, last * 3, step=2203, step_ns=HOST_NOW - 260 * S, fetch=fetch
        ),
        groups={WORLD: group, TP: tensor},
        group_progress={WORLD: wire.GroupProgress(WORLD, last, 0, HOST_NOW - int(age_s * S))},
        pending=(waits,) if waits else (),
        blocked_on=waits,
        process=wire.Process(
            pid, "S", "python", "futex_wait", cpu_ns=9_000 * S, rss=41 << 30, children=4
        ),
    )


def groups(late: tuple[int, ...], waiting: tuple[int, ...], idle_s: float) -> tuple[GroupView, ...]:
    everyone = tuple(range(64))
    issued_ns = NOW - int(idle_s * S)
    found = [
        GroupView(
            DP_KEY, "dp:0", "nccl", everyone, 8812, op(1, 8812, 1), late, waiting, True, issued_ns
        )
    ]
    for base in range(0, 64, 8):
        members = tuple(range(base, base + 8))
        found.append(
            GroupView(
                GroupKey(f"t{base}", fold(members)),
                f"tp:{base // 8}",
                "nccl",
                members,
                41207,
                op(2, 41207, 1, 1.1, group=TP, signature=GATHER),
                issued_ns=issued_ns,
            )
        )
    return tuple(found)


def hosts(reporting: int = 8) -> tuple[HostView, ...]:
    return tuple(
        HostView(f"node{n}", "reporting" if n < reporting else "connecting", reported_ns=NOW)
        for n in range(8)
    )


def hung() -> Frame:
    """Rank 37 waits for a DataLoader worker that reads from a dead mount; 63 wait for it."""
    ranks = {n: rank_view(n, "late" if n == CULPRIT else "blocked") for n in range(64)}
    for number in (0, 1, 36, 38):
        ranks[number] = replace(ranks[number], snapshot=snapshot(number, REDUCING))
    culprit = snapshot(CULPRIT, LOADING, waits=True)
    ranks[CULPRIT] = replace(
        ranks[CULPRIT], snapshot=culprit, prior_snapshot=snapshot(CULPRIT, LOADING, 3.6, waits=True)
    )
    victims = tuple(n for n in range(64) if n != CULPRIT)
    return Frame(
        NOW,
        WALL,
        "hung",
        NOW - 252 * S,
        JOB,
        up_s=11_520,
        hosts=hosts(),
        ranks=ranks,
        groups=groups((CULPRIT,), victims, 252.0),
        verdicts=(
            Verdict(
                "not_entered",
                "confirmed",
                "none",
                (CULPRIT,),
                "rank 37 (node4) has not entered all_reduce #8812 of dp:0;"
                " ranks 0-36,38-63 wait for it",
                Why(
                    "dataloader",
                    "data",
                    "its MainThread waits for DataLoader worker 2 of 4 (pid 90112), which has"
                    " been in a read of /data/shard-0412 for 4m12s, state D; train.py:214",
                ),
                "check the mount of /data on node4 (`stat /data/shard-0412` there);"
                " the rank goes on when the read returns",
                frozenset(unfold("0-36,38-63")),
                (),
                DP_KEY,
                OpName("all_reduce", 8812),
                NOW - 252 * S,
                348.0,
                (
                    "63 ranks are blocked in all_reduce #8812 at train.py:231",
                    "rank 37 last issued #8811 of dp:0, 4m12s ago",
                    "3 snapshots in 9 s: same stack, no CPU time, no bytes read",
                ),
            ),
        ),
        coverage=Coverage(64, 64),
    )


def healthy() -> Frame:
    ranks = {n: replace(rank_view(n, "moving", age_s=11_000.0), pending=()) for n in range(64)}
    return Frame(
        NOW,
        WALL,
        "healthy",
        NOW - 11_000 * S,
        JOB,
        up_s=11_520,
        hosts=hosts(),
        ranks=ranks,
        groups=groups((), (), 0.2),
        coverage=Coverage(64, 64),
    )


def dead() -> Frame:
    """Rank 5 ended with an exception; its peers noticed, or wait."""
    base = hung()
    ranks = dict(base.ranks)
    ranks[CULPRIT] = rank_view(CULPRIT, "blocked")
    exception = wire.UncaughtException(
        "RuntimeError",
        "CUDA error: an illegal memory access was encountered\nCompile with ...",
        "MainThread",
        True,
        HOST_NOW - 31 * S,
        (
            trace_frame("backward", _PACKAGES + "torch/_tensor.py", 648),
            trace_frame("train", SITE.file, 226, "loss.backward()"),
            trace_frame("<module>", SITE.file, 310, "main()"),
        ),
    )
    ranks[5] = replace(
        rank_view(5, "dead", age_s=30.0),
        exception=exception,
        exit_info=wire.ExitInfo(HOST_NOW - 30 * S, exit_code=1),
        process=None,
    )
    waiting = tuple(n for n in range(64) if n != 5)
    return replace(
        base,
        health="dead",
        since_ns=NOW - 30 * S,
        ranks=ranks,
        groups=groups((5,), waiting, 31.0),
        verdicts=(
            Verdict(
                "dead",
                "confirmed",
                "none",
                (5,),
                "rank 5 (node0) died 30s ago: RuntimeError: CUDA error: an illegal memory access"
                " was encountered; ranks 0-4,6-63 wait for it",
                Why("exception", "software", "an exception left train.py:226 in its MainThread"),
                "look at rank 5's exception; start the job again from its last checkpoint",
                frozenset(unfold("0-4,6-63")),
                group=DP_KEY,
                op=OpName("all_reduce", 8812),
                since_ns=NOW - 30 * S,
                left_s=570.0,
                evidence=("exit status 1, not ended by the launcher",),
            ),
        ),
    )


def two_roots() -> Frame:
    """Two causes side by side, and a host that is silent."""
    base = hung()
    ranks = dict(base.ranks)
    ranks[5] = dead().ranks[5]
    for number in range(56, 64):
        ranks[number] = replace(
            ranks[number],
            state="unreachable",
            reported_ns=NOW - 41 * S,
            state_since_ns=NOW - 40 * S,
        )
    return replace(
        base,
        ranks=ranks,
        verdicts=(*dead().verdicts, *base.verdicts),
        hosts=(
            *hosts()[:7],
            HostView(
                "node7",
                "silent",
                Problem(
                    "node7 has not reported for 41s: its agent or the network is down",
                    "try `ssh node7 frtop agent --status`",
                ),
                NOW - 41 * S,
            ),
        ),
        coverage=Coverage(
            64,
            56,
            tuple(range(56, 64)),
            3,
            (CoverageNote("below c10d: not seen (custom kernels)"),),
        ),
    )


def refused() -> Frame:
    """The stack of rank 37 could not be taken."""
    base = hung()
    ranks = dict(base.ranks)
    sentence = (
        "the kernel refused (ptrace_scope is 1): run `sysctl kernel.yama.ptrace_scope=0` on node4"
    )
    seen = replace_dump(ranks[CULPRIT], wire.StackDump(90_077, (), "refused", sentence))
    ranks[CULPRIT] = seen
    return replace(base, ranks=ranks)


def replace_dump(view: JudgedRank, dump: wire.StackDump) -> JudgedRank:
    assert view.snapshot is not None
    old = view.snapshot
    return replace(
        view, snapshot=wire.Snapshot(old.key, old.at_ns, None, old.processes, (dump,), old.ops)
    )


def connecting() -> Frame:
    return Frame(NOW, WALL, hosts=hosts(0))


def no_agent() -> Frame:
    return Frame(
        NOW,
        WALL,
        problem=Problem(
            "nobody answers at node0:7790: is the job started with `frtop run`?"
            " For one that is not, use `frtop attach` on its host"
        ),
        hosts=(
            HostView(
                "node0",
                "failed",
                Problem("connection refused: start an agent with `frtop agent`"),
            ),
        ),
    )


SCENES = {
    "hung": hung,
    "healthy": healthy,
    "dead": dead,
    "two_roots": two_roots,
    "refused": refused,
    "connecting": connecting,
    "no_agent": no_agent,
}
