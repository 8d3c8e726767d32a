"""Requests for tensors on a device, with a stand-in of its driver: exact, bounded, harmless."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from frtop_probe.recorder.tensors.device_reader import NAME
from frtop_probe.recorder.tensors.device_tensors import BUFFER, CAPTURING, COPY_S, NOT_ASKED, TORN
from recorder.device_rank import build, give_driver
from recorder.interactive_rank import InteractiveRank, interactive_ranks
from recorder.rank_runner import DEADLINE_S, code, run_python
from waiting import wait_for

pytestmark = pytest.mark.torch

UNKNOWN = "the recorder does not know whether it is still pending"
NOT_MADE = "is not ready yet"
ALONE = """
saved["alone"] = dist.new_group([rank], use_local_synchronization=True)
saved["tensor"] = on_device(torch.ones(4))
dist.all_reduce(saved["tensor"], group=saved["alone"])
"""
"""An op that needs no other rank, and ends."""
NAN, INF = float("nan"), float("inf")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("driver"))


@pytest.fixture(scope="module")
def pair(
    library: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[InteractiveRank, ...]]:
    """Two ranks with a driver. The second enters none of the first one's ops."""
    folder = tmp_path_factory.mktemp("devices") / "rings"
    # The stand-in looks like a device to Python only.
    with interactive_ranks(folder, 2, FRTOP_DEVICE_TENSORS="1", FRTOP_NATIVE="0") as ranks:
        for rank in ranks:
            give_driver(rank, library)
        yield tuple(ranks)


@pytest.fixture(scope="module")
def rank(pair: tuple[InteractiveRank, ...]) -> InteractiveRank:
    """The first rank, with a reader."""
    pending(pair[0], "torch.ones(3)")
    made(pair[0])
    return pair[0]


def pending(rank: InteractiveRank, tensor: str, name: str = "tensor") -> int:
    """Makes an op pending on a tensor; returns its sequence number."""
    rank.run(
        f"from math import inf, nan\n"
        f"saved['{name}'] = on_device({tensor})\n"
        f"saved['work {name}'] = dist.irecv(saved['{name}'], 1 - rank, tag=7)\n"
    )
    return rank.newest()


def made(rank: InteractiveRank) -> None:
    """Waits for the reader."""
    wait_for(lambda: NOT_MADE not in one(rank)["error"], "the reader", DEADLINE_S)


def one(rank: InteractiveRank, sequence: int = 0) -> Mapping[str, Any]:
    """Returns the only tensor of an op, by default of the newest one."""
    sequence = sequence or rank.newest()
    summaries, remark = rank.tensors(sequence)[sequence]
    (summary,) = summaries
    assert remark == (f"{UNKNOWN}; {TORN}" if summary["seen"] else UNKNOWN)
    return summary


@pytest.mark.parametrize(
    ("dtype", "values", "statistics", "odd_and_first"),
    [
        ("float32", "[1.5, -2, inf, 4, nan, -inf]", (-2, 4, 3.5 / 3, 22.25**0.5), (1, 2, "1.5")),
        ("float8_e4m3fn", "[1, nan, -2]", (-2, 1, -0.5, 5**0.5), (1, 0, "1")),
        ("bool", "[True, False]", (0, 1, 0.5, 1), (0, 0, "True")),
    ],
)
def test_statistics_are_those_of_the_device_memory(
    rank: InteractiveRank, dtype: str, values: str, statistics: Any, odd_and_first: Any
) -> None:
    pending(rank, f"torch.tensor({values}).to(torch.{dtype})")
    seen = one(rank)
    assert (seen["error"], seen["device"], seen["dtype"]) == ("", "cuda:0", dtype)
    assert seen["seen"] == seen["elements"]
    measured = (seen["minimum"], seen["maximum"], seen["mean"], seen["norm"])
    assert measured == pytest.approx(statistics)
    assert (seen["nans"], seen["infinities"], seen["first"][0]) == odd_and_first


def test_a_large_tensor_comes_in_chunks_of_the_buffer(rank: InteractiveRank) -> None:
    sequence = pending(rank, "torch.arange(2_500_001, dtype=torch.float32)")
    rank.run("switch('copies', 0); switch('largest', 0, ctypes.c_size_t)")
    seen = one(rank, sequence)
    assert (seen["seen"], seen["minimum"], seen["maximum"]) == (2_500_001, 0, 2_500_000)
    rank.run(
        f"assert seen('copies') == 3, seen('copies')\n"
        f"assert seen('largest', ctypes.c_size_t) == {BUFFER} == seen('pinned', ctypes.c_size_t)"
    )
    header, data = rank.request(
        ask="ReadTensor", sequence=sequence, index=0, offset=4 * 2_400_000, size=BUFFER
    )
    assert header == {"total": 10_000_004, "help": TORN}
    rank.run(f"assert saved['tensor'].numpy()[2_400_000:].tobytes().hex() == {data.hex()!r}")


def test_the_data_of_a_tensor_in_another_order_is_not_read(rank: InteractiveRank) -> None:
    sequence = pending(rank, "torch.ones(4, 4)")
    rank.run("saved['tensor'].t_()")
    assert one(rank, sequence)["seen"] == 16  # statistics do not depend on the order
    header, _ = rank.request(ask="ReadTensor", sequence=sequence, index=0, offset=0, size=64)
    assert "not contiguous" in header["help"]
    rank.run("saved['tensor'].set_(saved['tensor'].untyped_storage(), 0, (2, 2), (4, 2))")
    assert "not contiguous" in one(rank, sequence)["error"]


def test_a_tensor_that_the_program_dropped_is_gone(rank: InteractiveRank) -> None:
    rank.run(ALONE)
    assert one(rank)["seen"] == 4
    rank.run("del saved['tensor']")
    assert "dropped" in one(rank)["error"]
    header, _ = rank.request(ask="ReadTensor", sequence=rank.newest(), index=0, offset=0, size=16)
    assert header["error"] == "gone"


def test_the_tensors_of_an_op_that_the_device_has_completed_are_not_read(
    rank: InteractiveRank,
) -> None:
    rank.run(
        ALONE + "from frtop_probe.ring import layout\n"
        "writer = lifecycle.recorder.ring\n"
        "at = writer.cells[layout.StatusCell.HEAD] % writer.shape.slots * layout.SLOT_SIZE\n"
        "at += writer.shape.slots_offset + layout.SLOT_FLAGS\n"
        "writer.map[at] &= ~layout.Flag.UNTRACKED"  # as if a device's front had told its end
    )
    sequence = rank.newest()
    assert rank.tensors(sequence)[sequence] == ([], "it is no longer pending")
    assert sequence not in rank.tensors()


def test_a_tensor_whose_memory_was_freed_is_not_read(rank: InteractiveRank) -> None:
    sequence = pending(rank, "torch.ones(4)")
    rank.run("saved['tensor'].untyped_storage().resize_(0); switch('copies', 0)")
    assert "has freed its memory" in one(rank, sequence)["error"]
    rank.run("assert seen('copies') == 0")


def test_an_address_that_the_driver_does_not_know_is_refused_and_the_next_is_read(
    rank: InteractiveRank,
) -> None:
    pending(rank, "torch.ones(4)")
    rank.run("switch('result', 1)")
    try:
        assert "the driver refused: cuMemcpyDtoHAsync_v2 returned" in one(rank)["error"]
    finally:
        rank.run("switch('result', 0)")
    assert one(rank)["seen"] == 4


def test_a_copy_that_does_not_end_is_said_and_the_only_one(rank: InteractiveRank) -> None:
    stuck = pending(rank, "torch.ones(4)", "stuck")
    other = pending(rank, "torch.ones(5)", "other")
    rank.run("import sys; switch('stuck', 1); before = sys.getrefcount(saved['stuck'])")
    begin = time.monotonic()
    assert "device stuck: the copy did not end within" in one(rank, stuck)["error"]
    assert COPY_S <= time.monotonic() - begin < DEADLINE_S
    # It keeps its tensor, and no other read begins.
    rank.run("assert sys.getrefcount(saved['stuck']) == before + 1")
    begin = time.monotonic()
    for sequence in (stuck, other):
        assert "no other copy begins" in one(rank, sequence)["error"]
    assert time.monotonic() - begin < COPY_S
    rank.wait_for_heartbeats()
    rank.run("switch('stuck', 0)")
    rank.run("wait_for(lambda: sys.getrefcount(saved['stuck']) == before)")
    assert one(rank, other)["seen"] == 5


def test_many_tensors_of_a_stuck_device_cost_one_wait(rank: InteractiveRank) -> None:
    rank.run(
        "switch('stuck', 1)\n"
        "saved['many'] = [on_device(torch.ones(3)) for _ in range(40)]\n"
        "saved['work many'] = dist.all_reduce_coalesced(saved['many'], async_op=True)"
    )
    begin = time.monotonic()
    ((summaries, _),) = rank.tensors(rank.newest()).values()
    assert time.monotonic() - begin < 20 * COPY_S  # and not 40 times as long
    assert len(summaries) == 40
    assert all("device stuck" in one["error"] for one in summaries)
    rank.run("switch('stuck', 0)")
    wait_for(lambda: rank.tensors(rank.newest())[rank.newest()][0][0]["seen"], "a read", DEADLINE_S)


def test_nothing_is_read_while_a_graph_is_captured(rank: InteractiveRank) -> None:
    pending(rank, "torch.ones(4)")
    rank.run(
        "from frtop_probe.recorder.ops.graph_captures import captures\n"
        "class Graph: pass\n"
        "saved['graph'] = Graph(); captures.begins(saved['graph']); switch('copies', 0)"
    )
    assert one(rank)["error"] == CAPTURING
    rank.run("assert seen('copies') == 0; captures.over(saved['graph'])")
    # One that Python does not see begin is not disturbed, either.
    rank.run("switch('capture', 1)")
    assert one(rank)["seen"] == 4
    rank.run("assert not seen('spoilt'); switch('capture', 0)")


def test_nothing_is_read_unless_a_person_asks(rank: InteractiveRank) -> None:
    sequence = pending(rank, "torch.ones(4)")
    rank.run("switch('copies', 0)")
    (summary,), remark = rank.tensors(sequence, devices=False)[sequence]
    assert (summary["error"], remark) == (NOT_ASKED, UNKNOWN)
    rank.run("assert seen('copies') == 0")
    assert one(rank)["seen"] == 4


def test_only_the_device_of_the_first_op_is_read(rank: InteractiveRank) -> None:
    pending(rank, "torch.ones(4)")
    rank.run("saved['tensor'].number = 1")
    assert "only cuda:0 is read" in one(rank)["error"]
    rank.run("assert seen('contexts') == 1")


def test_its_thread_takes_no_signals(rank: InteractiveRank) -> None:
    rank.run(
        "import signal\n"
        f"(thread,) = [one for one in threading.enumerate() if one.name == {NAME!r}]\n"
        "assert thread.daemon\n"
        "lines = open(f'/proc/self/task/{thread.native_id}/status').read().splitlines()\n"
        "mask = int(next(line.split()[1] for line in lines if line.startswith('SigBlk')), 16)\n"
        "assert mask >> signal.SIGINT - 1 & 1 and mask >> signal.SIGTERM - 1 & 1"
    )


def test_a_call_that_blocks_holds_up_nothing_and_the_process_ends(
    pair: tuple[InteractiveRank, ...],
) -> None:
    rank = pair[1]
    rank.run("block('cuMemHostAlloc')")
    pending(rank, "torch.ones(3)")
    wait_for(lambda: "cuMemHostAlloc has run for" in one(rank)["error"], "its words", DEADLINE_S)
    rank.wait_for_heartbeats()
    rank.run("block('')")
    made(rank)
    assert one(rank)["seen"] == 3
    rank.run("block('cuMemcpyDtoHAsync_v2')")
    begin = time.monotonic()
    assert "device stuck: cuMemcpyDtoHAsync_v2 did not return" in one(rank)["error"]
    assert time.monotonic() - begin < DEADLINE_S
    assert "cuMemcpyDtoHAsync_v2 has not returned" in one(rank)["error"]
    rank.wait_for_heartbeats()
    rank.run("sum(range(100_000))")  # the GIL is free
    # What the driver does at the end of a process is not what this tests.
    rank.start("import sys; sys.exit(7)")
    assert rank.process.wait(DEADLINE_S) == 7


def test_a_rank_whose_copy_does_not_end_ends_as_ever(rank: InteractiveRank) -> None:
    rank.run(ALONE + "switch('stuck', 1)")  # the other rank may have ended
    assert "the copy did not end" in one(rank)["error"]
    rank.start("import sys; sys.exit(5)")
    assert rank.process.wait(DEADLINE_S) == 5


def test_a_driver_is_used_only_where_it_is_loaded_and_has_a_context(
    library: Path, tmp_path: Path
) -> None:
    program = f"""
        import ctypes
        from frtop_probe.recorder.tensors.cuda_driver import (
            CudaDriver, DriverError, relax_this_thread
        )
        def make():
            try:
                return CudaDriver().make(0, 64)
            except DriverError as error:
                return str(error)
        assert make() == relax_this_thread() == "libcuda.so.1 is not loaded in this process"
        assert "libcuda" not in open("/proc/self/maps").read()
        driver = ctypes.CDLL({str(library)!r})
        inactive = ctypes.c_int.in_dll(driver, "standin_inactive")
        inactive.value = 1
        assert make() == "device 0 has no context in this process"
        assert ctypes.c_int.in_dll(driver, "standin_contexts").value == 0
        inactive.value = 0
        assert make() is None
    """
    # The loader would find it by its name.
    ended = run_python(
        tmp_path / "rings", *code(program), prepared=True, LD_LIBRARY_PATH=str(library.parent)
    )
    assert (ended.returncode, ended.stderr) == (0, "")
