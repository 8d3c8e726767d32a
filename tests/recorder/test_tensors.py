"""Looking into the tensors of ops that hang: exact, bounded, and never to anybody's harm."""

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

from frtop_probe.recorder.carried import carrier, unpack, weakly
from frtop_probe.recorder.operations import Operation, Tensors
from frtop_probe.recorder.placement import Unread, own, place
from frtop_probe.recorder.tally import MAX_VALUES, Tally
from frtop_probe.ring import contact
from frtop_probe.ring.layout import Cell
from recorder.told import Told, sockets, told, until

pytestmark = pytest.mark.torch

Pair = tuple[Told, Told]
NAN, INF = float("nan"), float("inf")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two ranks. What the first waits for, the second never does, unless it is told to."""
    folder = tmp_path_factory.mktemp("tensors") / "rings"
    with told(folder, 2, threads=2) as (first, second):
        yield first, second


def one(rank: Told, sequence: int | None = None) -> Mapping[str, Any]:
    """The only tensor of an op, of the newest one if none is named."""
    sequence = rank.newest() if sequence is None else sequence
    ((number, (summaries, remark)),) = rank.tensors(sequence).items()
    assert (number, remark) == (sequence, "")
    (summary,) = summaries
    return summary


def _threads(rank: Told) -> int:
    return len(list(Path(f"/proc/{rank.pid}/task").iterdir()))


def both(pair: Pair, program: str) -> None:
    for rank in pair:
        rank.begin(program)
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
def test_statistics_are_those_of_the_values(
    pair: Pair, dtype: str, values: str, statistics: Any, odd_and_first: Any
) -> None:
    rank = pair[0]
    rank.do(
        "from math import inf, nan\n"
        f"kept['values'] = torch.tensor({values}, dtype=torch.{dtype})\n"
        "kept['handle'] = dist.irecv(kept['values'], 1, tag=11)"
    )
    seen = one(rank)
    assert seen["error"] == ""
    assert (seen["role"], seen["dtype"], seen["device"]) == ("output", dtype, "cpu")
    assert seen["seen"] == seen["elements"] == seen["shape"][0]
    told_of = (seen["minimum"], seen["maximum"], seen["mean"], seen["norm"])
    assert told_of == pytest.approx(statistics)
    assert (seen["nans"], seen["infinities"], (*seen["first"], "")[0]) == odd_and_first


def test_ranks_with_the_same_data_have_the_same_checksum(pair: Pair) -> None:
    both(
        pair,
        "torch.manual_seed(7)\n"
        "kept['same'] = torch.randn(70_001)\n"
        "kept['handle'] = dist.irecv(kept['same'], 1 - rank, tag=12)",
    )
    same = [one(rank) for rank in pair]
    assert same[0] == same[1]
    assert same[0]["seen"] == 70_001
    pair[1].do("kept['same'][70_000] += 1e-3")
    assert one(pair[1])["checksum"] != same[0]["checksum"]
    # Equal statistics are no equal data.
    pair[1].do("kept['same'].copy_(kept['same'].flip(0))")
    assert one(pair[1])["checksum"] != same[0]["checksum"]


def test_a_bucket_that_ddp_reduces_is_read(pair: Pair) -> None:
    """Issued from C++, with a Python object that nobody but the recorder has."""
    both(
        pair,
        "kept['ddp'] = dist.new_group()\n"
        "kept['model'] = torch.nn.parallel.DistributedDataParallel(\n"
        "    torch.nn.Linear(3, 2, bias=False), process_group=kept['ddp'])\n"
        "kept['loss'] = kept['model'](torch.tensor([[1., 2., 3.]])).sum()",
    )
    rank = pair[0]
    before = rank.newest()
    rank.do(
        "kept['thread'] = threading.Thread(target=kept['loss'].backward, daemon=True)\n"
        "kept['thread'].start()"
    )
    until(lambda: rank.newest() > before, "the bucket")
    seen = one(rank)
    assert seen["elements"] == 6
    assert seen["mean"] == pytest.approx(1.0)  # half of each gradient: the mean of two ranks
    # Now the other rank comes, and everything goes on as if nobody had looked.
    pair[1].do("kept['loss'].backward()")
    rank.do("kept['thread'].join(30); assert not kept['thread'].is_alive()")
    rank.do("assert kept['model'].module.weight.grad.tolist() == [[1, 2, 3], [1, 2, 3]]")
    until(lambda: rank.tensors(before + 1)[before + 1][1] != "", "completion")
    assert rank.tensors(before + 1)[before + 1] == ([], "it is not pending any more")


def test_a_large_tensor_stays_within_the_budget_and_the_beat_goes_on(pair: Pair) -> None:
    rank = pair[0]
    rank.do(
        "kept['large'] = torch.ones(25_000_000)\n"
        "kept['handle'] = dist.irecv(kept['large'], 1, tag=13)\n"
        "import frtop_probe.recorder.tally as tally\n"
        "kept['add'] = add = tally.Tally.add\n"
        "def slow(self, *args, **more):\n"
        "    time.sleep(0.002)\n"
        "    add(self, *args, **more)\n"
        "tally.Tally.add = slow"
    )
    threads = _threads(rank)
    beats, begin = rank.ring.cell(Cell.BEATS), time.monotonic()
    seen = one(rank)
    took = time.monotonic() - begin
    assert 1.0 < took < 5
    assert rank.ring.cell(Cell.BEATS) >= beats + 2
    assert MAX_VALUES < seen["seen"] < seen["elements"]
    assert seen["seen"] & (seen["seen"] - 1) == 0  # other ranks end there, too, mostly
    assert (seen["mean"], seen["norm"]) == pytest.approx((1.0, seen["seen"] ** 0.5))
    rank.do("tally.Tally.add = kept['add']")
    assert one(rank)["seen"] == 25_000_000
    assert _threads(rank) == threads  # torch made no pool for us
    # Whoever stops waiting stops the work.
    with rank.connection() as asker:
        asker.sendall(b'{"ask": "tensors"}\n')
    assert rank.beats(2) < 10


def test_what_is_freed_or_completes_meanwhile_is_not_told(pair: Pair) -> None:
    both(pair, "kept['meanwhile'] = dist.new_group()")
    rank = pair[0]
    rank.do(
        "kept['one'] = torch.ones(200_000)\n"
        "kept['thread'] = threading.Thread(\n"
        "    target=dist.all_reduce, args=(kept['one'],), kwargs={'group': kept['meanwhile']})\n"
        "def slow(self, *args, **more):\n"
        "    kept['reading'].set()\n"
        "    kept['go'].wait(30)\n"
        "    kept['add'](self, *args, **more)\n"
        "kept['reading'], kept['go'] = threading.Event(), threading.Event()\n"
        "tally.Tally.add = slow\n"
    )
    before = rank.newest()
    rank.do("kept['thread'].start()")
    until(lambda: rank.newest() > before, "the op")
    sequence = rank.newest()
    with rank.connection() as asker:
        asker.sendall(b'{"ask": "tensors", "sequence": %d}\n' % sequence)
        rank.do("kept['reading'].wait(30)")
        pair[1].begin("dist.all_reduce(torch.ones(200_000), group=kept['meanwhile'])")
        rank.do("kept['thread'].join()")
        pair[1].expect("done")
        rank.do("kept['go'].set(); tally.Tally.add = kept['add']")
        assert b"while it was read" in asker.recv(65536)
    assert rank.ask(ask="data", sequence=sequence, size=4)[0]["error"] == "gone"

    rank.do(
        "kept['two'] = torch.ones(1000)\n"
        "kept['handle'] = dist.irecv(kept['two'], 1, tag=14)\n"
        "kept['two'].untyped_storage().resize_(0)"
    )
    assert one(rank)["error"].startswith("the program has freed its memory for now")
    header, data = rank.ask(ask="data", sequence=rank.newest(), size=4)
    assert (header["error"], data) == ("failed", b"")


def test_what_the_program_set_for_itself_is_neither_seen_nor_changed(pair: Pair) -> None:
    rank = pair[0]
    rank.do(
        "kept['plain'] = torch.nn.Parameter(torch.tensor([1., 2., 3.]))\n"
        "kept['handle'] = dist.irecv(kept['plain'].detach(), 1, tag=17)"
    )
    plain = one(rank)
    rank.do(
        "from torch._subclasses import FakeTensorMode\n"
        "kept['modes'] = [FakeTensorMode(), torch.autocast('cpu'), torch.inference_mode()]\n"
        "[mode.__enter__() for mode in kept['modes']]\n"
        "torch.set_default_dtype(torch.float64); torch.set_default_device('meta')\n"
        "import warnings; warnings.simplefilter('error')"
    )
    assert one(rank) == plain
    rank.do(
        "torch.set_default_dtype(torch.float32); torch.set_default_device(None)\n"
        "[mode.__exit__(None, None, None) for mode in reversed(kept['modes'])]\n"
        "assert torch.is_grad_enabled() and type(torch.ones(1)) is torch.Tensor"
    )


def test_raw_bytes_are_those_of_the_tensor(pair: Pair) -> None:
    rank = pair[0]
    rank.do(
        "kept['raw'] = torch.arange(300_000, dtype=torch.int64)\n"
        "kept['handle'] = dist.irecv(kept['raw'], 1, tag=15)"
    )
    raw = torch.arange(300_000, dtype=torch.int64).numpy().tobytes()
    ask = {"ask": "data", "sequence": rank.newest()}
    header, data = rank.ask(**ask, size=4 << 20)
    assert (header, data) == ({"total": len(raw)}, raw)
    assert rank.ask(**ask, offset=2_399_995, size=100)[1] == raw[-5:]
    assert rank.ask(**ask, offset=1 << 62, size=100) == ({"total": len(raw)}, b"")
    for wrong in ({"size": 1 << 40}, {"index": 3, "size": 1}, {"size": -1}, {"offset": "x"}):
        assert rank.ask(**ask, **wrong)[0]["error"] == "failed"
    assert rank.ask(ask="data", sequence=0, size=4)[0]["error"] == "gone"


def test_an_op_on_a_device_has_a_shape_and_the_reason_why_no_more(pair: Pair) -> None:
    """Remembered as the hook does it, since there is no device here."""
    rank = pair[0]
    rank.do(
        "from frtop_probe.recorder.carried import carrier, weakly\n"
        "from frtop_probe.recorder.operations import operations\n"
        "found = operations(torch._C._jit_get_all_schemas())\n"
        "gather = next(one for one in found if one.name == '_allgather_base_')\n"
        "kept['far'] = torch.ones(6, device='meta'), torch.ones(3, device='meta')\n"
        "life.recorder.pending.far.append((10**9, gather, weakly(carrier(gather)(kept['far']))))"
    )
    told_of, remark = rank.tensors(10**9)[10**9]
    assert remark == "whether it is still pending is not known here"
    assert [(one["role"], one["shape"], one["device"]) for one in told_of] == [
        ("input", [3], "meta"),
        ("output", [6], "meta"),
    ]
    assert all(one["error"].startswith("in the memory of a device") for one in told_of)
    rank.do("del kept['far']")
    assert "dropped" in rank.tensors(10**9)[10**9][0][0]["error"]


def test_garbage_and_dawdlers_do_not_stop_the_beat(pair: Pair) -> None:
    rank = pair[0]
    rank.do("kept['raw'] = torch.ones(1_000_000); dist.irecv(kept['raw'], 1, tag=16)")
    for garbage in (b"\n", b"[" * 4000 + b"\n", b"x" * 10_000, b'{"ask": "other"}\n', b"\xff\n"):
        with rank.connection() as asker:
            asker.sendall(garbage)
            try:
                assert b"failed" in asker.recv(1000) or len(garbage) > 4096
            except ConnectionResetError:
                assert len(garbage) > 4096
    dawdlers = [socket.socket(socket.AF_UNIX) for _ in range(4)]
    try:
        dawdlers[0].connect(str(rank.door))  # says nothing
        dawdlers[1].connect(str(rank.door))
        dawdlers[1].sendall(b'{"ask":')  # never ends
        dawdlers[2].connect(str(rank.door))  # does not take its answer
        dawdlers[2].sendall(b'{"ask": "data", "sequence": %d, "size": 4000000}\n' % rank.newest())
        dawdlers[3].connect(str(rank.door))
        dawdlers[3].close()
        assert rank.beats(4) < 10
        assert rank.ask(ask="tensors", sequence=rank.newest())[0]["ops"]
    finally:
        for dawdler in dawdlers:
            dawdler.close()


def test_a_forked_child_keeps_nothing_and_an_ending_leaves_nothing(tmp_path: Path) -> None:
    """With a path too long for a socket's address."""
    folder = tmp_path / ("long" * 20) / ("name" * 10)
    folder.parent.mkdir()
    with told(folder, 1, "fake") as (rank,):
        assert len(os.fsencode(rank.door)) > contact.MAX_ADDRESS
        assert rank.door.stat().st_mode & 0o777 == 0o600
        assert rank.ask(ask="tensors")[0]["error"] == "none"
        rank.do(
            "kept['child'] = os.fork()\n"
            "if not kept['child']:\n"
            "    time.sleep(60)\n"
            "    os._exit(0)\n"
            "open(os.environ['FRTOP_DIR'] + '/child', 'w').write(str(kept['child']))"
        )
        child = int((folder / "child").read_text())
        try:
            until(lambda: not sockets(child), "the child closes what is its parent's")
            rank.do("life.stop()")
            assert not rank.door.exists()
            rank.do("life.start()")
            assert rank.ask(ask="tensors")[0]["error"] == "none"
            rank.begin("sys.exit()")
            assert rank.process.wait(30) == 0
            assert not rank.door.exists()
            assert rank.ring.path.exists()
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_killed_rank_leaves_what_its_agent_then_removes(pair: Pair) -> None:
    for rank, end in zip(pair, ("os._exit(3)", "os.kill(os.getpid(), 9)"), strict=True):
        rank.begin(end)
        rank.process.wait(30)
        assert rank.door.exists()
        with pytest.raises(ConnectionRefusedError), rank.connection():
            pass
        contact.remove(rank.ring.path)
        contact.remove(rank.ring.path)
        assert not rank.door.exists()
        assert not rank.ring.path.exists()


# -- what no job here can show


@pytest.mark.parametrize(
    ("dtype", "parts", "statistics", "first"),
    [
        ("complex64", [3.0, 4, NAN, 0, INF, 1, 0, 0], (0, 5, 2.5, 5), "3+4j"),
        ("complex32", torch.tensor([3, -4]).half(), (5, 5, 5, 5), "3-4j"),
        ("bool", [True, False], (0, 1, 0.5, 1), "True"),
        ("bool", torch.tensor([2, 0], dtype=torch.uint8), (0, 1, 0.5, 1), "True"),
        (
            "float8_e4m3fn",
            torch.tensor([1.5, -2.0]).to(torch.float8_e4m3fn),
            (-2, 1.5, -0.25, 2.5),
            "1.5",
        ),
        (
            "uint64",
            torch.tensor([2**63, 0], dtype=torch.uint64),
            (0, 2.0**63, 2.0**62, 2.0**63),
            str(2**63),
        ),
        (
            "float64",
            torch.tensor([1e300, 1e300], dtype=torch.float64),
            (1e300, 1e300, 1e300, None),
            "1e+300",
        ),
    ],
)
def test_every_dtype_has_its_statistics(
    dtype: str, parts: Any, statistics: Any, first: str
) -> None:
    tally = Tally(torch, getattr(torch, dtype))
    tally.add(bytearray(_bytes(torch.as_tensor(parts))), begins=True)
    assert tally.error == ""
    assert tally.statistics == pytest.approx(statistics)
    assert tally.first[0] == first


def test_pieces_add_up_to_the_whole() -> None:
    values = torch.randn(3 * MAX_VALUES + 5)
    values[MAX_VALUES + 3] = float("nan")
    whole, tally = values[~values.isnan()].double(), Tally(torch, values.dtype)
    raw = bytearray(_bytes(values))
    for start in range(0, len(raw), tally.piece):
        tally.add(raw[start : start + tally.piece], begins=start == 0)
    expected = (whole.min(), whole.max(), whole.mean(), whole.norm())
    assert tally.statistics == pytest.approx([float(value) for value in expected])
    assert (tally.nans, tally.infinities) == (1, 0)


def test_a_dtype_that_torch_cannot_calculate_with_has_a_checksum() -> None:
    tally = Tally(torch, torch.float4_e2m1fn_x2)
    tally.add(bytearray(8), begins=True)
    assert tally.checksum
    assert "does not calculate" in tally.error


@pytest.mark.parametrize(
    ("tensor", "why"),
    [
        (torch.ones(4, 4)[:, 1], "one after the other"),
        (torch.ones(1).expand(5), "one after the other"),
        (torch.ones(3).to_sparse(), "sparse_coo"),
        (torch.ones(3, device="meta"), "in the memory of a device"),
        (torch.ones(3, dtype=torch.complex64).conj(), "calculated on reading"),
    ],
)
def test_a_tensor_that_cannot_be_read_says_why(tensor: torch.Tensor, why: str) -> None:
    (held,) = _unpacked(tensor).tensors
    with pytest.raises(Unread, match=why):
        place(torch, own(torch, held))


def test_a_dense_tensor_is_read_as_it_lies_but_not_saved_so() -> None:
    tensor = torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert place(torch, tensor).size == 480
    with pytest.raises(Unread):
        place(torch, tensor, in_order=True)


def test_nothing_carried_weakly_keeps_a_tensor() -> None:
    tensor = torch.ones(3)
    carried = weakly(carrier(_OPERATION)([[tensor]]))
    (held,) = unpack(1, _OPERATION, carried).tensors
    assert held.tensor() is tensor
    del tensor
    assert held.tensor() is None


_OPERATION = Operation(
    "send", "send", -1, (Tensors(0, 1, output=False),), *[-1] * 8
)  # fmt: skip


def _unpacked(tensor: torch.Tensor) -> Any:
    return unpack(1, _OPERATION, carrier(_OPERATION)([[tensor]]))


def _bytes(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.view(torch.uint8).tolist())
