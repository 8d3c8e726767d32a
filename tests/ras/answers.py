"""Answers of RAS, made from the public description of its two formats; none comes from NCCL."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

KINDS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")
HASH = "0xae94423cfbb2ef4a"
ADDRESS = "10.77.0.10"


def rank(number: int, pid: int, all_reduces: int = 8812, **changes: Any) -> dict[str, Any]:
    status = {
        "init_state": 0,
        "async_error": 0,
        "finalize_called": False,
        "destroy_flag": False,
        "abort_flag": False,
    }
    found = {
        "rank": number,
        "host": ADDRESS,
        "pid": pid,
        "cuda_dev": number,
        "nvml_dev": number,
        "status": status,
        "collective_counts": dict.fromkeys(KINDS, 0) | {"AllReduce": all_reduces},
    }
    return found | changes


def missing(number: int, pid: int, *, unresponsive: bool = True, dead: bool = False) -> Any:
    return {
        "rank": number,
        "host": ADDRESS,
        "pid": pid,
        "cuda_dev": number,
        "nvml_dev": number,
        "status": {"unresponsive": unresponsive, "considered_dead": dead},
    }


def communicator(
    ranks: Sequence[Mapping[str, Any]], absent: Sequence[Any] = (), name: str = HASH, **changes: Any
) -> dict[str, Any]:
    found = {
        "hash": name,
        "secondary_hash": "0xb7e7187447156001:0xb8242ed28a71381e",
        "size": len(ranks) + len(absent),
        "ranks_count": len(ranks),
        "missing_ranks_count": len(absent),
        "ranks": list(ranks),
        "missing_ranks": list(absent),
    }
    return found | changes


def document(*communicators: Mapping[str, Any], version: str = "2.28.9") -> dict[str, Any]:
    return {
        "nccl_version": version,
        "cuda_runtime_version": 13000,
        "cuda_driver_version": 13000,
        "timestamp": "2026-01-19 13:06:53",
        "communicators_count": len(communicators),
        "communicators": list(communicators),
        "ras": {"collection_time_sec": 2.05, "timeouts_count": 1},
    }


def as_json(*communicators: Mapping[str, Any], version: str = "2.28.9") -> bytes:
    return json.dumps(document(*communicators, version=version), indent=2).encode() + b"\n"


TEXT_HEAD = """\
NCCL version 2.27.3+cuda12.9 compiled with CUDA 12.9
CUDA runtime version 12090, driver version 12090

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      2          4            1          8        8

Communicators... (2.05s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         2       3-4         8         7   RUNNING  INCOMPLETE,MISMATCH
    1         2         1         4         4         8   RUNNING      OK

Errors
======
"""
TEXT = (
    TEXT_HEAD
    + """
INCOMPLETE
  Missing communicator data from 1 job process
  Process 90077 on node 10.77.0.11 managing GPU 3

#0-0 (27a079b828ff1a75) INCOMPLETE
  Missing communicator data from 1 rank
  Rank 7 -- GPU 3 managed by process 90077 on node 10.77.0.11

Warnings
========

TIMEOUT
  Encountered 2 communication timeouts while gathering communicator data

#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different AllReduce operation counts
  4 ranks have launched up to operation 6650
  2 ranks have launched up to operation 6649
  Rank 0 -- GPU 0 managed by process 48307 on node 10.77.0.10
  Rank 2 -- GPU 2 (NVML 6) managed by process 48309 on node 10.77.0.10
  Rank 5 has launched up to operation 17 -- GPU 1 managed by process 48311 on node 10.77.0.11
  Communicator ranks have different Broadcast operation counts
  6 ranks have launched up to operation 3
  Rank 1 has not launched any operations -- [process information not found]

"""
)
OLDEST_TEXT = (
    TEXT_HEAD.replace("2.27.3+cuda12.9", "2.24.3+cuda12.6")
    + """
#0-0 (00a079b828ff1a75) INCOMPLETE
  Missing communicator data from 1 rank
  The missing rank: 7

Warnings
========

#0-0 (00a079b828ff1a75) MISMATCH
  Communicator ranks have different status
  5 ranks have status RUNNING
  Rank 3 has status INIT -- GPU 3 managed by process 48310 on node 10.77.0.10
  Communicator ranks have different collective operation counts
  5 ranks have launched up to operation 6650
  Rank 2 has launched up to operation 6649 -- GPU 2 managed by process 48309 on node 10.77.0.10

"""
)
"""Before NCCL 2.26: one count for all kinds, and missing ranks by number only."""
