"""Frames with answers: tensors, hosts with problems, files, recordings."""

from __future__ import annotations

from msgspec import structs
from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.job.model import HostView, JobActivity, Problem, Recorded, Writing

from .rare_scenes import SCENES as SELDOM
from .scenes import HOST_NOW, NOW, WALL, S, healthy, hung, two_roots

ASKED = 12
"""The rank that is asked for tensors: its values contain NaN."""
READ_ONLY = "this key is read-only on node0 to node7; `frtop key admit` there, without --read"


def summary(checksum: str, *, nans: int = 0, role: str = "input") -> wire.TensorSummary:
    return wire.TensorSummary(
        role,
        "bfloat16",
        (26214400,),
        "cpu",
        52_428_800,
        26_214_400,
        12_000_000,
        -3.171875,
        2.984375,
        1.52587890625e-05,
        412.5,
        nans,
        0,
        ("0.0014", "-0.0312", "nan" if nans else "0.2031", "0.0007"),
        checksum,
    )


def answer(rank: JudgedRank, *tensors: wire.TensorSummary, error: str = "") -> wire.TensorsResponse:
    blocked = rank.blocked_on
    ops = () if blocked is None or error else (wire.OpTensors(blocked.sequence, tensors),)
    return wire.TensorsResponse(rank.rank + 1, rank.host, rank.key, HOST_NOW - 2 * S, ops, error)


def with_answers(frame: Frame, answers: dict[int, wire.TensorsResponse]) -> Frame:
    ranks = dict(frame.ranks)
    for number, response in answers.items():
        ranks[number] = replace(ranks[number], tensors=response)
    return replace(frame, ranks=ranks)


def tensors() -> Frame:
    """Ranks 12 to 15 have answered; rank 13 holds the same data as rank 12."""
    frame = hung()
    ranks = frame.ranks
    return with_answers(
        frame,
        {
            ASKED: answer(ranks[ASKED], summary("9f86d081", nans=3)),
            13: answer(ranks[13], summary("9f86d081", nans=3)),
            14: answer(ranks[14], summary("60303ae2")),
            15: answer(ranks[15], fully_read(summary("60303ae2"))),
        },
    )


def fully_read(old: wire.TensorSummary) -> wire.TensorSummary:
    """The same tensor with all values read."""
    return structs.replace(old, seen=old.elements)


def hosts() -> Frame:
    """Eight hosts: one failed, one silent, one connecting, one where our key is read-only."""
    frame = two_roots()
    views = [
        HostView(
            f"node{n}",
            "reporting",
            reported_ns=NOW - S // 5,
            version="0.3.0",
            clock_ns=-1_200_000 + n * 300_000,
            clock_error_ns=250_000,
            address=f"10.0.0.{n + 1}:7677",
        )
        for n in range(8)
    ]
    views[3] = replace(views[3], may_act=False, notes=("rank 29: no room for its ring",))
    views[5] = HostView("node5", "connecting")
    views[6] = HostView(
        "node6",
        "failed",
        Problem(
            "node6 refuses our key: have its user run `frtop key admit` with the line that"
            " `frtop key` shows here"
        ),
        address="10.0.0.7:7677",
    )
    views[7] = replace(frame.hosts[7], address="10.0.0.8:7677", lost_updates=3, version="0.3.0")
    return replace(frame, hosts=tuple(views))


def many_hosts(count: int = 1000, silent: int = 3) -> Frame:
    """A thousand hosts with eight ranks each."""
    base = next(iter(healthy().ranks.values()))
    ranks = {n: replace(base, rank=n, host=f"node{n // 8}") for n in range(count * 8)}
    views = tuple(
        HostView(f"node{n}", "silent" if n < silent else "reporting", reported_ns=NOW - S)
        for n in range(count)
    )
    return replace(healthy(), hosts=views, ranks=ranks)


def read_only() -> Frame:
    return replace(hung(), read_only=READ_ONLY)


def jobs() -> Frame:
    """Three jobs: the second attempt of one, its first attempt, and another job."""
    first = wire.Job("node0", 29500, 64, run_id="r1", name="llama-70b", nonce="a1")
    other = wire.Job("node1", 29511, 16, run_id="r2", name="llama 13b", nonce="b7")
    shown = wire.Job("node0", 29500, 64, run_id="r1", attempt=1, name="llama-70b", nonce="c3")
    return replace(
        healthy(),
        job=shown,
        other_jobs=(first, other),
        running_jobs=(other,),
        activities=(
            JobActivity(shown, 3600, quiet_s=0.4),
            JobActivity(other, 7200, quiet_s=260, waits_s=252),
            JobActivity(first, 9000),
        ),
    )


def captured() -> Frame:
    """The hang after its automatic capture."""
    writing = Writing(
        "capture", "written", "frtop-llama-70b-0302.cap", 63, 64, 3_250_000, automatic=True
    )
    return replace(hung(), writings=(writing,))


def recorded() -> Frame:
    """The hang as a capture with tensors of some ranks."""
    origin = Recorded(
        "capture",
        "frtop-llama-70b-0302.cap",
        WALL,
        "alice@laptop",
        "0.3.0",
        ("the history of rank 7 is missing: its host was silent",),
    )
    gone = "this is a capture: there is no live job to ask"
    return replace(tensors(), recorded=origin, read_only=gone)


SCENES = {
    **SELDOM,
    "tensors": tensors,
    "hosts": hosts,
    "read_only": read_only,
    "jobs": jobs,
    "captured": captured,
    "recorded": recorded,
}
