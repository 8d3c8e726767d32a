"""The known faults, each with its source. Of several that match, the more special one is first.

After a change: `cd tests && ../.venv/bin/python -m features.known_faults.page`, which rewrites the
table of `docs/features/known_faults.md`.
"""

from __future__ import annotations

from typing import Final

from frtop_tui.features.known_faults.model import KnownFault, Signs, Versions

_NCCL_TAG: Final = "https://github.com/NVIDIA/nccl/releases/tag/"
_NCCL_ISSUE: Final = "https://github.com/NVIDIA/nccl/issues/"
_NCCL_HELP: Final = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
_NCCL_ENV: Final = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
_TORCH: Final = "https://github.com/pytorch/pytorch/pull/"
_TORCH_ISSUE: Final = "https://github.com/pytorch/pytorch/issues/"
_TORCH_DOCS: Final = "https://docs.pytorch.org/docs/stable/"

FAULTS: Final = (
    KnownFault(
        "nccl#2353", "lost slots of the proxy, for which ncclLocalOpAppend waits forever",
        Signs(stack=(r"ncclLocalOpAppend",)),
        "a thread in ncclLocalOpAppend",
        f"{_NCCL_ISSUE}2353", "high", "NCCL", Versions("2.29.3"),
        provided="hosts are ARM (Grace, GB10)",
    ),
    KnownFault(
        "pytorch#119215", "processes hang in ncclCommAbort when they end",
        Signs(stack=(r"ncclCommAbort",)),
        "a thread in ncclCommAbort",
        f"{_TORCH_ISSUE}119215", "high", "NCCL", Versions("2.17.2", "2.17.1", fix=False),
        cure="call destroy_process_group before the end, or take another NCCL",
    ),
    KnownFault(
        "NCCL 2.26.2, abort", "ncclCommAbort waits for a thread that polls the network forever",
        Signs(stack=(r"ncclCommAbort",)),
        "a thread in ncclCommAbort",
        f"{_NCCL_TAG}v2.26.2-1", "high", "NCCL", Versions("2.26.2"),
    ),
    KnownFault(
        "NCCL 2.27.3, all-to-all", "exchanges of each rank with each other hang above 80 ranks",
        Signs(ops=("all_to_all", "all_to_all_single"), world=81),
        "an all-to-all in a job of more than 80 ranks",
        f"{_NCCL_TAG}v2.27.3-1", "high", "NCCL", Versions("2.27.3"), needs_version=True,
    ),
    KnownFault(
        "NCCL 2.29.2, GDR", "jobs hang where GPUDirect RDMA is switched off",
        Signs(setting=("NCCL_NET_GDR_LEVEL", r"LOC|0")),
        "NCCL_NET_GDR_LEVEL switches GPUDirect RDMA off",
        f"{_NCCL_TAG}v2.29.2-1", "high", "NCCL", Versions("2.29.2"),
        provided="GPUs are GB200 or GB300 with ConnectX-8",
        cure="2.29.3 also corrects a hang on ARM",
    ),
    KnownFault(
        "NCCL 2.26.2, shared resources", "grouped communicators hang in their set-up",
        Signs(
            setting=("NCCL_COMM_SPLIT_SHARE_RESOURCES", r"1"),
            stack=(r"ncclCommSplit|ncclCommInitRank|ncclGroupEnd",),
        ),
        "NCCL_COMM_SPLIT_SHARE_RESOURCES=1, and a thread in a communicator's set-up",
        f"{_NCCL_TAG}v2.26.2-1", "high", "NCCL", Versions("2.26.2"),
    ),
    KnownFault(
        "NCCL 2.26.2, plugins", "an error of a network plugin becomes a hang",
        Signs(line=r"NCCL WARN NET/(?:OFI|Plugin).*(?:error|fail)"),
        "an error of a network plugin",
        f"{_NCCL_TAG}v2.26.2-1", "high", "NCCL", Versions("2.26.2"),
    ),
    KnownFault(
        "NCCL 2.21.5, NCCL_CROSS_NIC", "ranks with different NCCL_CROSS_NIC hang",
        Signs(differs="NCCL_CROSS_NIC"),
        "NCCL_CROSS_NIC differs between ranks",
        f"{_NCCL_TAG}v2.21.5-1", "high", "NCCL", Versions("2.21.5"),
        cure="give all ranks the same value",
    ),
    KnownFault(
        "NCCL 2.20.3, all-to-all", "connecting each rank with each other hangs",
        Signs(
            ops=("all_to_all", "all_to_all_single"),
            stack=(r"ncclTransportP2pSetup|ncclP2PPreconnect",),
        ),
        "an all-to-all whose connections are being made",
        f"{_NCCL_TAG}v2.20.3-1", "high", "NCCL", Versions("2.20.3"),
    ),
    KnownFault(
        "nccl#2385", "ncclCommInitRank never returns where hosts have different numbers of ranks",
        Signs(uneven=True, stack=(r"ncclCommInitRank",)),
        "hosts with different numbers of ranks, and a thread in ncclCommInitRank",
        f"{_NCCL_ISSUE}2385", "medium", "NCCL", Versions("2.31.3", "2.31.2", fix=False),
        cure="run as many ranks on each host",
    ),
    KnownFault(
        "NCCL_IB_TIMEOUT", "a short failure of an InfiniBand link, or congestion, ends the job",
        Signs(line=r"Got completion .*(?:status=(?:12\b|\w+\(12\))|with error 12\b)"),
        "completions with status 12: retries exceeded",
        _NCCL_ENV, "high",
        provided="the peer's process and its link are well",
        cure="raise NCCL_IB_TIMEOUT (22)",
    ),
    KnownFault(
        "PCI access control", "with ACS or an IOMMU, GPUs cannot reach each other's memory",
        Signs(line=r"Got completion .*(?:status=(?:4\b|\w+\(4\))|with error 4\b)"),
        "completions with status 4: local protection error",
        _NCCL_HELP, "medium",
        provided="ACS or the IOMMU is on: NCCL_P2P_DISABLE=1 cures it",
        cure="switch them off in the BIOS, or set NCCL_P2P_LEVEL=NVL",
    ),
    KnownFault(
        "small /dev/shm", "a container has too little shared memory for NCCL",
        Signs(line=r"Error while creating shared memory segment"),
        "a segment in /dev/shm could not be created",
        _NCCL_HELP, "high",
        cure="start the container with --shm-size or --ipc=host",
    ),
    KnownFault(
        "wrong network interface", "ranks reach each other by an interface of containers",
        Signs(line=r"(?i)connect.{0,80}\b172\.17\.\d{1,3}\.\d{1,3}\b"),
        "a failed connection to 172.17.0.0/16, docker's own network",
        f"{_NCCL_ISSUE}331", "medium",
        cure="set NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME, or start containers with"
        " --network=host",
    ),
    KnownFault(
        "fabric manager", "GPUs behind NVSwitch are not ready before the fabric manager runs",
        Signs(line=r"Cuda failure 802|system not yet initialized"),
        "CUDA error 802: system not yet initialized",
        "https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html", "medium",
        cure="start nvidia-fabricmanager",
    ),
    KnownFault(
        "duplicate GPU", "two ranks use one GPU: no device was set before the first op",
        Signs(line=r"Duplicate GPU detected"),
        "NCCL names two ranks on one GPU",
        f"{_TORCH_DOCS}distributed.html", "high",
        cure="call torch.cuda.set_device, or pass device_id to init_process_group",
    ),
    KnownFault(
        "guessed GPU", "barrier() guesses the GPU of a rank from its number",
        Signs(line=r"cause a hang if (?:this )?rank to GPU mapping is", hangs=True),
        "a hang, and torch's warning that it guesses the GPU",
        f"{_TORCH_DOCS}distributed.html", "high",
        provided="a rank uses another GPU than its number says",
        cure="call torch.cuda.set_device, or pass device_id to init_process_group",
    ),
    KnownFault(
        "port taken", "another process on the host has a port that this job needs",
        Signs(line=r"EADDRINUSE|[Aa]ddress already in use"),
        "an address is already in use",
        f"{_TORCH_DOCS}elastic/run.html", "high",
        cure="give each job its own MASTER_PORT or --rdzv-endpoint",
    ),
    KnownFault(
        "old kernel", "processes may hang on Linux before 5.5",
        Signs(line=r"Detected kernel version .* is below the recommended minimum of", hangs=True),
        "a hang, and accelerate's warning of an old kernel",
        "https://github.com/huggingface/accelerate/blob/main/src/accelerate/utils/other.py",
        "medium",
        provided="nothing else explains the hang",
        cure="use a newer kernel",
    ),
    KnownFault(
        "pytorch#119393", "cudaEventDestroy is called with the GIL held: two threads wait for ever",
        Signs(stack=(r"cudaEventDestroy",)),
        "a thread in cudaEventDestroy",
        f"{_TORCH}119393", "high", "torch", Versions("2.3"),
    ),
    KnownFault(
        "pytorch#109159", "torch.cuda.synchronize waits with the GIL held: others stand still",
        Signs(stack=(r"^synchronize \(.*torch/cuda/__init__\.py",)),
        "a thread in torch.cuda.synchronize",
        f"{_TORCH}109159", "medium", "torch", Versions("2.2"),
        provided="what the device waits for needs another thread of Python",
        needs_version=True,
    ),
    KnownFault(
        "pytorch#132520", "functions of CUDA's runtime wait with the GIL held",
        Signs(stack=(r"cudaHost(?:Unr|R)egister",)),
        "a thread in cudaHostRegister or cudaHostUnregister",
        f"{_TORCH}132520", "medium", "torch", Versions("2.5"),
        provided="the program calls them by torch.cuda.cudart()",
    ),
    KnownFault(
        "pytorch#196968", "a rank in ProcessGroupNCCL's teardown writes no Flight Recorder dump",
        Signs(stack=(r"~ProcessGroupNCCL|ProcessGroupNCCL::shutdown",)),
        "a thread in ProcessGroupNCCL's teardown",
        f"{_TORCH_ISSUE}196968", "medium", "torch", Versions("2.14", fix=False),
        needs_version=True,
    ),
    KnownFault(
        "unfinished reduction", "DDP waits for gradients of parameters that some rank did not use",
        Signs(line=r"Expected to have finished reduction in the prior iteration"),
        "DDP says that a reduction did not finish",
        f"{_TORCH_DOCS}generated/torch.nn.parallel.DistributedDataParallel.html", "high",
        cure="take the same branches on all ranks, or set find_unused_parameters=True",
    ),
    KnownFault(
        "DeepSpeed ZeRO-3 with experts", "ranks whose experts got no token gather other parameters",
        Signs(
            stack=(r"deepspeed/runtime/zero/", r"(?i)moe|mixtral|experts?\b"),
            ops=("all_gather_into_tensor", "reduce_scatter_tensor", "all_gather"),
        ),
        "ZeRO-3 gathers parameters below a layer of experts",
        "https://github.com/deepspeedai/DeepSpeed/pull/4966", "high",
        provided="layers of experts are not set as leaves",
        cure="call set_z3_leaf_modules with the class of that layer",
    ),
    KnownFault(
        "text-only batches", "ranks without an image skip the vision tower and its gathers",
        Signs(
            stack=(r"/fsdp/|_fsdp/|deepspeed/runtime/zero/", r"(?i)vision|visual"),
            ops=("all_gather_into_tensor", "all_gather"),
        ),
        "sharded parameters are gathered below a vision tower",
        "https://github.com/QwenLM/Qwen3-VL/issues/346", "medium",
        provided="some ranks had a batch without images",
        cure="run the tower on a dummy image there",
    ),
    KnownFault(
        "long work before a barrier", "one rank downloads or tokenizes while the others wait",
        Signs(
            stack=(r"datasets/arrow_dataset\.py|huggingface_hub/|transformers/tokenization",),
            ops=("barrier", "monitored_barrier"),
        ),
        "a thread in datasets, huggingface_hub or a tokenizer while others are in a barrier",
        "https://github.com/huggingface/accelerate/issues/1359", "high",
        provided="that takes longer than the op's timeout",
        cure="raise init_process_group(timeout=...), or do it before",
    ),
    KnownFault(
        "state_dict on one rank", "only some ranks gather a sharded state_dict",
        Signs(
            stack=(r"^(?!\S*save)\S*state_dict.*\(.*(?:fsdp|deepspeed|distributed/checkpoint)",),
            ops=("all_gather_into_tensor", "all_gather", "barrier", "all_reduce"),
        ),
        "a thread gathers a sharded state_dict",
        "https://github.com/huggingface/accelerate/issues/1171", "medium",
        provided="the call stands below a test of the rank",
        cure="call it on all ranks, and write the file on one",
    ),
    KnownFault(
        "vLLM's custom all-reduce", "its peer-to-peer copies hang behind an IOMMU or ACS",
        Signs(stack=(r"custom_all_reduce\.py",)),
        "a thread in vLLM's custom all-reduce",
        "https://github.com/vllm-project/vllm/issues/51513", "medium",
        provided="GPUs are connected by PCIe only",
        cure="start vLLM with --disable-custom-all-reduce",
    ),
    KnownFault(
        "vllm#43547", "a data-parallel rank without tokens skips a step of a MoE model",
        Signs(stack=(r"/vllm/",), ops=("reduce_scatter_tensor", "reduce_scatter")),
        "vLLM's ranks wait in a reduce_scatter",
        "https://github.com/vllm-project/vllm/issues/43547", "medium",
        provided="data-parallel ranks of a MoE model run under ray or mp",
    ),
    KnownFault(
        "graphs of several communicators", "a thread launches CUDA graphs of several: a deadlock",
        Signs(stack=(r"cudaGraphLaunch",)),
        "a thread in cudaGraphLaunch",
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/cudagraph.html", "medium",
        provided="they contain collectives of several communicators",
        cure="set NCCL_GRAPH_MIXING_SUPPORT=0 if no other ops are outstanding meanwhile; in vLLM,"
        " --enforce-eager goes without graphs",
    ),
)  # fmt: skip
