"""Public threads whose logs decide: what they prove is found, and nobody is blamed wrongly.

Ranks, numbers of ops, counters and kinds are those of the thread's lines, in the words of that
torch and without the thread's text. What is not known of them (some sizes, names of groups, times)
is filled in, and decides nothing; a rank has no more lines than were shown of it. `known` is how
the truth is known: "shown" (a fix, a bisection, or made on purpose), "stated" by the person with
the evidence, "lines" (nothing but these lines), or "open". `late` are the ranks that are really to
blame, as far as anybody knows; of ranks in different ops, or that ended alike, all. `found` says
what frtop concludes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from files.logs.eras import (
    TORCH_1_12,
    TORCH_2_0,
    TORCH_2_2,
    TORCH_2_2_NAMED,
    TORCH_2_3,
    TORCH_2_4,
    TORCH_2_5,
    TORCH_2_7,
    TORCH_2_14,
    Era,
    Op,
    after,
    disagreed,
    fingerprint,
    joined,
    raised,
    table,
)
from frtop_probe.ring.rank_ranges import fold, unfold
from frtop_tui.diagnosis.model import Verdict
from frtop_tui.files.loader import open_paths


class Thread(NamedTuple):
    """A public thread, the facts of its log, what is true, and what is concluded."""

    url: str
    lines: Sequence[list[str]]
    known: str
    late: str
    found: tuple[str, str]


RIGHT: Final = 13
"""How many verdicts named the rank when this was last raised."""
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


STUCK: Final = (
    (4, "PG ID 12 PG GUID 99(EXPERT_MODEL_PARALLEL_GROUP)"),
    (0, "PG ID 14 PG GUID 117(EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP)"),
)


def call(
    op: str, number: int, numel: tuple[int, int], wait_ms: int = 600_000, group: str = "0"
) -> Op:
    """A call in the default group, or in one without a description."""
    return Op(number, op, numel, (group, "default_pg" if group == "0" else ""), wait_ms)


def reduce(number: int, numel: int = 1, wait_ms: int = 600_000, group: str = "0") -> Op:
    return call("ALLREDUCE", number, (numel, numel), wait_ms, group)


def cast(number: int, numel: int, wait_ms: int = 600_000, group: str = "0") -> Op:
    return call("BROADCAST", number, (numel, numel), wait_ms, group)


def gather(number: int, numel: tuple[int, int], wait_ms: int = 1_800_000, group: str = "0") -> Op:
    return call("_ALLGATHER_BASE", number, numel, wait_ms, group)


def elsewhere(number: int, op: str) -> str:
    """A call without tensors, as a wrapper writes it of a rank in another call than its own."""
    return f"CollectiveFingerPrint(SequenceNumber={number}OpType={op})"


def came(rank: int) -> str:
    return (
        f"[E ProcessGroupGloo.cpp:138] Rank {rank} successfully reached monitoredBarrier, but"
        " received errors while waiting for send/recv from rank 0. Please check rank 0 logs for"
        " faulty rank."
    )


def missed(ranks: str, wait_ms: int) -> str:
    return f"[Rank 0]: {ranks} failed to pass monitoredBarrier in {wait_ms} ms"


def no_id(rank: int, why: str) -> list[str]:
    """A rank that did not get NCCL's id from rank 0."""
    said = f"[{rank}] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via"
    said += f" c10d key-value store by key '0', but store->get('0') got error: {why}"
    return raised(rank, f"torch.distributed.DistBackendError: {said}")


def until(word: str, lines: list[str]) -> list[str]:
    """The lines up to the first that has a word: what a thread has of them."""
    return lines[: next(at for at, line in enumerate(lines) if word in line) + 1]


WHOLE: Final = gather(3744, (622177920, 4977423360))
ILLEGAL: Final = "CUDA error: an illegal memory access was encountered"
REMOTE: Final = (
    "NCCL error: remote process exited or there was a network error, NCCL version 2.21.5"
)
LOST: Final = (
    (
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting"
        " prematurely."
    ),
    "Last error:",
    "socketProgress: Connection closed by remote peer node07<32926>",
)
ASSERTED: Final = "CUDA error: device-side assert triggered"
BAR: Final = " 94%|#########4| 837/888 [9:42:50<34:08, 40.17s/it]"
RAY: Final = "(WorkerDict pid=835, ip=10.0.0.3) "
KILLED: Final = "RuntimeError: DataLoader worker (pid 9382) is killed by signal: Killed. "
CUDNN: Final = raised(3, "RuntimeError: cuDNN error: CUDNN_STATUS_INTERNAL_ERROR")
ALARM: Final = disagreed(1, elsewhere(1, "BARRIER"), 2, elsewhere(0, "BARRIER"), hooked=False)
"""Which torch raises though all are in the same barrier."""
FULL: Final = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 132.00 MiB. GPU 3 has a total"
    " capacity of 79.10 GiB of which 98.00 MiB is free."
)
ABORTED: Final = (
    "RuntimeError: NCCL communicator was aborted on rank 7.  Original reason for failure was: "
    + TORCH_1_12.caught(7, reduce(0, wait_ms=1_800_000))
)
LOGGED: Final = (
    "2023-09-07 08:44:35,278 ERROR train.py:308 in <module> -- Raise exception from host with rank"
    " id: 2"
)


def saw_signal(rank: int) -> list[str]:
    """A rank that says nothing of itself."""
    group = f"[PG ID 0 PG GUID 0(default_pg) Rank {rank}]"
    said = "Observed flight recorder dump signal from another rank via TCPStore."
    return [f"[rank{rank}]:[E1129 10:11:13.1 ProcessGroupNCCL.cpp:1800] {group} {said}"]


UNDECIDED: Final = ("undecided", "")
NOTED: Final = ("", "")
"""There is no verdict: the lines are notes, for instance as their ranks may be a group's."""
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
           [[TORCH_1_12.timeout(6, reduce(0, wait_ms=1_800_000))]],
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
           [after("[rank0]:", [TORCH_2_5.terminated(0, ILLEGAL)])],
           "stated", "0", ("dead", "0")),
    Thread("github.com/vllm-project/vllm (pipelines, torch 2.13 and later)",
           [*all_in(TORCH_2_14, Op(497221, "BROADCAST", (1, 1), ("7", "pp")), range(8, 16)),
            *map(saw_signal, range(8))],
           "lines", "0-7", UNDECIDED),
    # Timeouts: what was printed of them, no more.
    Thread("github.com/NVIDIA/nccl/issues/1409",
           [TORCH_2_4.gave_up(7, cast(80078, 5056)),
            [TORCH_2_4.timeout(3, reduce(80078, 2106881))],
            raised(7, "RuntimeError: Invalid mt19937 state")],
           "lines", "3,7", UNDECIDED),
    Thread("github.com/CVL-UESTC/PFT-SR/issues/13",
           [[TORCH_2_5.counters(rank, reduce(70005)) for rank in (6, 7)],
            [TORCH_2_5.terminated(2, reduce(70002, 275094))]],
           "lines", "2,6-7", UNDECIDED),
    Thread("github.com/vllm-project/vllm/issues/23448",
           [TORCH_2_7.gave_up(0, cast(5730, 3612672, group="67"), enqueued=6464),
            TORCH_2_7.gave_up(3, cast(5729, 3612672, group="67"), enqueued=6464)],
           "open", "", UNDECIDED),
    Thread("github.com/pytorch/pytorch/issues/97191",
           [[TORCH_2_0.timeout(0, reduce(1, wait_ms=10_000))]], "shown", "0", UNDECIDED),
    Thread("github.com/NVIDIA/nccl/issues/1730",
           [TORCH_2_7.gave_up(118, reduce(2398459, 8652160, 1_800_000), enqueued=2398578)],
           "open", "", UNDECIDED),
    Thread("github.com/XPixelGroup/BasicSR/issues/737",
           [*all_in(TORCH_2_5, reduce(808, 9801523), (0, 1), 811),
            [TORCH_2_5.timeout(2, reduce(808, 9801523))]], "open", "", UNDECIDED),
    Thread("github.com/huggingface/open-r1/issues/620",
           [[TORCH_2_7.timeout(rank, cast(4, 112, 1_800_000)) for rank in range(1, 7)],
            after("  what():    what():  ", [TORCH_2_7.thrown(2, cast(4, 112, 1_800_000))])],
           "open", "", UNDECIDED),
    Thread("github.com/huggingface/accelerate/issues/3861",
           [*(TORCH_2_7.was_asked(rank, 22, 21, by="this local rank") for rank in (1, 2)),
            saw_signal(0), [TORCH_2_7.terminated(2, cast(22, 687))]],
           "open", "", UNDECIDED),
    Thread("github.com/axolotl-ai-cloud/axolotl/issues/3476",
           [TORCH_2_7.was_asked(1, 855, 12, by="this local rank"),
            [TORCH_2_7.terminated(1, call("SCATTER", 13, (384, 0), 1_800_000))]],
           "stated", "", UNDECIDED),
    Thread("github.com/ai2cm/ace/issues/348",
           [[TORCH_2_2.timeout(rank, reduce(1132079, 304640, 1_800_000)) for rank in (3, 2, 1)]],
           "open", "", UNDECIDED),
    Thread("github.com/lsdefine/simple_GRPO/issues/46",
           [after(BAR, TORCH_2_7.gave_up(2, reduce(45390, 544997376, group="1"), enqueued=45403)),
            TORCH_2_7.was_asked(2, 136, 136, by="this local rank"),
            TORCH_2_7.was_asked(5, 136, 136)],
           "open", "", UNDECIDED),
    Thread("github.com/OpenRLHF/OpenRLHF/issues/1126",
           [TORCH_2_7.was_asked(2, 460631, 460630, by=" rank 6"),
            TORCH_2_7.gave_up(7, reduce(460631))],
           "open", "", UNDECIDED),
    Thread("github.com/snowflakedb/ArcticTraining/issues/219",
           [[TORCH_2_7.timeout(2, gather(120049, (16384000, 131072000))),
             TORCH_2_7.counters(5, gather(120049, (0, 0)), enqueued=120051),
             TORCH_2_7.terminated(7, gather(120049, (16384000, 131072000)))]],
           "open", "", UNDECIDED),
    Thread("github.com/OpenRLHF/OpenRLHF/issues/460",
           [after("dev-worker-1: ",
                  [*(TORCH_2_3.timeout(rank, gather(5650564, (15138816, 242221056)))
                     for rank in (12, 10)),
                   TORCH_2_3.terminated(12, gather(5650564, (15138816, 242221056)))])],
           "open", "", UNDECIDED),
    Thread("github.com/OpenRLHF/OpenRLHF/issues/427",
           [after("[2024-08-21 03:38:02] ",
                  [TORCH_2_3.timeout(7, gather(57599, (116391936, 931135488), 43_200_000))])],
           "open", "", UNDECIDED),
    Thread("github.com/huggingface/open-r1/issues/160",
           [after("[gpu12:5]:", TORCH_2_5.gave_up(5, WHOLE, enqueued=3749)),
            after("[gpu12:4]:", [TORCH_2_5.timeout(4, WHOLE)])],
           "open", "", UNDECIDED),
    Thread("github.com/verl-project/verl/issues/2995",
           [after(RAY, TORCH_2_7.gave_up(38, reduce(10, 2, 7_200_000)))], "open", "", UNDECIDED),
    Thread("github.com/vllm-project/vllm/issues/3071",
           [after("(RayWorkerVllm pid=1394) ",
                  [TORCH_2_2.timeout(3, reduce(4967570, 73728, 1_800_000))])],
           "open", "", UNDECIDED),
    Thread("github.com/vllm-project/vllm/issues/5458",
           [TORCH_2_3.gave_up(3, reduce(1))], "open", "", UNDECIDED),
    Thread("github.com/vllm-project/vllm-omni/issues/2928",
           [TORCH_2_7.was_asked(1, 233659, 233659, by="this local rank"),
            TORCH_2_7.was_asked(0, 233659, 233659, by=" rank 1"),
            [TORCH_2_7.thrown(1, reduce(5524, 6, group="47"))]],
           "open", "", UNDECIDED),
    Thread("github.com/sgl-project/sglang/issues/1693",
           [[TORCH_2_4.thrown(5, gather(9141, (19008, 152064), 600_000, "3"))]],
           "open", "", UNDECIDED),
    Thread("github.com/huggingface/picotron_tutorial/issues/6",
           [[TORCH_2_2.timeout(rank, reduce(1, 1, 120_000)) for rank in (1, 7, 4, 5, 2)]],
           "open", "", UNDECIDED),
    Thread("github.com/naver/dust3r/issues/192",
           [[TORCH_2_2_NAMED.timeout(rank, reduce(367201, 443012)) for rank in (1, 0, 3)],
            [TORCH_2_2_NAMED.terminated(0, reduce(367201, 443012))]],
           "open", "", UNDECIDED),
    Thread("github.com/OFA-Sys/OFA/issues/271",
           [[TORCH_2_0.timeout(rank, reduce(469508, wait_ms=1_800_000))
             for rank in (1, 3, 2, 6, 7, 5)]],
           "open", "", UNDECIDED),
    Thread("github.com/open-mmlab/mmpretrain/issues/1837",
           [[TORCH_1_12.timeout(14, reduce(0, wait_ms=1_800_000))],
            [f"  what():  {TORCH_1_12.caught(rank, reduce(0, wait_ms=1_800_000))}"
             for rank in (3, 1, 4)]],
           "open", "", UNDECIDED),
    Thread("github.com/mlcommons/training/issues/546",
           [raised(7, ABORTED, hooked=False)], "open", "", UNDECIDED),
    Thread("github.com/InternLM/InternLM/issues/290",
           [[LOGGED], [TORCH_2_0.timeout(rank, reduce(316, wait_ms=1_800_000)) for rank in (0, 3)]],
           "lines", "2", UNDECIDED),
    Thread("github.com/ecmwf/WeatherGenerator/issues/433",
           [after(f"{rank}: ", TORCH_2_7.gave_up(rank, reduce(52, 11, 240_000)))
            for rank in (1, 2)],
           "open", "", UNDECIDED),
    Thread("github.com/NVIDIA-NeMo/Megatron-Bridge/issues/943",
           [[TORCH_2_7.terminated(
               10, Op(1, "COALESCED", BIG, ("90", "PIPELINE_MODEL_PARALLEL_GROUP")), inside=1)]],
           "open", "", UNDECIDED),
    Thread("github.com/modelscope/DiffSynth-Studio/issues/458",
           [[TORCH_2_5.timeout(1, Op(610, "COALESCED", (56320, 450560), ("9", "")))],
            TORCH_2_5.gave_up(7, Op(610, "COALESCED", (107520, 860160), ("9", "")), enqueued=616)],
           "open", "", UNDECIDED),
    Thread("github.com/meta-pytorch/torchtune/issues/2093",
           all_in(TORCH_2_5, reduce(28956), (4, 5)), "open", "", UNDECIDED),
    Thread("github.com/Lightning-AI/litData/issues/340",
           [after("  | 2024-08-23T22:22:51.874Z | ",
                  [TORCH_2_3.terminated(3, reduce(70426, 1, 1_800_000))])],
           "open", "", UNDECIDED),
    Thread("github.com/huggingface/diffusers/issues/12422",
           [[TORCH_2_7.timeout(rank, reduce(2521, 160672064)),
             TORCH_2_7.blocked(rank, reduce(2521, 160672064))] for rank in (1, 7, 5)],
           "open", "", UNDECIDED),
    Thread("github.com/mila-iqia/milabench/pull/269",
           [after("nodes.cn-d003.nolog [stderr] ",
                  [TORCH_2_4.terminated(6, reduce(2070)),
                   TORCH_2_4.counters(3, reduce(2070), enqueued=2082)])],
           "open", "", UNDECIDED),
    Thread("github.com/modelscope/ms-swift/issues/7992",
           [after("18:11:06.680 ", [f"[rank{rank}]:[E205 18:11:06.3 ProcessGroupNCCL.cpp:1870]"
                                    f" [{group} Rank {rank}] ProcessGroupNCCL's watchdog got stuck"
                                    " for 480 seconds without making progress"
                                    for rank, group in STUCK])],
           "stated", "", NOTED),
    Thread("github.com/pytorch/pytorch/issues/150916",
           [[TORCH_2_7.raised_async(1, reduce(335), REMOTE), *LOST]],
           "shown", "", UNDECIDED),
    # Ops that differ, and barriers.
    Thread("github.com/speechbrain/speechbrain/issues/2401",
           [disagreed(1, fingerprint(485, "ALLREDUCE", "25"),
                      0, fingerprint(485, "BROADCAST", "1", "Long"), hooked=False)],
           "lines", "0-1", NOTED),
    Thread("github.com/deepspeedai/DeepSpeed/issues/7568",
           [disagreed(2, fingerprint(32, "ALLREDUCE", ""), 3, elsewhere(0, "GATHER"))],
           "open", "", UNDECIDED),
    Thread("github.com/deepspeedai/DeepSpeed/issues/7044",
           [after("Error during backward on rank0: ",
                  [disagreed(0, fingerprint(16150, "ALLREDUCE", "497464352", "Half"),
                             1, fingerprint(16150, "ALLREDUCE", "344502304", "Half"),
                             hooked=False)[-1].removeprefix("RuntimeError: "),
                   disagreed(5, fingerprint(16150, "ALLREDUCE", "344502304", "Half"),
                             0, fingerprint(16150, "ALLREDUCE", "497464352", "Half"),
                             hooked=False)[-1].removeprefix("RuntimeError: ")])],
           "lines", "0", NOTED),
    Thread("github.com/QwenAudio/CosyVoice/issues/180",
           [[came(3), f"[E ProcessGroupGloo.cpp:138] {missed('Rank 2', 30_000)}", came(1)]],
           "lines", "2", NOTED),
    Thread("github.com/NVIDIA/nccl/issues/849",
           [raised(0, f"RuntimeError: {missed('Ranks 4, 5, 6, 7', 2_000_000)}", hooked=False)],
           "lines", "4-7", NOTED),
    # Ranks that ended, and what launchers say of it.
    Thread("github.com/axolotl-ai-cloud/axolotl/issues/1473",
           [after(BAR, [TORCH_2_2_NAMED.terminated(7, ILLEGAL)])], "lines", "7", ("dead", "7")),
    Thread("github.com/InternLM/lmdeploy/issues/3258",
           [[TORCH_2_5.thrown(2, ILLEGAL)]], "lines", "2", ("dead", "2")),
    Thread("github.com/modelscope/ms-swift/issues/8371",
           [[TORCH_2_7.terminated(11, ASSERTED)]], "lines", "11", ("dead", "11")),
    Thread("github.com/alibaba/Pai-Megatron-Patch/issues/583",
           [raised(0, KILLED, "/usr/local/lib/python3/torch/utils/data/_utils/signal_handling.py"),
            ["[rank0]: The above exception was the direct cause of the following exception:",
             "[rank0]: Traceback (most recent call last):",
             '[rank0]:   File "/home/me/pretrain_qwen.py", line 141, in <module>']],
           "lines", "0", ("dead", "0")),
    Thread("github.com/QwenLM/Qwen3-Coder/issues/174",
           [after("2024-11-20 14:37:16 ", raised(3, FULL))], "lines", "3", ("dead", "3")),
    Thread("github.com/hiyouga/LlamaFactory/issues/10261",
           [[BAR + CUDNN[0], *CUDNN[1:]]],
           "lines", "3", ("dead", "3")),
    Thread("github.com/axolotl-ai-cloud/axolotl/issues/3443",
           [no_id(3, "wait timeout after 1800000ms, keys: /default_pg/0//cuda//0")],
           "stated", "0", UNDECIDED),
    Thread("github.com/NVIDIA-NeMo/Speech/issues/14399",
           [after("B-nemo-ft3/0 [default1]:",
                  no_id(1, "wait timeout after 600000ms, keys: /default_pg/0//cuda//0"))],
           "open", "", UNDECIDED),
    Thread("github.com/pytorch/pytorch/issues/131781",
           [no_id(8, "Connection reset by peer")], "open", "", UNDECIDED),
    Thread("github.com/lzhxmu/CPPO/issues/6",
           [table((0, -9, "15:43:03"))], "lines", "0", ("dead", "0")),
    Thread("github.com/fudan-generative-vision/hallo2/issues/75",
           [table((0, -11, "15:41:29"))], "lines", "0", ("dead", "0")),
    Thread("github.com/Topdu/OpenOCR/issues/71",
           [table((0, -7, "16:45:52"), (1, -7, "16:45:52"))], "lines", "0-1", ("dead", "0-1")),
    Thread("github.com/hiyouga/LlamaFactory/issues/2206",
           [table((0, -7, "18:04:01"), (6, -7, "18:04:01"), (7, -7, "18:04:01"), host="lexun-1"),
            ["srun: error: lexun-1: task 0: Exited with exit code 1"]],
           "lines", "0,6-7", ("dead", "0,6-7")),
    Thread("github.com/open-mmlab/mmsegmentation/issues/3106",
           [table((0, -6, "22:36:10"), (1, -6, "22:36:10"), (2, -6, "22:36:10"))],
           "lines", "0-2", UNDECIDED),
    Thread("github.com/pytorch/pytorch/issues/130113",
           [table((0, 1, "14:44:36"), (1, 1, "14:44:36"), (2, 1, "14:44:36"))],
           "open", "", UNDECIDED),
    Thread("github.com/vllm-project/speculators/issues/1115",
           [until("rank      : 1 ", table((1, 1, "13:02:58"), (3, 1, "13:02:58"),
                                          (0, -9, "13:03:29"), (2, -15, "13:03:29")))],
           "lines", "1,3", UNDECIDED),
    Thread("github.com/pytorch/pytorch/issues/148976",
           [until("exitcode", table((0, 1, "18:33:20"), (1, 1, "18:33:20"))),
            ["  error_file: /tmp/torchelastic/attempt_0/1/error.json",
             f"  traceback : {ALARM[0]}", *after("  ", ALARM[1:])]],
           "shown", "", UNDECIDED),
)  # fmt: skip


def verdicts_on(thread: Thread, folder: Path) -> Sequence[Verdict]:
    log = folder / "job.out"
    log.write_text(joined(*thread.lines))
    return open_paths([log]).verdicts


def named_wrongly(thread: Thread, verdicts: Sequence[Verdict]) -> set[int]:
    guilty = set(unfold(thread.late)) if thread.late else set()
    return {rank for verdict in verdicts for rank in verdict.culprits} - guilty


@pytest.mark.parametrize("thread", THREADS, ids=lambda one: one.url.removeprefix("github.com/"))
def test_nobody_is_blamed_wrongly(thread: Thread, tmp_path: Path) -> None:
    verdicts = verdicts_on(thread, tmp_path)
    found = [(verdict.kind, fold(verdict.culprits)) for verdict in verdicts]
    assert found == ([thread.found] if thread.found != NOTED else [])
    assert not named_wrongly(thread, verdicts)
    assert all(verdict.evidence[0].startswith("job.out:") for verdict in verdicts)


def test_how_many_threads_are_decided(tmp_path: Path) -> None:
    """The figures in docs/logs.md; `pytest -s` prints them."""
    counts = Counter[str]()
    proved = 0
    for thread in THREADS:
        verdicts = verdicts_on(thread, tmp_path)
        named = {rank for verdict in verdicts for rank in verdict.culprits}
        if named:
            right = not named_wrongly(thread, verdicts)
            counts["name the rank" if right else "are wrong"] += 1
            proved += right and thread.known in ("shown", "stated")
        elif any(verdict.kind == "mismatch" for verdict in verdicts):
            counts["name the ops that differ"] += 1
        else:
            counts["undecided" if verdicts else "only noted"] += 1
    print(f"{len(THREADS)} threads: {dict(counts)}; {proved} ranks were shown or stated elsewhere")
    assert not counts["are wrong"]
    assert counts["name the rank"] >= RIGHT
