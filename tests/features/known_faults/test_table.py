"""Each known fault is found by its signs, and by nothing less."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.known_faults.page import PAGE, rewritten
from frtop_tui.features.known_faults.matching import MOST, lines_of, matches
from frtop_tui.features.known_faults.model import (
    BUNDLED,
    Facts,
    KnownFault,
    Signs,
    Version,
    parsed,
)
from frtop_tui.features.known_faults.table import FAULTS

Stacks = tuple[tuple[str, ...], ...]
BY_NAME: Final = {one.name: one for one in FAULTS}
A2A: Final = frozenset({"all_to_all_single"})
GATHER: Final = frozenset({"all_gather_into_tensor"})


def stack(*frames: str) -> Stacks:
    return (tuple(frames),)


def said(text: str) -> Facts:
    return Facts(texts=("slurm-1.out:1: epoch 3", text))


ABORT: Final = Facts(threads=stack("ncclCommAbort (libnccl.so.2)", "main (train.py)"))
CROSS: Final = Facts(differing=frozenset({"NCCL_CROSS_NIC"}))
OLD: Final = "Detected kernel version 5.4.0, which is below the recommended minimum of 5.5.0"
GUESSED: Final = (
    "using GPU 0 as device used by this process is currently unknown. This can potentially cause a"
    " hang if this rank to GPU mapping is incorrect."
)
IB: Final = "node3:1:2 [0] net_ib.cc:9 NCCL WARN NET/IB: Got completion from peer 10.0.0.3<4> with "
EXAMPLES: Final[dict[str, tuple[Facts, Facts]]] = {
    "nccl#2353": (
        Facts(threads=stack("ncclLocalOpAppend (libnccl.so.2)", "ncclProxySaveOp (libnccl.so.2)")),
        Facts(threads=stack("ncclProxySaveOp (libnccl.so.2)")),
    ),
    "pytorch#119215": (ABORT, Facts(threads=stack("ncclCommInitRank (libnccl.so.2)"))),
    "NCCL 2.26.2, abort": (ABORT, Facts(threads=stack("ncclCommDestroy (libnccl.so.2)"))),
    "NCCL 2.27.3, all-to-all": (Facts(ops=A2A, world=81), Facts(ops=A2A, world=80)),
    "NCCL 2.29.2, GDR": (
        Facts(settings={"NCCL_NET_GDR_LEVEL": frozenset({"LOC"})}),
        Facts(settings={"NCCL_NET_GDR_LEVEL": frozenset({"SYS"})}),
    ),
    "NCCL 2.26.2, shared resources": (
        Facts(
            settings={"NCCL_COMM_SPLIT_SHARE_RESOURCES": frozenset({"1"})},
            threads=stack("ncclCommSplit (libnccl.so.2)"),
        ),
        Facts(threads=stack("ncclCommSplit (libnccl.so.2)")),
    ),
    "NCCL 2.26.2, plugins": (
        said("a:1:2 [0] nccl_ofi.c:9 NCCL WARN NET/OFI Request completed with error"),
        said("a:1:2 [0] socket.cc:9 NCCL WARN socketProgress: Connection closed"),
    ),
    "NCCL 2.21.5, NCCL_CROSS_NIC": (
        CROSS, Facts(settings={"NCCL_CROSS_NIC": frozenset({"1"})}),
    ),
    "NCCL 2.20.3, all-to-all": (
        Facts(ops=A2A, threads=stack("ncclTransportP2pSetup (libnccl.so.2)")),
        Facts(ops=GATHER, threads=stack("ncclTransportP2pSetup (libnccl.so.2)")),
    ),
    "nccl#2385": (
        Facts(uneven=True, threads=stack("ncclCommInitRankConfig (libnccl.so.2)")),
        Facts(threads=stack("ncclCommInitRankConfig (libnccl.so.2)")),
    ),
    "NCCL_IB_TIMEOUT": (
        said(f"{IB}status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) vendor_err=129"),
        said(f"{IB}status=5 opcode=0 len=12 vendor err 129"),
    ),
    "PCI access control": (
        said(f"{IB}error 4, opcode 0, len 0, vendor err 12"),
        said(f"{IB}error 12, opcode 4, len 4, vendor err 4"),
    ),
    "small /dev/shm": (
        said("Error while creating shared memory segment /dev/shm/nccl-a1 (size 33030528)"),
        said("No space left on device"),
    ),
    "wrong network interface": (
        said("NCCL WARN socketStartConnect: Connect to 172.17.0.1<4711> failed : refused"),
        said("NCCL WARN socketStartConnect: Connect to 10.0.0.1<4711> failed : refused"),
    ),
    "fabric manager": (
        said("NCCL WARN Cuda failure 802 'system not yet initialized'"),
        said("NCCL WARN Cuda failure 'out of memory'"),
    ),
    "duplicate GPU": (
        said("NCCL WARN Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1000"),
        said("using GPU 0 as device used by this process is currently unknown"),
    ),
    "guessed GPU": (
        replace(said(GUESSED), hangs=True),
        said(GUESSED),
    ),
    "port taken": (
        said("DistNetworkError: the server socket has failed: port: 29500, EADDRINUSE"),
        said("DistNetworkError: the client socket has timed out"),
    ),
    "old kernel": (
        replace(said(OLD), hangs=True),
        said(OLD),
    ),
    "pytorch#119393": (
        Facts(threads=stack("cudaEventDestroy (libcudart.so.12)")),
        Facts(threads=stack("cudaEventSynchronize (libcudart.so.12)")),
    ),
    "pytorch#109159": (
        Facts(threads=stack("synchronize (/v/torch/cuda/__init__.py)")),
        Facts(threads=stack("synchronize (/v/torch/cuda/streams.py)")),
    ),
    "pytorch#132520": (
        Facts(threads=stack("cudaHostUnregister (libcudart.so.12)")),
        Facts(threads=stack("cudaHostAlloc (libcudart.so.12)")),
    ),
    "pytorch#196968": (
        Facts(threads=stack("c10d::ProcessGroupNCCL::~ProcessGroupNCCL (libtorch_cuda.so)")),
        Facts(threads=stack("c10d::ProcessGroupNCCL::allreduce (libtorch_cuda.so)")),
    ),
    "unfinished reduction": (
        said("RuntimeError: Expected to have finished reduction in the prior iteration before"),
        said("RuntimeError: Expected all tensors to be on the same device"),
    ),
    "DeepSpeed ZeRO-3 with experts": (
        Facts(ops=GATHER, threads=stack(
            "fetch_sub_module (/opt/deepspeed/runtime/zero/partitioned_param_coordinator.py)",
            "forward (/opt/transformers/models/mixtral/modeling_mixtral.py)")),
        Facts(ops=GATHER, threads=stack(
            "fetch_sub_module (/opt/deepspeed/runtime/zero/partitioned_param_coordinator.py)",
            "forward (/opt/transformers/models/llama/modeling_llama.py)")),
    ),
    "text-only batches": (
        Facts(ops=GATHER, threads=stack(
            "unshard (/opt/torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py)",
            "forward_vision (/home/me/model.py)")),
        Facts(ops=GATHER, threads=stack("forward_vision (/home/me/model.py)")),
    ),
    "long work before a barrier": (
        Facts(ops=frozenset({"barrier"}), threads=stack("map (/opt/datasets/arrow_dataset.py)")),
        Facts(ops=GATHER, threads=stack("map (/opt/datasets/arrow_dataset.py)")),
    ),
    "state_dict on one rank": (
        Facts(ops=GATHER, threads=stack("_full_state_dict (/opt/torch/distributed/fsdp/x.py)")),
        Facts(ops=GATHER, threads=stack("state_dict (/opt/torch/nn/modules/module.py)",
            "_save_state_dict (/opt/torch/distributed/checkpoint/state_dict_saver.py)")),
    ),
    "vLLM's custom all-reduce": (
        Facts(threads=stack("all_reduce (/opt/vllm/distributed/custom_all_reduce.py)")),
        Facts(threads=stack("all_reduce (/opt/vllm/distributed/pynccl.py)")),
    ),
    "vllm#43547": (
        Facts(ops=frozenset({"reduce_scatter_tensor"}),
              threads=stack("execute (/opt/vllm/v1/engine/core.py)")),
        Facts(ops=GATHER, threads=stack("execute (/opt/vllm/v1/engine/core.py)")),
    ),
    "graphs of several communicators": (
        Facts(threads=stack("cudaGraphLaunch (libcudart.so.12)")),
        Facts(threads=stack("cudaLaunchKernel (libcudart.so.12)")),
    ),
}  # fmt: skip
VERSIONS: Final = st.tuples(
    st.integers(1, 3), st.integers(0, 40), st.integers(0, 12)
) | st.sampled_from(
    [(2, 29, 2), (2, 29, 3), (2, 26, 1), (2, 26, 2), (2, 17, 1), (2, 2, 9), (2, 3, 0)]
)


def with_version(facts: Facts, fault: KnownFault, version: Version) -> Facts:
    if fault.library == "NCCL":
        return replace(facts, nccl=frozenset({version}))
    return replace(facts, torch=frozenset({".".join(map(str, version))}))


def affected(fault: KnownFault) -> Version:
    """A version that has the fault."""
    versions = fault.versions
    assert versions is not None
    if versions.first:
        return parsed(versions.first)
    major, minor, *_ = parsed(versions.fixed)
    return (major, minor - 1, 0)


def found(fault: KnownFault, facts: Facts) -> list[str]:
    return [*lines_of(matches(facts, [fault]))]


def test_every_fault_has_examples_and_a_name_of_its_own() -> None:
    assert [one.name for one in FAULTS] == [*EXAMPLES]


@pytest.mark.parametrize("name", EXAMPLES)
def test_it_is_found_by_its_signs_and_its_version(name: str) -> None:
    fault, (there, not_there) = BY_NAME[name], EXAMPLES[name]
    if fault.versions is not None:
        there = with_version(there, fault, affected(fault))
        not_there = with_version(not_there, fault, affected(fault))
    (line,) = found(fault, there)
    assert line.startswith(("may be " if fault.provided else "matches ") + fault.name)
    assert fault.source in line
    assert found(fault, not_there) == []


@pytest.mark.parametrize("name", EXAMPLES)
def test_without_its_version_it_only_may_be_the_one(name: str) -> None:
    fault = BY_NAME[name]
    lines = found(fault, EXAMPLES[name][0])
    if fault.versions is not None:
        said = f"if {fault.library} is a version {fault.versions}"
        assert [said in line for line in lines] == ([] if fault.needs_version else [True])
        assert all(line.startswith("may be ") for line in lines)


@given(fault=st.sampled_from([one for one in FAULTS if one.versions]), version=VERSIONS)
def test_versions_are_affected_from_the_first_up_to_the_one_with_the_fix(
    fault: KnownFault, version: Version
) -> None:
    assert fault.versions is not None
    facts = with_version(EXAMPLES[fault.name][0], fault, version)
    first = parsed(fault.versions.first) or (0,)
    assert bool(found(fault, facts)) == (first <= version < parsed(fault.versions.fixed))


@given(version=VERSIONS, more=st.integers(1, 9))
def test_what_one_version_has_the_earlier_ones_have_unless_it_is_younger(
    version: Version, more: int
) -> None:
    later = (*version[:2], version[2] + more)
    for fault in FAULTS:
        if fault.versions is not None and not fault.versions.first:
            facts = EXAMPLES[fault.name][0]
            after = found(fault, with_version(facts, fault, later))
            before = found(fault, with_version(facts, fault, version))
            assert before or not after


@pytest.mark.parametrize(
    ("torch", "said"),
    [
        ("2.7.1+cu128", "torch 2.7 comes with 2.26.2, unless it was replaced"),
        ("2.13.0", None),  # with 2.29.7, which is not affected
        ("2.6.0a0+nv25.01", "if NCCL is a version before 2.29.3;"),
        ("2.13.0+cpu", None),
        ("2.9.0+rocm6.4", None),
        ("2.99.0", "if NCCL is a version before 2.29.3;"),
    ],
)
def test_torch_hints_at_its_nccl(torch: str, said: str | None) -> None:
    fault = BY_NAME["nccl#2353"]
    lines = found(fault, replace(EXAMPLES[fault.name][0], torch=frozenset({torch})))
    assert [said is not None and said in line for line in lines] == ([True] if said else [])
    assert all(line.startswith("may be ") for line in lines)


def test_few_are_shown_and_the_surest_first() -> None:
    everything = Facts(
        nccl=frozenset({(2, 17, 1)}),
        texts=tuple(text for there, _ in EXAMPLES.values() for text in there.texts),
        threads=tuple(thread for there, _ in EXAMPLES.values() for thread in there.threads),
    )
    shown = matches(everything, FAULTS)
    assert len(shown) == MOST
    assert all(one.certain and one.fault.sure == "high" for one in shown)
    assert shown[0].fault.name == "pytorch#119215"  # the more special of two for one stack


def test_nothing_is_found_where_nothing_is_known() -> None:
    assert matches(Facts(), FAULTS) == []
    assert matches(Facts(torch=frozenset({"2.1.0"}), nccl=frozenset({(2, 17, 1)})), FAULTS) == []


def test_rows_are_whole() -> None:
    for one in FAULTS:
        assert re.fullmatch(r"https://[\w.-]+/\S+", one.source), one.name
        assert one.signs != Signs(), one.name
        assert bool(one.library) == (one.versions is not None), one.name
        assert one.versions is not None or one.cure or one.provided, one.name
        assert not one.needs_version or one.versions, one.name
    assert all(parsed(nccl) for nccl in BUNDLED.values())


def test_the_page_has_the_table() -> None:
    page = PAGE.read_text()
    assert page == rewritten(page), "cd tests && ../.venv/bin/python -m features.known_faults.page"
