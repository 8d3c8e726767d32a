"""Requests for the tensors of hanging ops: exact, bounded, and harmless to the program."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from frtop_probe.recorder.tensors.device_tensors import NOT_WANTED
from frtop_probe.recorder.tensors.tensor_stats import MAX_VALUES
from frtop_probe.ring import beside
from frtop_probe.ring.layout import StatusCell
from recorder.device_rank import ON_DEVICE
from recorder.interactive_rank import (
    InteractiveRank,
    interactive_ranks,
    open_sockets,
)
from recorder.rank_runner import DEADLINE_S
from waiting import wait_for

pytestmark = pytest.mark.torch

Pair = tuple[InteractiveRank, InteractiveRank]
NAN, INF = float("nan"), float("inf")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two ranks. The second never does what the first waits for, unless a test runs it."""
    folder = tmp_path_factory.mktemp("tensors") / "rings"
    with interactive_ranks(folder, 2, threads=2) as (first, second):
        yield first, second


def one(rank: InteractiveRank, sequence: int | None = None) -> Mapping[str, Any]:
    """Returns the only tensor of an op, by default of the newest op."""
    sequence = rank.newest() if sequence is None else sequence
    ((number, (summaries, remark)),) = rank.tensors(sequence).items()
    assert (number, remark) == (sequence, "")
    (summary,) = summaries
    return summary


def _threads(rank: InteractiveRank) -> int:
    return len(list(Path(f"/proc/{rank.pid}/task").iterdir()))


def both(pair: Pair, program: str) -> None:
    for rank in pair:
        rank.start(program)
    for rank in pair:
        rank.expect("done")


@pytest.mark.parametrize(
    ("dtype", "values", "statistics", "odd_and_first"),
    [
        ("float32", "[1.5, -2, inf, 4, nan, -inf]", (-2, 4, 3.5 / 3, 22.25**0.5), (1, 2, "1.5")),
        ("bfloat16", "[1, nan, 2, 3]", (1, 3, 2, 14**0.5), (1, 0, "1")),
        ("float64", "[0.1, 0.2]", (0.1, 0.2, (0.1 + 0.2) / 2, 0.05**0.5), (0, 0, "0.1")),
        ("int64", "[-3, 4]", (-3, 4, 0.5, 5), (0, 0, "-3")),
        ("uint8", "[255, 0]", (0, 255, 127.5, 255), (0, 0, "255")),
        ("float32", "[nan, nan]", (None,) * 4, (2, 0, "nan")),
        ("float32", "[]", (None,) * 4, (0, 0, "")),
    ],
)
def test_statistics_are_correct_for_each_dtype(
    pair: Pair, dtype: str, values: str, statistics: Any, odd_and_first: Any
) -> None:
    rank = pair[0]
    rank.run(
        "from math import inf, nan\n"
        f"saved['values'] = torch.tensor({values}, dtype=torch.{dtype})\n"
        "saved['handle'] = dist.irecv(saved['values'], 1, tag=11)"
    )
    seen = one(rank)
    assert seen["error"] == ""
    assert (seen["role"], seen["dtype"], seen["device"]) == ("output", dtype, "cpu")
    assert seen["seen"] == seen["elements"] == seen["shape"][0]
    measured = (seen["minimum"], seen["maximum"], seen["mean"], seen["norm"])
    assert measured == pytest.approx(statistics)
    assert (seen["nans"], seen["infinities"], (*seen["first"], "")[0]) == odd_and_first


def test_ranks_with_the_same_data_have_the_same_checksum(pair: Pair) -> None:
    both(
        pair,
        "torch.manual_seed(7)\n"
        "saved['same'] = torch.randn(70_001)\n"
        "saved['handle'] = dist.irecv(saved['same'], 1 - rank, tag=12)",
    )
    same = [one(rank) for rank in pair]
    assert same[0] == same[1]
    assert same[0]["seen"] == 70_001
    pair[1].run("saved['same'][70_000] += 1e-3")
    assert one(pair[1])["checksum"] != same[0]["checksum"]
    # Equal statistics do not mean equal data.
    pair[1].run("saved['same'].copy_(saved['same'].flip(0))")
    assert one(pair[1])["checksum"] != same[0]["checksum"]


def test_a_ddp_bucket_is_readable(pair: Pair) -> None:
    """C++ issues the op, and only the recorder has a Python object of its tensor."""
    both(
        pair,
        "saved['ddp'] = dist.new_group()\n"
        "saved['model'] = torch.nn.parallel.DistributedDataParallel(\n"
        "    torch.nn.Linear(3, 2, bias=False), process_group=saved['ddp'])\n"
        "saved['loss'] = saved['model'](torch.tensor([[1., 2., 3.]])).sum()",
    )
    rank = pair[0]
    before = rank.newest()
    rank.run(
        "saved['thread'] = threading.Thread(target=saved['loss'].backward, daemon=True)\n"
        "saved['thread'].start()"
    )
    wait_for(lambda: rank.newest() > before, "the bucket", DEADLINE_S)
    seen = one(rank)
    assert seen["elements"] == 6
    assert seen["mean"] == pytest.approx(1.0)  # half of each gradient: the mean of two ranks
    # The other rank arrives, and training goes on as without the request.
    pair[1].run("saved['loss'].backward()")
    rank.run("saved['thread'].join(30); assert not saved['thread'].is_alive()")
    rank.run("assert saved['model'].module.weight.grad.tolist() == [[1, 2, 3], [1, 2, 3]]")
    wait_for(lambda: rank.tensors(before + 1)[before + 1][1] != "", "completion", DEADLINE_S)
    assert rank.tensors(before + 1)[before + 1] == ([], "it is no longer pending")


def test_a_tensor_on_a_device_names_the_setting_that_lets_it_be_read(pair: Pair) -> None:
    rank = pair[0]
    rank.run(
        ON_DEVICE + "saved['far'] = on_device(torch.ones(3))\n"
        "saved['handle'] = dist.irecv(saved['far'], 1, tag=14)"
    )
    ((summaries, _),) = rank.tensors(rank.newest()).values()
    (seen,) = summaries
    assert (seen["device"], seen["shape"], seen["error"]) == ("cuda:0", [3], NOT_WANTED)
    header, data = rank.request(
        ask="ReadTensor", sequence=rank.newest(), index=0, offset=0, size=12
    )
    assert (header, data) == ({"error": "failed", "help": NOT_WANTED}, b"")
    rank.run("assert 'frtop device' not in [one.name for one in threading.enumerate()]")


def test_a_large_tensor_stays_within_the_budget_and_the_heartbeat_goes_on(pair: Pair) -> None:
    rank = pair[0]
    rank.run(
        "saved['large'] = torch.ones(25_000_000)\n"
        "saved['handle'] = dist.irecv(saved['large'], 1, tag=13)\n"
        "import frtop_probe.recorder.tensors.tensor_stats as tensor_stats\n"
        "saved['add'] = add = tensor_stats.TensorStats.add\n"
        "def slow(self, *args, **more):\n"
        "    time.sleep(0.002)\n"
        "    add(self, *args, **more)\n"
        "tensor_stats.TensorStats.add = slow"
    )
    threads = _threads(rank)
    beats, begin = rank.ring.cell(StatusCell.HEARTBEATS), time.monotonic()
    seen = one(rank)
    took = time.monotonic() - begin
    assert 1.0 < took < DEADLINE_S / 2
    assert rank.ring.cell(StatusCell.HEARTBEATS) >= beats + 2
    assert MAX_VALUES < seen["seen"] < seen["elements"]
    assert seen["seen"] & (seen["seen"] - 1) == 0  # usually the same for other ranks
    assert (seen["mean"], seen["norm"]) == pytest.approx((1.0, seen["seen"] ** 0.5))
    rank.run("tensor_stats.TensorStats.add = saved['add']")
    # On a busy machine, a read may take longer than the budget.
    wait_for(lambda: one(rank)["seen"] == 25_000_000, "all values are read", DEADLINE_S)
    assert _threads(rank) == threads  # torch started no thread pool
    # The work stops when the client leaves.
    with rank.connection() as client:
        client.sendall(b'{"ask": "SummarizeTensors"}\n')
    assert rank.wait_for_heartbeats(2) < 10


def test_tensors_freed_or_ops_completed_during_a_read_give_an_error(pair: Pair) -> None:
    both(pair, "saved['meanwhile'] = dist.new_group()")
    rank = pair[0]
    rank.run(
        "import frtop_probe.recorder.tensors.tensor_stats as tensor_stats\n"
        "saved['add'] = tensor_stats.TensorStats.add\n"
        "saved['one'] = torch.ones(200_000)\n"
        "saved['thread'] = threading.Thread(\n"
        "    target=dist.all_reduce, args=(saved['one'],), kwargs={'group': saved['meanwhile']})\n"
        "def slow(self, *args, **more):\n"
        "    saved['reading'].set()\n"
        "    saved['go'].wait(30)\n"
        "    saved['add'](self, *args, **more)\n"
        "saved['reading'], saved['go'] = threading.Event(), threading.Event()\n"
        "tensor_stats.TensorStats.add = slow\n"
    )
    before = rank.newest()
    rank.run("saved['thread'].start()")
    wait_for(lambda: rank.newest() > before, "the op", DEADLINE_S)
    sequence = rank.newest()
    with rank.connection() as client:
        client.sendall(b'{"ask": "SummarizeTensors", "sequence": %d}\n' % sequence)
        rank.run("saved['reading'].wait(30)")
        pair[1].start("dist.all_reduce(torch.ones(200_000), group=saved['meanwhile'])")
        rank.run("saved['thread'].join()")
        pair[1].expect("done")
        rank.run("saved['go'].set(); tensor_stats.TensorStats.add = saved['add']")
        assert b"during the read" in client.recv(65536)
    assert rank.request(ask="ReadTensor", sequence=sequence, size=4)[0]["error"] == "gone"

    rank.run(
        "saved['two'] = torch.ones(1000)\n"
        "saved['handle'] = dist.irecv(saved['two'], 1, tag=14)\n"
        "saved['two'].untyped_storage().resize_(0)"
    )
    assert one(rank)["error"].startswith("the program has freed its memory for now")
    header, data = rank.request(ask="ReadTensor", sequence=rank.newest(), size=4)
    assert (header["error"], data) == ("failed", b"")


def test_torch_modes_of_the_program_neither_matter_nor_change(pair: Pair) -> None:
    rank = pair[0]
    rank.run(
        "saved['plain'] = torch.nn.Parameter(torch.tensor([1., 2., 3.]))\n"
        "saved['handle'] = dist.irecv(saved['plain'].detach(), 1, tag=17)"
    )
    plain = one(rank)
    rank.run(
        "from torch._subclasses import FakeTensorMode\n"
        "saved['modes'] = [FakeTensorMode(), torch.autocast('cpu'), torch.inference_mode()]\n"
        "[mode.__enter__() for mode in saved['modes']]\n"
        "torch.set_default_dtype(torch.float64); torch.set_default_device('meta')\n"
        "import warnings; warnings.simplefilter('error')"
    )
    assert one(rank) == plain
    rank.run(
        "torch.set_default_dtype(torch.float32); torch.set_default_device(None)\n"
        "[mode.__exit__(None, None, None) for mode in reversed(saved['modes'])]\n"
        "assert torch.is_grad_enabled() and type(torch.ones(1)) is torch.Tensor"
    )


def test_raw_bytes_are_those_of_the_tensor(pair: Pair) -> None:
    rank = pair[0]
    rank.run(
        "saved['raw'] = torch.arange(300_000, dtype=torch.int64)\n"
        "saved['handle'] = dist.irecv(saved['raw'], 1, tag=15)"
    )
    raw = torch.arange(300_000, dtype=torch.int64).numpy().tobytes()
    ask = {"ask": "ReadTensor", "sequence": rank.newest()}
    header, data = rank.request(**ask, size=4 << 20)
    assert (header, data) == ({"total": len(raw)}, raw)
    assert rank.request(**ask, offset=2_399_995, size=100)[1] == raw[-5:]
    assert rank.request(**ask, offset=1 << 62, size=100) == ({"total": len(raw)}, b"")
    for wrong in ({"size": 1 << 40}, {"index": 3, "size": 1}, {"size": -1}, {"offset": "x"}):
        assert rank.request(**ask, **wrong)[0]["error"] == "failed"
    assert rank.request(ask="ReadTensor", sequence=0, size=4)[0]["error"] == "gone"


def test_invalid_requests_and_slow_clients_do_not_stop_the_heartbeat(pair: Pair) -> None:
    rank = pair[0]
    rank.run("saved['raw'] = torch.ones(1_000_000); dist.irecv(saved['raw'], 1, tag=16)")
    for garbage in (b"\n", b"[" * 4000 + b"\n", b"x" * 10_000, b'{"ask": "other"}\n', b"\xff\n"):
        with rank.connection() as client:
            client.sendall(garbage)
            try:
                assert b'"error":' in client.recv(1000) or len(garbage) > 4096
            except ConnectionResetError:
                assert len(garbage) > 4096
    slow = [socket.socket(socket.AF_UNIX) for _ in range(4)]
    try:
        slow[0].connect(str(rank.socket_path))  # sends nothing
        slow[1].connect(str(rank.socket_path))
        slow[1].sendall(b'{"ask":')  # never ends
        slow[2].connect(str(rank.socket_path))  # does not receive its response
        slow[2].sendall(b'{"ask": "ReadTensor", "sequence": %d, "size": 4000000}\n' % rank.newest())
        slow[3].connect(str(rank.socket_path))
        slow[3].close()
        assert rank.wait_for_heartbeats(4) < 10
        assert rank.request(ask="SummarizeTensors", sequence=rank.newest())[0]["ops"]
    finally:
        for client in slow:
            client.close()


def test_a_forked_child_closes_the_socket_and_an_exit_removes_it(tmp_path: Path) -> None:
    """The path is too long for a socket's address."""
    folder = tmp_path / ("long" * 20) / ("name" * 10)
    folder.parent.mkdir()
    with interactive_ranks(folder, 1, "fake") as (rank,):
        assert len(os.fsencode(rank.socket_path)) > beside.MAX_ADDRESS
        assert rank.socket_path.stat().st_mode & 0o777 == 0o600
        assert rank.request(ask="SummarizeTensors")[0]["error"] == "none"
        rank.run(
            "saved['child'] = os.fork()\n"
            "if not saved['child']:\n"
            "    time.sleep(60)\n"
            "    os._exit(0)\n"
            "open(os.environ['FRTOP_DIR'] + '/child', 'w').write(str(saved['child']))"
        )
        child = int((folder / "child").read_text())
        try:
            what = "the child closes its parent's sockets"
            wait_for(lambda: not open_sockets(child), what, DEADLINE_S)
            rank.run("lifecycle.stop()")
            assert not rank.socket_path.exists()
            rank.run("lifecycle.start()")
            assert rank.request(ask="SummarizeTensors")[0]["error"] == "none"
            rank.start("sys.exit()")
            assert rank.process.wait(30) == 0
            assert not rank.socket_path.exists()
            assert rank.ring.path.exists()
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_killed_rank_leaves_ring_and_socket_to_the_agent(pair: Pair) -> None:
    for rank, end in zip(pair, ("os._exit(3)", "os.kill(os.getpid(), 9)"), strict=True):
        rank.start(end)
        rank.process.wait(30)
        assert rank.socket_path.exists()
        with pytest.raises(ConnectionRefusedError), rank.connection():
            pass
        beside.remove_ring(rank.ring.path)
        beside.remove_ring(rank.ring.path)
        assert not rank.socket_path.exists()
        assert not rank.ring.path.exists()
