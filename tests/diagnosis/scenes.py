"""Scenes: a few lines that say what ranks do, received through real updates and looks.

    scene = Scene(4)
    scene.waits([0, 1, 3], "all_reduce", for_s=10)
    scene.sleeps(2)
    frame = scene.settle()

Hosts have clocks of their own, so that nothing works only because they agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import msgspec

from frtop_probe import wire
from frtop_probe.ring.rank_ranges import fold, unfold
from frtop_tui.diagnosis.engine import Engine, Judgement
from frtop_tui.diagnosis.model import Frame, Verdict
from frtop_tui.job.model import ObservedFrame
from frtop_tui.job.state import JobState

MAIN = 1000  # ident of main threads
SECOND = 1_000_000_000
WORLD = "0"
FLOATS = (wire.TensorSpec("float32", (1024,)),)
JOB = wire.Job("node0", 29500, 4, "run", 0, "nonce", "train.py")


def op_signature(kind: str, **fields: object) -> wire.Signature:
    known: dict[str, object] = {"inputs": FLOATS}
    if kind in ("barrier", "new_group", "init_process_group"):
        known = {}
    if kind == "all_reduce":
        known["reduce"] = "sum"
    return wire.Signature(kind, **{**known, **fields})  # type: ignore[arg-type]


@dataclass
class Actor:
    """One rank of a scene; times are seconds of the scene."""

    rank: int
    host: int
    groups: dict[int, wire.Group] = field(default_factory=dict)
    group_progress: dict[int, wire.GroupProgress] = field(default_factory=dict)
    pending: list[wire.Op] = field(default_factory=list)
    ops: int = 0
    heartbeat: float | None = None  # None: goes on
    step: int = 0
    step_at: float = 0.0
    fetch: wire.DataLoaderFetch | None = None
    state: int = 1
    process: wire.Process | None = None
    children: list[wire.Process] = field(default_factory=list)
    threads: tuple[wire.Process, ...] = ()
    stack: tuple[wire.TraceFrame, ...] = ()
    active: bool = False
    owns_gil: bool = False
    child_stacks: dict[int, tuple[wire.TraceFrame, ...]] = field(default_factory=dict)
    child_threads: tuple[wire.ThreadStack, ...] = ()  # of each child, beside its main thread
    dump_error: str = ""
    exception: wire.UncaughtException | None = None
    exit_info: wire.ExitInfo | None = None
    recent: list[wire.Op] = field(default_factory=list)
    links: tuple[wire.DeadConnection, ...] = ()
    ended: tuple[wire.EndedChild, ...] = ()
    pending_more: int = 0
    side_lost: int = 0
    pending_lost: int = 0
    transports: tuple[wire.Transport, ...] | None = None
    gauges: wire.Gauges | None = None
    other_threads: tuple[wire.ThreadStack, ...] = ()
    messages: Counter[tuple[int, bool, int | None, int | None]] = field(default_factory=Counter)
    wait: wire.ThreadWait | None = None  # of the main thread

    @property
    def pid(self) -> int:
        return 1000 + self.rank


def _site(text: str) -> wire.Site:
    file, _, line = text.partition(":")
    return wire.Site(f"/home/me/{file}", int(line), "train")


class Scene:
    """Ranks on hosts, everybody after op #7 of the world's group, `ago` seconds ago."""

    def __init__(
        self,
        world: int = 4,
        *,
        hosts: int = 1,
        exact: bool = True,
        timeout_s: float = 1800.0,
        backend: str = "gloo",
        job: wire.Job = JOB,
        begun: int = 7,
        counts: bool = False,
        ago: float = 20.0,
    ) -> None:
        """`counts`: sends and receives are counted by peer and tag."""
        self.now = 10_000.0
        self.counts = counts
        self.job = wire.Job(
            job.master_addr, job.master_port, world, job.run_id, job.attempt, job.nonce, job.name
        )
        self.begun_s, self.started_s = self.now, 600.0  # its ranks started so long before it
        self.exact, self.timeout_s, self.backend = exact, timeout_s, backend
        self.hosts = [f"node{n}" for n in range(hosts)]
        self.skews = [5000.0 * n + 3.0 for n in range(hosts)]
        self.actors = {rank: Actor(rank, rank * hosts // world) for rank in range(world)}
        self.deaf: set[int] = set()
        self.number = 0
        self.state = JobState()
        self.engine = Engine()
        self.group(WORLD, range(world), "default_pg")
        if begun:
            self.does(range(world), "all_reduce", number=begun, ago=ago)

    # what ranks do

    def group(self, name: str, ranks: Iterable[int], description: str = "", epoch: int = 0) -> None:
        members = fold(ranks)
        for rank in unfold(members):
            actor = self.actors[rank]
            number = len(actor.groups) + 1
            actor.groups[number] = wire.Group(
                number, name, description, self.backend, members, self.exact, epoch, self.timeout_s
            )

    def does(self, ranks: Iterable[int], kind: str, *, ago: float = 1.0, **how: Any) -> None:
        """Ops that are complete, or of whose completion nobody knows; `how` as for `_issue`."""
        for rank in ranks:
            self._issue(rank, kind, ago=ago, **how)

    def waits(
        self,
        ranks: Iterable[int],
        kind: str,
        *,
        for_s: float = 10.0,
        sync: bool = True,
        waited_s: float = 0.0,
        **how: Any,
    ) -> None:
        """Ops that are pending; with `sync` a thread sits in them; `waited_s`: seen to wait."""
        for rank in ranks:
            actor = self.actors[rank]
            op = self._issue(rank, kind, ago=for_s, sync=sync, pending=True, **how)
            if waited_s:
                op = msgspec.structs.replace(
                    op, wait_ns=op.issued_ns + int((for_s - waited_s) * 1e9)
                )
            actor.pending.append(op)
            if sync:
                actor.stack = COLLECTIVE

    def in_pseudo(
        self, ranks: Iterable[int], kind: str, for_s: float, members: str | None = None
    ) -> None:
        """Inside `new_group` and the like, which `members` have to call."""
        for rank in ranks:
            actor = self.actors[rank]
            actor.ops += 1
            call, issued_ns = wire.Signature(kind, members=members), self._ns(actor, for_s)
            actor.pending.append(
                wire.Op(actor.ops, 0, 1, call, None, issued_ns, thread=MAIN, sync=True, pseudo=True)
            )

    def _issue(
        self,
        rank: int,
        kind: str,
        *,
        ago: float,
        group: str = WORLD,
        number: int | None = None,
        site: str | None = "train.py:20",
        usual_s: float = 0.02,
        usual_count: int = 100,
        pending: bool = False,
        sync: bool = False,
        thread: int = MAIN,
        p2p: bool = False,
        tracked: bool = True,
        told: bool = True,
        **fields: object,
    ) -> wire.Op:
        actor = self.actors[rank]
        local = self.local(rank, group)
        front = actor.group_progress.get(local)
        done, sent = (front.number, front.p2p) if front is not None else (0, 0)
        if p2p:
            sent += 1
        else:
            done = number if number is not None else done + 1
        actor.ops += 1
        issued = self._ns(actor, ago)
        op = wire.Op(
            sequence=actor.ops,
            group=local,
            number=sent if p2p else done,
            signature=op_signature(kind, **fields),
            site=_site(site) if site is not None else None,
            issued_ns=issued,
            done_ns=0 if pending or not tracked else issued + int(usual_s * SECOND),
            thread=thread,
            sync=sync,
            p2p=p2p,
            tracked=tracked,
            usual_ns=int(usual_s * SECOND),
            usual_count=usual_count,
        )
        if p2p and self.counts:
            channel = (local, kind == "send", fields.get("peer"), fields.get("tag"))
            actor.messages[channel] += 1  # type: ignore[index]
            op = msgspec.structs.replace(op, message=actor.messages[channel])  # type: ignore[index]
        actor.group_progress[local] = wire.GroupProgress(
            local, done, sent, issued, op if told else None
        )
        actor.recent.append(op)
        return op

    def local(self, rank: int, group: str) -> int:
        return next(n for n, g in self.actors[rank].groups.items() if g.name == group)

    def sleeps(self, rank: int, line: str = "train.py:33") -> None:
        self.at(rank, frame(line, source="time.sleep(3600)"))
        self.kernel(rank, syscall="clock_nanosleep", wchan="hrtimer_nanosleep")

    def at(self, rank: int, *frames: wire.TraceFrame, active: bool = False) -> None:
        """Where the main thread is, innermost first."""
        actor = self.actors[rank]
        actor.stack, actor.active = (*frames, frame("train.py:90", "main")), active

    def kernel(
        self,
        rank: int,
        state: str = "S",
        syscall: str = "",
        wchan: str = "",
        file: str = "",
        *,
        cpu_ns: int = 0,
    ) -> None:
        actor = self.actors[rank]
        actor.process = wire.Process(actor.pid, state, "python", wchan, syscall, file, cpu_ns)

    def fetches(
        self, rank: int, worker: int = 1, *, pid: int = 0, workers: int = 4, for_s: float = 10.0
    ) -> None:
        """Inside a DataLoader fetch."""
        actor = self.actors[rank]
        actor.fetch = wire.DataLoaderFetch(self._ns(actor, for_s), 0, worker, pid, workers)
        actor.stack = DATALOADER

    def worker(self, rank: int, pid: int, state: str, syscall: str, file: str = "") -> None:
        actor = self.actors[rank]
        actor.children.append(
            wire.Process(pid, state, "pt_data_worker", "", syscall, file, 0, 0, parent=actor.pid)
        )

    def beside(self, ranks: Iterable[int], *names: str) -> None:
        """With transports past c10d at hand."""
        for rank in ranks:
            found = (wire.Transport(name, f"module {name.lower()} is imported") for name in names)
            self.actors[rank].transports = tuple(found)

    def silent(self, rank: int, for_s: float) -> None:
        self.actors[rank].heartbeat = self.now - for_s

    def raises(
        self, rank: int, kind: str, text: str, *, ago: float = 1.0, at: str = "train.py:51"
    ) -> None:
        actor = self.actors[rank]
        actor.exception = wire.UncaughtException(
            kind, text, "MainThread", True, self._ns(actor, ago), (frame(at),)
        )
        self.ends(rank, exit_code=1, ago=ago - 0.05)

    def ends(
        self,
        rank: int,
        *,
        exit_code: int | None = None,
        signal: int | None = None,
        clean: bool = False,
        ago: float = 1.0,
        oom_kills: int = 0,
    ) -> None:
        actor = self.actors[rank]
        actor.exit_info = wire.ExitInfo(self._ns(actor, ago), exit_code, signal, clean, oom_kills)
        actor.pending = [] if clean else actor.pending

    def gone(self, *ranks: int) -> None:
        """Never started, or never prepared."""
        for rank in ranks:
            del self.actors[rank]

    def deafen(self, host: int) -> None:
        """This host reports no more."""
        self.deaf.add(host)

    # how they are reporting

    def _ns(self, actor: Actor, ago: float) -> int:
        return int((self.now - ago + self.skews[actor.host]) * SECOND)

    def started_ns(self, actor: Actor) -> int:
        return self._ns(actor, self.now - self.begun_s + self.started_s)

    def _present(self, actor: Actor) -> wire.RankStatus:
        heartbeat = self.now - 0.1 if actor.heartbeat is None else actor.heartbeat
        return wire.RankStatus(
            actor.state,
            int((heartbeat + self.skews[actor.host]) * SECOND),
            actor.ops,
            actor.step,
            int((actor.step_at + self.skews[actor.host]) * SECOND) if actor.step_at else 0,
            actor.fetch,
            actor.side_lost,
            actor.pending_lost,
        )

    def _process(self, actor: Actor) -> wire.Process:
        return actor.process or wire.Process(actor.pid, "S", "python", "futex_do_wait", "futex")

    def update_of(self, actor: Actor) -> wire.RankUpdate:
        identity = wire.Identity(
            actor.pid, 1, actor.rank, 0, self.job, started_ns=self.started_ns(actor),
            main_ident=MAIN,
        )  # fmt: skip
        return wire.RankUpdate(
            key=actor.rank + 1,
            identity=identity,
            status=self._present(actor),
            groups=tuple(actor.groups.values()),
            group_progress=tuple(actor.group_progress.values()),
            pending=tuple(actor.pending),
            pending_more=actor.pending_more,
            process=self._process(actor),
            exception=actor.exception,
            exit_info=actor.exit_info,
            transports=actor.transports,
            gauges=actor.gauges,
            messages=tuple(
                wire.Messages(
                    group,
                    actor.group_progress[group].p2p,
                    complete=sum(n for c, n in actor.messages.items() if c[0] == group)
                    == actor.group_progress[group].p2p,
                    counts=tuple(
                        wire.MessageCount(*c[1:], n)
                        for c, n in actor.messages.items()
                        if c[0] == group
                    ),
                )
                for group in dict.fromkeys(channel[0] for channel in actor.messages)
            ),
        )

    def hear(self, late_s: float = 0.0) -> None:
        """Full states of all hosts that can report, perhaps some time after they were sent."""
        self.number += 1
        for index, host in enumerate(self.hosts):
            if index in self.deaf:
                continue
            update = wire.Update(
                host=host,
                instance=f"agent-{host}",
                number=self.number,
                monotonic_ns=int((self.now - late_s + self.skews[index]) * SECOND),
                wall_ns=0,
                ranks=tuple(self.update_of(a) for a in self.actors.values() if a.host == index),
                full=True,
            )
            assert self.state.apply(host, update, self.now_ns)

    @property
    def now_ns(self) -> int:
        return int(self.now * SECOND)

    def look_of(
        self, actor: Actor, pids: Sequence[int] = (), *, stacks: bool = True
    ) -> wire.Snapshot:
        dumps: list[wire.StackDump] = []
        if stacks and actor.dump_error:
            dumps.append(wire.StackDump(actor.pid, (), actor.dump_error, "ptrace is refused"))
        elif stacks:
            thread = wire.ThreadStack(
                MAIN, actor.pid, "MainThread", actor.active, actor.owns_gil, actor.stack, actor.wait
            )
            dumps.append(wire.StackDump(actor.pid, (thread, *actor.other_threads)))
            for pid in pids:
                frames = actor.child_stacks.get(pid, ())
                main = wire.ThreadStack(MAIN, pid, "Main", False, False, frames)
                dumps.append(wire.StackDump(pid, (*actor.child_threads, main)))
        return wire.Snapshot(
            key=actor.rank + 1,
            at_ns=self._ns(actor, 0.0),
            status=self._present(actor),
            processes=(self._process(actor), *actor.children),
            dumps=tuple(dumps),
            ops=tuple(actor.recent),
            threads=actor.threads,
            dead_connections=actor.links,
            ended=actor.ended,
            addresses=(f"10.0.0.{actor.host}",),
        )

    def look(self, judgement: Judgement) -> None:
        """Answers what the judge wants to see."""
        for wanted in judgement.look_requests:
            actor = self.actors[wanted.key - 1]
            look = self.look_of(actor, wanted.pids, stacks=wanted.stacks)
            answer = wire.SnapshotResponse(1, wanted.host, (look,))
            self.state.apply_snapshots(wanted.host, answer)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    def frame(self) -> ObservedFrame:
        return self.state.frame(self.now_ns, 0)

    def judge(self) -> Judgement:
        """One tick: updates, a frame, a judgement, and the looks it asks for."""
        self.hear()
        judgement = self.engine.judge(self.frame())
        self.look(judgement)
        return judgement

    def settle(self, seconds: float = 4.0) -> Frame:
        """Some seconds in which nothing new happens, as a live screen would see them.

        The first ten and the last two as on a screen; in between a frame every two seconds will do.
        """
        judgement = self.judge()
        left_s = seconds
        while left_s >= 0.5:
            step_s = 2.0 if 4.0 <= left_s <= seconds - 10.0 else 0.5
            self.pass_time(step_s)
            judgement = self.judge()
            left_s -= step_s
        return judgement.frame


def frame(place: str, function: str = "train", source: str = "") -> wire.TraceFrame:
    file, _, line = place.partition(":")
    path = file if file[0] in "/<" else f"/home/me/{file}"
    return wire.TraceFrame(function, path, int(line), "", source)


C10D = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
RECORDER = "/venv/lib/python3.11/site-packages/frtop_probe/recorder"
COLLECTIVE = (
    frame(f"{C10D}:3024", "all_reduce"),
    frame("/venv/lib/python3.11/site-packages/torch/distributed/c10d_logger.py:83", "wrapper"),
    frame("train.py:20"),
)
BACKWARD = (
    frame("/venv/lib/python3.11/site-packages/torch/autograd/graph.py:829", "_engine_run_backward"),
    frame("train.py:19", source="loss.backward()"),
)
LOADER = "/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py"
DATALOADER = (
    frame("/usr/lib/python3.11/selectors.py:415", "select"),
    frame("/usr/lib/python3.11/multiprocessing/connection.py:947", "wait"),
    frame(f"{LOADER}:1275", "_try_get_data"),
    frame(f"{LOADER}:733", "__next__"),
    frame("train.py:14"),
)
LOCK = (
    frame("/usr/lib/python3.11/threading.py:327", "wait"),
    frame("/usr/lib/python3.11/queue.py:171", "get"),
    frame("train.py:40"),
)


def three_wait(for_s: float = 10.0, **how: Any) -> Scene:
    """Ranks 0, 1 and 3 wait in an op that rank 2 has not entered; `how` as for `Scene.waits`."""
    scene = Scene(4)
    scene.waits([0, 1, 3], "all_reduce", for_s=for_s, **how)
    return scene


def one_sleeps(for_s: float = 10.0, **how: Any) -> Scene:
    """The same, and rank 2 sleeps."""
    scene = three_wait(for_s, **how)
    scene.sleeps(2)
    return scene


def only(found: Frame) -> Verdict:
    """The verdict, which must be the only one."""
    assert len(found.verdicts) == 1, [verdict.headline for verdict in found.verdicts]
    return found.verdicts[0]


def told(found: Frame, *fields: str) -> object:
    """Those fields of the only verdict."""
    return attrgetter(*fields)(only(found))
