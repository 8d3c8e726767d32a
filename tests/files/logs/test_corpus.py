"""Public threads whose logs decide: what they prove is found, and nobody is blamed wrongly.

Ranks, numbers of ops, counters and kinds are those of the thread's lines, in the words of that
torch and without the thread's text. What is not known of them (some sizes, names of groups, times)
is filled in, and decides nothing. `known` is how the truth is known: "shown" (a fix, a bisection,
or made on purpose), "stated" by the person with the evidence, "lines" (nothing but these lines), or
"open". `late` are the ranks that are really to blame, as far as anybody knows; `found` says what
frtop concludes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from files.logs.eras import (
    TORCH_2_0,
    TORCH_2_2,
    TORCH_2_3,
    TORCH_2_5,
    TORCH_2_7,
    TORCH_2_14,
    Era,
    Op,
    fingerprint,
    joined,
    raised,
)
from frtop_probe.ring.rank_ranges import fold, unfold
from frtop_tui.files.loader import open_paths


class Thread(NamedTuple):
    """A public thread, the facts of its log, what is true, and what is concluded."""

    url: str
    lines: Sequence[list[str]]
    known: str
    late: str
    found: tuple[str, str]


BIG: Final = (18446744073709551615, 18446744073709551615)
GATHER: Final = Op(21937, "_ALLGATHER_BASE", (176556032, 353112064))
AHEAD: Final = Op(37876, "ALLREDUCE", (1024, 1024))
REDUCE: Final = Op(1155874, "ALLREDUCE", (4096, 4096))
CAST: Final = Op(532339, "BROADCAST", (5164000, 5164000))
NEXT: Final = Op(532341, "_ALLGATHER_BASE", (513, 1026))
TO_ALL: Final = Op(216, "ALLTOALL_BASE", (65536, 65536), ("119", ""))
SMALL: Final = Op(57, "ALLREDUCE", (32, 32), ("112", ""))
MOE: Final = Op(4486, "ALLTOALL", (46684160, 46684160), ("9", ""))
SCATTER: Final = Op(7753, "_REDUCE_SCATTER_BASE", (544997376, 68124672), ("1", ""))
TOKENS: Final = Op(1512677, "ALLREDUCE", (1, 1))


def all_in(era: Era, op: Op, ranks: Sequence[int], enqueued: int | None = None) -> list[list[str]]:
    """Ranks that gave up in one op, all with the same counters."""
    return [era.gave_up(rank, op, enqueued=enqueued) for rank in ranks]


def numbers_only(rank: int, number: int) -> list[str]:
    return [TORCH_2_0.timeout(rank, Op(number, "ALLREDUCE"))]


def wrapper(number: int, op: str, one: tuple[int, str], other: tuple[int, str]) -> list[str]:
    """What one rank of a `ProcessGroupWrapper` wrote."""
    (rank, shape), (peer, theirs) = one, other
    return raised(
        rank,
        "RuntimeError: Detected mismatch between collectives on ranks."
        f" Rank {rank} is running collective: {fingerprint(number, op, shape)}, but Rank {peer} is"
        f" running collective: {fingerprint(number, op, theirs)}.",
    )


OLDEST: Final = (
    "[E ProcessGroupNCCL.cpp:719] [Rank 6] Watchdog caught collective operation timeout: WorkNCCL("
    "OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1802246 milliseconds before timing out."
)
FAULT: Final = (
    "[rank0]:[rank0]:[E128 10:11:12.123456789 ProcessGroupNCCL.cpp:1595] [PG ID 0 PG GUID"
    " 0(default_pg) Rank 0] Process group watchdog thread terminated with exception: CUDA error:"
    " an illegal memory access was encountered"
)


def saw_signal(rank: int) -> list[str]:
    """A rank that says nothing of itself."""
    group = f"[PG ID 0 PG GUID 0(default_pg) Rank {rank}]"
    said = "Observed flight recorder dump signal from another rank via TCPStore."
    return [f"[rank{rank}]:[E1129 10:11:13.1 ProcessGroupNCCL.cpp:1800] {group} {said}"]


UNDECIDED: Final = ("undecided", "")
THREADS: Final = (
    Thread("github.com/oumi-ai/oumi/issues/2055",
           [TORCH_2_7.gave_up(5, AHEAD, enqueued=37877), TORCH_2_7.gave_up(6, AHEAD),
            TORCH_2_7.gave_up(7, AHEAD, enqueued=37877)],
           "open", "", UNDECIDED),
    Thread("github.com/lightseekorg/TorchSpec/issues/126",
           [*all_in(TORCH_2_7, GATHER, (0, 2, 3)), TORCH_2_7.was_asked(1, 21936, 21936)],
           "shown", "1", ("not_entered", "1")),
    Thread("github.com/NVIDIA/nccl/issues/2353",
           [TORCH_2_7.gave_up(0, REDUCE, enqueued=1155888),
            TORCH_2_7.was_asked(1, 1155873, 1155873)],
           "shown", "1", ("not_entered", "1")),
    Thread("github.com/Lightning-AI/pytorch-lightning/issues/20832",
           [*all_in(TORCH_2_7, CAST, (1, 2)), TORCH_2_7.gave_up(0, NEXT)],
           "lines", "0-2", UNDECIDED),
    Thread("github.com/NVIDIA/nccl/issues/1610",
           [TORCH_2_5.gave_up(13, TO_ALL, inside=3, enqueued=220),
            TORCH_2_5.gave_up(15, SMALL, inside=0)],
           "stated", "", UNDECIDED),
    Thread("github.com/pytorch/pytorch/pull/117682",
           [TORCH_2_2.gave_up(0, Op(2, "COALESCED", BIG)),
            TORCH_2_2.gave_up(1, Op(2, "COALESCED", BIG))],
           "shown", "0-1", UNDECIDED),
    Thread("github.com/pytorch/pytorch/issues/118369",
           [*(numbers_only(0, number) for number in (96117, 96118, 96125)),
            numbers_only(7, 64088)],
           "open", "", UNDECIDED),
    Thread("github.com/ai2cm/ace/issues/851",
           [TORCH_2_7.gave_up(7, TOKENS)], "lines", "0", UNDECIDED),
    Thread("github.com/huggingface/accelerate/issues/314",
           [[OLDEST]],
           "shown", "", UNDECIDED),
    Thread("github.com/huggingface/accelerate/issues/2912",
           [TORCH_2_3.gave_up(1, Op(6075, "_ALLGATHER_BASE", (1366, 4098)), enqueued=6139)],
           "open", "", UNDECIDED),
    Thread("github.com/xuyuzhuang11/OneBit/issues/8",
           [TORCH_2_2.gave_up(6, Op(12029440, "_ALLGATHER_BASE", (512, 4096)))],
           "open", "", UNDECIDED),
    Thread("github.com/verl-project/verl/issues/1158",
           all_in(TORCH_2_5, MOE, range(8), 4489), "open", "", UNDECIDED),
    Thread("github.com/hiyouga/LlamaFactory/issues/6269",
           all_in(TORCH_2_5, SCATTER, (0, 3, 4), 7755), "open", "", UNDECIDED),
    Thread("github.com/hiyouga/LlamaFactory/issues/7396",
           [TORCH_2_5.gave_up(4, Op(1580, "ALLREDUCE", (466119168, 466119168), ("1", "")),
                              enqueued=1582)],
           "open", "", UNDECIDED),
    Thread("github.com/vllm-project/vllm/issues/2770",
           [TORCH_2_2.gave_up(1, Op(369526, "GATHER", (4000, 0)))], "lines", "", UNDECIDED),
    Thread("github.com/vllm-project/vllm/issues/5484",
           [TORCH_2_3.gave_up(1, Op(158046, "GATHER", (4000, 0)))], "open", "", UNDECIDED),
    Thread("github.com/modelscope/ms-swift/pull/9443",
           [wrapper(3104, "ALLREDUCE", (1, "195812480"), (0, "51123456"))],
           "shown", "0-1", ("mismatch", "")),
    Thread("github.com/aurekaresearch/OpenDDE/issues/23",
           [wrapper(0, "_ALLGATHER_BASE", (1, "359, 1, 1435, 16"), (2, "359, 1, 1436, 16"))],
           "stated", "1-2", ("mismatch", "")),
    Thread("github.com/pytorch/torchtitan/issues/810",
           [[FAULT]],
           "stated", "0", ("dead", "0")),
    Thread("github.com/vllm-project/vllm (pipelines, torch 2.13 and later)",
           [*all_in(TORCH_2_14, Op(497221, "BROADCAST", (1, 1), ("7", "pp")), range(8, 16)),
            *map(saw_signal, range(8))],
           "lines", "0-7", UNDECIDED),
)  # fmt: skip


@pytest.mark.parametrize("thread", THREADS, ids=lambda one: one.url.removeprefix("github.com/"))
def test_nobody_is_blamed_wrongly(thread: Thread, tmp_path: Path) -> None:
    log = tmp_path / "job.out"
    log.write_text(joined(*thread.lines))
    frame = open_paths([log])
    found = [(verdict.kind, fold(verdict.culprits)) for verdict in frame.verdicts]
    assert found == [thread.found]
    guilty = set(unfold(thread.late)) if thread.late else set()
    assert {rank for verdict in frame.verdicts for rank in verdict.culprits} <= guilty
    assert frame.verdicts[0].evidence[0].startswith("job.out:")
