"""What the history says about hosts: how often each was the culprit, what to drain. Pure."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame, JudgedRank, Verdict
from frtop_tui.features.watch.history import Culprit
from frtop_tui.features.watch.job_file import run_name
from frtop_tui.job.naming import job_key, job_title, typed
from frtop_tui.job.units import how_often

DAY_S: Final = 86400.0
DAYS: Final = 14
"""How many days back a verdict looks."""
DRAIN: Final = 3
"""A host that was the culprit in this many runs is worth draining."""
_DEVICE: Final = re.compile(r"[a-z]{2,8}:(\d{1,3})")
_VISIBLE: Final = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


class Offender(NamedTuple):
    """A host. `times` counts runs of jobs, `jobs` are their names; `gpu` if always the same."""

    host: str
    gpu: str
    times: int
    last_s: float
    jobs: tuple[str, ...]
    causes: tuple[tuple[str, int], ...]
    links: tuple[str, ...]
    layers: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.host} gpu{self.gpu}" if self.gpu else self.host

    @property
    def advice(self) -> str:
        """What to do with the host, "" if it is too early to say."""
        if self.times < DRAIN:
            return ""
        if self.layers == ("software",) and len(self.jobs) == 1:
            return "only one program, and its own code: look at that first"
        return f'scontrol update nodename={typed(self.host)} state=drain reason="frtop"'


def offenders(culprits: Iterable[Culprit]) -> list[Offender]:
    """All hosts of the history, the worst first."""
    by_host: defaultdict[str, list[Culprit]] = defaultdict(list)
    for one in culprits:
        by_host[one.host].append(one)
    found = [_offender(host, ones) for host, ones in by_host.items()]
    return sorted(found, key=lambda one: (-one.times, -one.last_s, one.host))


def _offender(host: str, ones: Sequence[Culprit]) -> Offender:
    gpus = {one.gpu for one in ones}
    causes: Counter[str] = Counter()
    for _, cause in {(one.run, f"{one.kind}/{one.cause}") for one in ones}:
        causes[cause] += 1
    return Offender(
        host=host,
        gpu=gpus.pop() if len(gpus) == 1 else "",
        times=len({one.run for one in ones}),
        last_s=max(one.at_s for one in ones),
        jobs=tuple(sorted({one.job for one in ones})),
        causes=tuple(sorted(causes.items(), key=lambda one: (-one[1], one[0]))),
        links=tuple(sorted({one.link for one in ones} - {""})),
        layers=tuple(sorted({one.layer for one in ones})),
    )


def said_before(
    culprits: Sequence[Culprit], frame: Frame, verdict: Verdict, days: float = DAYS
) -> list[str]:
    """`node4 was the culprit 3 times in 14 days`, for the verdict's hosts, without this run."""
    run = run_name(job_key(frame.job)) if frame.job is not None else ""
    hosts = {frame.ranks[rank].host for rank in verdict.culprits if rank in frame.ranks}
    mine = [one for one in culprits if one.host in hosts and one.run != run]
    return [
        f"{one.name} was the culprit {how_often(one.times)} in {days:g} days before this run"
        for one in offenders(mine)
    ]


def culprits_now(frame: Frame, verdict: Verdict) -> list[Culprit]:
    """The rows of a confirmed verdict; none if no rank is to blame."""
    if frame.job is None:
        return []
    run, title = run_name(job_key(frame.job)), job_title(frame.job)
    return [
        Culprit(
            frame.wall_ns / 1e9, run, title, view.host, view.rank, gpu_of(view),
            _link(view, verdict), verdict.kind, verdict.why.cause, verdict.why.layer,
        )
        for view in map(frame.ranks.get, verdict.culprits)
        if view is not None
    ]  # fmt: skip


def gpu_of(view: JudgedRank) -> str:
    """The number of the rank's GPU on its host, from its ops' tensors; "" if not known."""
    ops = [*view.pending, *(one.last for one in view.group_progress.values())]
    numbers = {number for op in filter(None, ops) for number in _devices(op)}
    if len(numbers) != 1:
        return ""
    number, settings = numbers.pop(), dict(view.identity.settings)
    visible = next((settings[name] for name in _VISIBLE if settings.get(name)), "")
    if not visible:
        return str(number)
    names = visible.split(",")
    return names[number].strip() if number < len(names) else ""


def _devices(op: wire.Op) -> set[int]:
    if op.signature is None:
        return set()
    texts = [one.device for one in (*(op.signature.inputs or ()), *(op.signature.outputs or ()))]
    return {int(found[1]) for text in texts if (found := _DEVICE.fullmatch(text))}


def _link(view: JudgedRank, verdict: Verdict) -> str:
    """The dead connection, if that is the cause."""
    if verdict.why.layer != "network" or view.snapshot is None:
        return ""
    dead = view.snapshot.dead_connections
    return f"{dead[0].local} - {dead[0].remote}" if dead else ""


def offender_fields(one: Offender) -> dict[str, Any]:
    """For `frtop history --json`."""
    return {**one._asdict(), "causes": dict(one.causes), "advice": one.advice}
