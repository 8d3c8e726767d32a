"""Facts of a host and a rank where everything is open."""

from __future__ import annotations

from dataclasses import replace

from frtop_probe.features.doctor.facts import (
    HostFacts,
    PlaceFacts,
    ProcFacts,
    RankFacts,
    RingFacts,
    ToolFacts,
    TorchFiles,
    Trial,
)
from frtop_probe.proc.process_rights import ProcessRights

OK = Trial("ok")
SPACES = {"pid": 0xEFFFFFFC, "mnt": 1, "net": 2, "user": 0xEFFFFFFD, "ipc": 4}
OURS = ProcessRights(10, uid=1000, gid=1000, owner=1000, state="R", namespaces=SPACES, seccomp=0)
THEIRS = replace(OURS, pid=77, state="S")
TORCH = TorchFiles("2.13.0", "/t/torch/lib/libtorch_cpu.so", exports=True, locals=True)
SHM = PlaceFacts("/dev/shm", exists=True, writable=True, size=1 << 30, free=1 << 30, device=5)
TMP = PlaceFacts("/tmp", exists=True, writable=True, size=1 << 30, free=1 << 30)
SPY = ToolFacts("py-spy", "/v/bin/py-spy", 62, executable=True, mount="/v", trial=OK)
HOST = HostFacts(
    "node0", OURS, python="3.11.7", program="/v/bin/python", machine=62, read_memory=OK,
    vm_readv=OK, ptrace=OK, kcmp=OK, memory_file=OK, shared_memory=SHM, temporary=TMP,
    folder="/dev/shm/frtop-1000", tools=(SPY,), job_python="/j/bin/python", job_torch=TORCH,
    proc=ProcFacts(own=True),
)  # fmt: skip
RANK = RankFacts(
    77, 0, rights=THEIRS, python="3.11", program="/j/bin/python3.11",
    torch=TORCH, groups=2, backends=("nccl",), rings=(RingFacts("nccl", 2000, 40),),
    shared_memory=5,
)  # fmt: skip
