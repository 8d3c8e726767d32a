"""The native kernels write what the Python kernels write, whatever the program does."""

from __future__ import annotations

import ctypes
import os
import shutil
import struct
import subprocess
import time
import zlib
from pathlib import Path
from textwrap import dedent
from typing import Any, Final

import pytest

from frtop_probe.recorder.native import build, check, library
from frtop_probe.recorder.native.build import BuildError
from frtop_probe.ring.layout import Flag, StatusCell
from frtop_probe.ring.reader import EventRow, Ring
from recorder import rank_runner
from recorder.rank_runner import FinishedRank, kind, kinds, ops, run, signature

torch: Any = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.timeout(600)]

FILE: Final = library.name(library.built_for(torch))
PRELUDE: Final = """
    import os, sys, threading, time
    import torch, torch.distributed as dist
    from frtop_probe.recorder.process.lifecycle import lifecycle
    from frtop_probe.ring import layout
    from frtop_probe.ring.layout import StatusCell
    rank, peer = int(os.environ["RANK"]), 1 - int(os.environ["RANK"])
    t = torch.ones
    def recorder():
        return lifecycle.recorder
    def wait_for(condition):
        deadline = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.01)
"""

LAST: Final = """
    dist.barrier()
    recorder().reduce_ops.decode()
    store = dist.distributed_c10d._get_default_store()
    sys.stdout.flush()
    store.set(f"done {rank}", "")
    if rank == 0:
        store.wait(["done 1"])  # it has the store, and ends last
    os._exit(0)
"""
CASES: Final = {
    "all_reduce": "dist.all_reduce(t(4)); dist.all_reduce(t(4, 2, dtype=torch.int64))",
    "kinds": """
        for dtype in (torch.bool, torch.uint8, torch.int8, torch.float16, torch.bfloat16,
                      torch.float64, torch.complex64):
            dist.broadcast(t(3).to(dtype), 0)""",
    "shapes": """
        for shape in ((), (0,), (1,), (2, 0, 3), (1, 1, 1, 1, 1, 1, 1, 1, 1, 1)):
            dist.broadcast(torch.ones(shape), 1)""",
    "reduce_ops": """
        for name in ("SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"):
            dist.all_reduce(t(4, dtype=torch.int32), op=getattr(dist.ReduceOp, name))""",
    "coalesced": "dist.all_reduce_coalesced([t(2), t(3), t(3), t(2)])",
    "rooted": """
        dist.reduce(t(4), 1, op=dist.ReduceOp.PRODUCT)
        dist.gather(t(4), [t(4), t(4)] if rank == 0 else None, dst=0)
        dist.scatter(t(4), [t(4), t(4)] if rank == 1 else None, src=1)""",
    "gathered": """
        dist.all_gather([t(4), t(4)], t(4))
        dist.all_gather_into_tensor(t(8), t(4))
        dist.all_gather_coalesced([[t(2), t(3)], [t(2), t(3)]], [t(2), t(3)])""",
    "scattered": """
        dist.reduce_scatter_tensor(t(4), t(8))
        dist.reduce_scatter(t(4), [t(4), t(4)])
        for _ in range(3):
            dist.reduce_scatter_tensor(t(4), t(8), async_op=True).wait()""",
    "all_to_all": """
        dist.all_to_all_single(t(4), t(4))
        splits = [1, 3] if rank else [3, 1]
        dist.all_to_all_single(t(4), t(4), splits, splits)
        for n in range(20):
            dist.all_to_all_single(t(2 * n), t(2 * n), [n, n], [n, n])""",
    "barriers": "dist.barrier(); dist.monitored_barrier(); dist.barrier(async_op=True).wait()",
    "messages": """
        if rank == 0:
            dist.send(t(4), 1, tag=3); dist.recv(t(4), None); dist.isend(t(4), 1).wait()
        else:
            dist.recv(t(4), 0, tag=3); dist.send(t(4), 0); dist.irecv(t(4), 0).wait()
        for _ in range(3):
            dist.send(t(2), 1, tag=3) if rank == 0 else dist.recv(t(2), 0, tag=3)
        for request in dist.batch_isend_irecv([
            dist.P2POp(dist.isend, t(5), peer), dist.P2POp(dist.irecv, t(5), peer)]):
            request.wait()""",
    "objects": """
        dist.all_gather_object([None, None], {"a": rank})
        box = [rank]
        dist.broadcast_object_list(box, 0)""",
    "groups": """
        small = dist.new_group([1])
        if rank == 1:
            dist.all_reduce(t(4), group=small); dist.broadcast(t(4), 1, group=small)
        both = dist.new_group([0, 1])
        dist.all_reduce(t(4), group=both)
        dist.destroy_process_group(both)
        again = dist.new_group([0, 1])
        dist.broadcast(t(4), 0, group=again)""",
    "undescribed": """
        group = dist.new_group([0, 1])
        ranks = dist.distributed_c10d._world.pg_group_ranks
        members, known = ranks.pop(group), recorder().groups.known[id(group)]
        known.described = False
        dist.all_reduce(t(4), group=group)
        ranks[group] = members
        dist.all_reduce(t(4), group=group); dist.broadcast(t(4), 0, group=group)""",
    "asynchronous": """
        works = [dist.all_reduce(t(4), async_op=True) for _ in range(5)]
        for work in works: work.wait()""",
    "modes": """
        with torch.inference_mode():
            dist.all_reduce(t(6))
        with torch.no_grad():
            dist.all_reduce(t(6, requires_grad=True))
        with torch.profiler.profile():
            dist.all_reduce(t(7))""",
    "layouts": """
        dist.broadcast(t(4, 4).t(), 0)
        dist.all_reduce(t(4, 4)[1])
        sparse = torch.sparse_coo_tensor([[0, 1]], [1., 2.], (4,))
        dist.all_reduce(sparse)""",
    "odd_tensors": """
        for make in (lambda: t(4).to("meta"), lambda: t(4).to_mkldnn(),
                     lambda: torch.nn.Parameter(t(4)), lambda: torch.nn.Buffer(t(4))):
            try:
                dist.all_reduce(make(), async_op=True)
            except Exception as error:
                print(type(error).__name__)""",
    "fakes": """
        from torch._subclasses.fake_tensor import FakeTensorMode
        with FakeTensorMode():
            fake = torch.ones(4)
            try:
                dist.all_reduce(fake, async_op=True)
                dist.all_gather_into_tensor(torch.ones(8), fake)
            except Exception as error:
                print(type(error).__name__)""",
    "subclasses": """
        from torch.utils._pytree import tree_map
        class Plain(torch.Tensor):
            pass
        dist.all_reduce(t(4).as_subclass(Plain))
        class Own(torch.Tensor):
            @classmethod
            def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
                with torch._C._DisableTorchDispatch():
                    return function(*args, **(kwargs or {}))
        dist.all_reduce(t(4).as_subclass(Own))""",
    "dispatch_modes": """
        from torch.utils._python_dispatch import TorchDispatchMode
        class Passing(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                return function(*args, **(kwargs or {}))
        with Passing():
            dist.all_reduce(t(4)); dist.barrier()""",
    "functional": """
        import torch.distributed._functional_collectives as functional
        functional.all_reduce(t(4), "sum", dist.group.WORLD).sum()
        functional.all_gather_tensor(t(4), 0, dist.group.WORLD).sum()
        functional.reduce_scatter_tensor(t(4), "sum", 0, dist.group.WORLD).sum()""",
    "functionalized": """
        from torch.func import functionalize
        def body(x):
            dist.all_reduce(x)
            return x
        try:
            functionalize(body)(t(3))
        except Exception as error:
            print(type(error).__name__)""",
    "sharded": """
        from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
        mesh = dist.init_device_mesh("cpu", (2,))
        sharded = distribute_tensor(t(4, 4), mesh, [Shard(0)])
        (sharded @ sharded).full_tensor()""",
    "autograd": """
        from torch.distributed.nn.functional import all_reduce, all_gather
        x = t(4, requires_grad=True)
        (all_reduce(x * 2).sum() + sum(one.sum() for one in all_gather(x))).backward()""",
    "ddp": """
        from torch.nn.parallel import DistributedDataParallel
        model = DistributedDataParallel(torch.nn.Linear(4, 4))
        for _ in range(3):
            model(t(2, 4)).sum().backward()""",
    "compiled": """
        import torch.distributed._functional_collectives as functional
        @torch.compile(backend="eager")
        def body(x):
            return functional.all_reduce(x * 2, "sum", dist.group.WORLD) + 1
        for n in (3, 4, 5):
            body(t(n)).sum()""",
    "failing": """
        for call in (lambda: dist.all_gather([t(4), t(4)], t(5)),
                     lambda: dist.all_to_all_single(t(4), t(4), [1, 1], [1, 1]),
                     lambda: dist.broadcast(t(4), 7)):
            try:
                call()
            except Exception as error:
                print(type(error).__name__)
        dist.all_reduce(t(1))  # gloo's barrier raises again what it still has of a failed op""",
    "failing_later": """
        from datetime import timedelta
        group = dist.new_group([0, 1], timeout=timedelta(seconds=0.5))
        dist.barrier(group=group)
        try:
            if rank == 0:
                dist.all_reduce(t(4), group=group)
            else:
                dist.recv(t(4), 0, group=group)
        except RuntimeError as error:
            print(type(error).__name__)
        dist.barrier()""",
    "many_tensors": "dist.all_gather([torch.ones(2), torch.ones(2)], torch.ones(2)); "
    "dist.all_reduce_coalesced([torch.ones(n % 3 + 1) for n in range(1200)])",
    "issuers": """
        import frtop_probe.recorder.ops.kernel
        def find(thread, site, group, args):
            return 4096 + len(args[0])
        recorder().find_issuer.append(find)
        dist.all_reduce(t(4)); dist.barrier()""",
    "no_sites": """
        recorder().sites.switch(on=False)
        dist.all_reduce(t(4))
        recorder().sites.switch(on=True)""",
    "expected": """
        recorder().expect_ops(True)
        dist.all_reduce(t(4))
        recorder().expect_ops(False)""",
    "threads": """
        group = dist.new_group([0, 1])
        def body():
            for _ in range(10): dist.all_reduce(t(2), group=group)
        thread = threading.Thread(target=body); thread.start(); thread.join()
        store = dist.distributed_c10d._get_default_store()
        if rank == 0:
            work = dist.all_reduce(t(1), async_op=True)
            slot = recorder().ring.slot_at(recorder().ring.cells[StatusCell.HEAD])
            thread = threading.Thread(target=work.wait); thread.start()
            wait_for(lambda: recorder().ring.words[(slot + layout.SLOT_WAIT) // 8])
            store.set("waits", "")
            thread.join()
        else:
            store.wait(["waits"])
            dist.all_reduce(t(1))""",
    "off_and_on": """
        recorder().stop()
        dist.all_reduce(t(4))
        recorder().resume()
        dist.all_reduce(t(5))""",
    "left_pending": """
        global kept
        kept = dist.irecv(t(7), peer, tag=77)
        def drop():
            dist.irecv(t(9), peer, tag=78)
        drop()
        pending = recorder().pending
        head = recorder().ring.cells[StatusCell.HEAD]
        wait_for(lambda: not pending.is_open(head))""",
}  # fmt: skip
"""What a program may do, by the name of the function that does it."""


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> str:
    """A cache with the kernels. To compile them takes 45 s: they are kept for the next run."""
    if (library.cache() / FILE).exists():
        return str(library.cache().parents[1])
    assert pytestconfig.cache is not None
    recipe = zlib.crc32(Path(build.__file__).read_bytes())
    kept = pytestconfig.cache.mkdir("native-kernels") / f"{recipe:08x}-{FILE}"
    base = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(base))
        folder = library.cache()
        folder.mkdir(mode=0o700, parents=True)
        if not kept.exists():
            try:
                built = build.build(torch)
            except BuildError as error:
                if not any(map(shutil.which, (os.environ.get("CXX", "g++"), "g++", "c++"))):
                    pytest.skip(str(error))
                raise
            for old in kept.parent.iterdir():
                old.unlink()
            fresh = kept.with_suffix(".new")
            shutil.copy(built, fresh)
            fresh.replace(kept)
        shutil.copy(kept, folder / FILE)
    return str(base)


def kernels(ended: FinishedRank) -> str:
    """Which kernels recorded, as the rank says."""
    return str(dict(ended.ring.rank_identity["settings"])["frtop kernels"])


def run_native(program: str, folder: Path, cache: str, **options: Any) -> list[FinishedRank]:
    """Runs ranks on the native kernels, and checks that nothing of ours failed."""
    text = dedent(PRELUDE) + dedent(program)
    ranks = run(text, folder, FRTOP_NATIVE="1", XDG_CACHE_HOME=cache, **options)
    for one in ranks:
        assert one.code == 0, one.err
        assert kernels(one) == "native"
        assert one.ring.cell(StatusCell.HOOK_ERRORS) == 0, one.err
    return ranks


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory, cache: str) -> list[tuple[FinishedRank, ...]]:
    """Two ranks that do all `CASES`, on the Python kernels and on the native ones."""
    parts = [PRELUDE, "\n    dist.init_process_group('gloo')\n"]
    for name, body in CASES.items():
        text = body if body.startswith("\n") else f"\n        {body}"
        head = "recorder().ring.cells[StatusCell.HEAD]"
        parts.append(
            f"\n    def {name}():{text}\n    print('{name}', {head}, flush=True)\n    {name}()\n"
        )
    parts.append(LAST)
    folder = tmp_path_factory.mktemp("cases")
    found = []
    for native, said in (("0", "Python: FRTOP_NATIVE=0"), ("1", "native")):
        ranks = run("".join(parts), folder / native, ranks=2, FRTOP_NATIVE=native,
                    XDG_CACHE_HOME=cache)  # fmt: skip
        assert [one.code for one in ranks] == [0, 0], "".join(one.err for one in ranks)
        for one in ranks:
            assert kernels(one) == said
            assert one.ring.cell(StatusCell.HOOK_ERRORS) == 0, one.err
        found.append(ranks)
    return list(zip(*found, strict=True))


def outcome(row: EventRow) -> str:
    if row.pending:
        return "pending"
    if Flag.UNTRACKED in row.flags:
        return "untracked"
    return "failed" if row.done_ns < 0 else "ended"


def written(ring: Ring, row: EventRow) -> dict[str, Any]:
    """All of an op but its times."""
    return {
        "kind": kind(ring, row),
        "form": ring.forms[row.key.form],
        "group": {k: v for k, v in ring.groups[row.group].items() if k != "name"},
        "number": row.number,
        "flags": row.flags & ~Flag.LATE,
        "signature": signature(ring, row),
        "site": ring.sites.get(row.site),
        "issuer": row.issuer,
        "message": row.message,
        "timeout": row.timeout_ms,
        "reduce": row.reduce,
        "outcome": outcome(row),
    }


def of_case(ended: FinishedRank, name: str) -> list[dict[str, Any]]:
    """The ops of a case: the rank printed how many there were before."""
    lines = [line.split() for line in ended.out.splitlines()]
    heads = [(line[0], int(line[1])) for line in lines if line[0] in CASES]
    ends = [head for _, head in heads[1:]] + [2**62]
    (begin, end) = next(
        (head, end) for (one, head), end in zip(heads, ends, strict=True) if one == name
    )
    return [written(ended.ring, row) for row in ops(ended.ring) if begin < row.sequence <= end]


@pytest.mark.parametrize("name", CASES)
def test_both_kernels_write_the_same(pairs: list[tuple[FinishedRank, ...]], name: str) -> None:
    for one, native in pairs:
        expected = of_case(one, name)
        assert bool(expected) == (name != "fakes")
        for given, row in zip(of_case(native, name), expected, strict=True):
            if name == "functional" and row["outcome"] == "untracked":
                row |= {"outcome": "ended", "flags": row["flags"] & ~Flag.UNTRACKED}
            assert given == row


def test_the_program_sees_no_difference(pairs: list[tuple[FinishedRank, ...]]) -> None:
    for one, native in pairs:
        assert native.out == one.out
        rows = [(row.number, row.p2p, row.sequence) for row in one.ring.group_rows()]
        assert [(row.number, row.p2p, row.sequence) for row in native.ring.group_rows()] == rows
        for ring in (one.ring, native.ring):
            assert ring.cell(StatusCell.SIDE_LOST) == ring.cell(StatusCell.PENDING_LOST) == 0


@pytest.mark.parametrize("way", ["return", "sys.exit(0)"])
def test_an_exit_with_pending_ops(tmp_path: Path, cache: str, way: str) -> None:
    program = f"""
        from pathlib import Path
        from frtop_probe.ring.layout import State
        from frtop_probe.ring.reader import Ring
        dist.init_process_group("gloo")
        dist.barrier()
        store = dist.distributed_c10d._get_default_store()
        if rank == 0:
            store.set("pid", str(os.getpid()))
            kept = dist.all_reduce(t(4), async_op=True), dist.irecv(t(4), 1)
            store.wait(["seen"])
        else:  # its end fails the other's ops: not before the other records nothing any more
            pid = int(store.get("pid"))
            (path,) = Path(os.environ["FRTOP_DIR"]).glob(f"{{pid}}-*.ring")
            ring = Ring(path)
            store.set("seen", "")
            wait_for(lambda: ring.cell(StatusCell.STATE) == State.STOPPED
                     or not os.path.exists(f"/proc/{{pid}}/fd/0"))
        def leave():
            {way}
        leave()
    """
    first, _ = run_native(program, tmp_path / "rings", cache, ranks=2)
    pending = [row for row in ops(first.ring) if row.flags & Flag.UNTRACKED or not row.done_ns]
    assert {kind(first.ring, row) for row in pending} == {"all_reduce", "recv"}
    assert "frtop" not in first.err


def test_pending_ops_outlive_the_history(tmp_path: Path, cache: str) -> None:
    program = """
        dist.init_process_group("gloo")
        alone = [dist.new_group([one]) for one in range(2)][rank]
        kept = [dist.irecv(t(n + 1), peer, tag=n) for n in range(80)]
        for _ in range(recorder().ring.shape.slots + 100):
            dist.all_reduce(t(2), group=alone)
        recorder().pending.overflow.spill()
        cells = recorder().ring.cells
        print(cells[StatusCell.OLDEST] > cells[StatusCell.HEAD] - recorder().ring.shape.slots)
        store = dist.distributed_c10d._get_default_store()
        store.set("done", "") if rank else store.wait(["done"])  # rank 0 has the store
        os._exit(0)
    """
    for ended in run_native(program, tmp_path / "rings", cache, ranks=2):
        ring = ended.ring
        first = ring.cell(StatusCell.HEAD) - ring.shape.slots
        half = ring.shape.overflow // 2
        rows = ring.pending()
        assert len(rows) == half
        assert all(row.sequence < first for row in rows)
        tags = [signature(ring, row).tag for row in rows]
        assert tags == list(range(half))
        assert ring.cell(StatusCell.PENDING_LOST) == 80 - half
        assert ended.out.splitlines()[0] == "True"


def test_a_tensor_of_an_op_that_was_waited_for_is_freed_with_its_handle(
    tmp_path: Path, cache: str
) -> None:
    program = """
        import weakref
        dist.init_process_group("gloo")
        recorder().pending.reap = lambda: None  # so that no heartbeat helps
        time.sleep(0.6)
        def left(issue):
            tensor = t(4)
            reference, work = weakref.ref(tensor), issue(tensor)
            work.wait()
            del tensor, work
            return reference() is not None
        move = dist.isend if rank == 0 else dist.irecv
        print(*[left(lambda one: move(one, peer)) for _ in range(5)])
        print(*[left(lambda one: dist.reduce_scatter_tensor(one, t(8), async_op=True))
                for _ in range(5)])
    """
    for ended in run_native(dedent(program) + dedent(LAST), tmp_path / "rings", cache, ranks=2):
        assert ended.out.split() == ["False"] * 10


def test_ops_of_many_tensors_leave_no_memory_behind(tmp_path: Path, cache: str) -> None:
    program = """
        from torch.testing._internal.distributed.fake_pg import FakeStore
        dist.init_process_group("fake", rank=0, world_size=1000, store=FakeStore())
        one, many = t(1), [t(1) for _ in range(1000)]
        def gather(times):
            for _ in range(times):
                dist.all_gather(many, one)
            rss = next(line for line in open("/proc/self/status") if line.startswith("RssAnon"))
            return int(rss.split()[1])
        before = gather(200)
        print(gather(4000) - before)
    """
    (ended,) = run_native(program, tmp_path / "rings", cache)
    assert int(ended.out) < 20_000, "kB; were room kept for each of the last ops, 100,000"


def test_the_waits_of_functional_collectives_are_seen(tmp_path: Path, cache: str) -> None:
    program = """
        import torch.distributed._functional_collectives as functional
        dist.init_process_group("gloo")
        functional.all_reduce(t(4), "sum", dist.group.WORLD).sum()  # the first one imports a lot
        for issue in (
            lambda: functional.all_reduce(t(4), "sum", dist.group.WORLD),
            lambda: functional.all_reduce(t(4), "sum", dist.group.WORLD).view(2, 2),
            lambda: functional.all_gather_tensor(t(4), 0, dist.group.WORLD),
            lambda: functional.reduce_scatter_tensor(t(4), "sum", 0, dist.group.WORLD),
        ):
            dist.barrier()
            if rank == 0:
                time.sleep(0.1)
            issued = issue()
            issued.sum()  # waits
            functional.wait_tensor(t(4))  # of no op
        from datetime import timedelta
        group = dist.new_group([0, 1], timeout=timedelta(seconds=0.5))
        dist.barrier(group=group)
        if rank == 1:
            try:
                functional.all_reduce(t(8), "sum", group).sum()
            except RuntimeError as error:
                print("failed")
        dist.barrier()
    """
    ranks = run_native(dedent(program) + dedent(LAST), tmp_path / "rings", cache, ranks=2)
    for ended in ranks:
        seen = [row for row in ops(ended.ring) if "barrier" not in kind(ended.ring, row)][1:]
        assert not any(Flag.UNTRACKED in row.flags for row in seen[:4])
    for row in seen[:4]:  # of rank 1, which waits for rank 0
        assert Flag.LATE not in row.flags
        assert row.issued_ns <= row.wait_ns
        assert row.done_ns - row.wait_ns > 50_000_000
    assert ranks[1].out.split() == ["failed"]
    assert seen[4].done_ns < 0


def test_a_wait_that_waits_for_nothing_ends_no_op(tmp_path: Path, cache: str) -> None:
    """`wait_tensor` knows only functional collectives: for other ops it returns at once."""
    program = """
        import torch.distributed._functional_collectives as functional
        from frtop_probe.ring.reader import Ring
        dist.init_process_group("gloo")
        store = dist.distributed_c10d._get_default_store()
        functional.all_reduce(t(4), "sum", dist.group.WORLD).sum()
        tensors = [t(4), t(4), t(4), t(4), t(8)]
        def issue():
            move = dist.irecv if rank == 0 else dist.isend
            return [
                dist.all_reduce(tensors[0], async_op=True),
                dist.all_gather([tensors[1], tensors[2]], t(4), async_op=True),
                dist.reduce_scatter_tensor(tensors[3], t(8), async_op=True),
                move(tensors[4], peer),
            ]
        if rank == 0:
            works = issue()
            for tensor in tensors:
                functional.wait_tensor(tensor)
            pending = Ring(recorder().ring.path).pending()
            print(len(pending), *[row.wait_ns for row in pending])
            store.set("seen", "")
        else:
            store.wait(["seen"])
            works = issue()
        for work in works:
            work.wait()
    """
    first, _ = run_native(dedent(program) + dedent(LAST), tmp_path / "rings", cache, ranks=2)
    assert first.out.split() == ["4"] + ["0"] * 4


def test_an_op_ends_once(tmp_path: Path, cache: str) -> None:
    program = """
        dist.init_process_group("gloo")
        kept = [dist.irecv(t(1), peer, tag=9) for _ in range(2)]
        alone = [dist.new_group([one]) for one in range(2)][rank]
        first = dist.irecv(t(2), peer, tag=7)
        head = recorder().ring.cells[StatusCell.HEAD]
        for _ in range(recorder().ring.shape.slots // 2 + 2000):
            dist.all_reduce(t(2), group=alone)
        recorder().pending.overflow.spill()
        dist.send(t(2), peer, tag=7) if rank == 0 else first.wait()
        first.wait() if rank == 0 else dist.send(t(2), peer, tag=7)
        ring, words = recorder().ring, recorder().ring.words
        at = ring.slot_at(head) // 8
        before = list(words[at : at + 11])
        for _ in range(20):
            recorder().pending.reap()
        assert list(words[at : at + 11]) == before, (list(words[at : at + 11]), before)
        print(before[0] == head, before[9] > 0)
    """
    for ended in run_native(dedent(program) + dedent(LAST), tmp_path / "rings", cache, ranks=2):
        assert ended.out.split() == ["True", "True"]


def test_recorders_stop_and_resume_while_threads_issue(tmp_path: Path, cache: str) -> None:
    program = """
        from torch.testing._internal.distributed.fake_pg import FakeStore
        dist.init_process_group("fake", rank=0, world_size=8, store=FakeStore())
        issued, running = [0], True
        def body():
            while running:
                dist.all_reduce(t(2)); dist.isend(t(2), 1)
                issued[0] += 1
        threads = [threading.Thread(target=body) for _ in range(3)]
        for one in threads: one.start()
        for turn in range(30):
            before = issued[0]
            wait_for(lambda: issued[0] > before + 20)
            recorder().stop()
            before = issued[0]
            wait_for(lambda: issued[0] > before + 20)
            recorder().resume()
        running = False
        for one in threads: one.join()
        dist.barrier()
        recorder().pending.reap()
        print(recorder().pending.is_any_open())
    """
    (ended,) = run_native(program, tmp_path / "rings", cache)
    assert ended.out.split() == ["False"]
    assert kind(ended.ring, ops(ended.ring)[-1]) == "barrier"
    assert not any(text["exact"] for text in ended.ring.groups.values())
    assert not ended.ring.pending()


LATER: Final = """
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <time.h>
    long later_s;
    int clock_gettime(clockid_t clock, struct timespec *now) {
        static int (*real)(clockid_t, struct timespec *);
        if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
        int failed = real(clock, now);
        now->tv_sec += later_s;
        return failed;
    }
"""


@pytest.fixture(scope="module")
def later(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A library that moves the clocks of a process on, by `later_s`."""
    folder = tmp_path_factory.mktemp("later")
    (folder / "later.c").write_text(LATER)
    if (compiler := shutil.which("cc")) is None:
        pytest.skip("no C compiler")
    command = [compiler, "-shared", "-fPIC", "-o", "later.so", "later.c"]
    subprocess.run(command, cwd=folder, check=True)
    return str(folder / "later.so")


def run_later(tmp_path: Path, cache: str, later: str, program: str) -> str:
    """Runs a program that can move its clocks, as `later.value`; returns its output."""
    begin = """
        import ctypes
        later = ctypes.c_long.in_dll(ctypes.CDLL(os.environ["LD_PRELOAD"]), "later_s")
    """
    paths = [rank_runner.ZERO, rank_runner.PROBE, Path(__file__).parents[1]]
    ended = rank_runner.run_python(
        tmp_path / "rings", "-c", dedent(PRELUDE) + dedent(begin) + dedent(program),
        LD_PRELOAD=later, XDG_CACHE_HOME=cache, FRTOP_NATIVE="1",
        PYTHONPATH=os.pathsep.join(map(str, paths)),
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_nothing_stays_of_groups_that_are_gone(tmp_path: Path, cache: str, later: str) -> None:
    program = """
        import itertools
        from frtop_probe.recorder.native.library import Library
        from soak.allocated.sitecustomize import Info
        info = ctypes.CDLL(None).mallinfo2
        info.restype = Info
        library, numbers = Library(torch), itertools.count(1)
        library.open(bytearray(4096), [0] * 11, bytearray(8))
        stay = next(numbers)
        def count(group):
            return [library.next_number(group, p2p) for p2p in (0, 0, 1)]
        def groups(alive):
            made = [next(numbers) for _ in range(alive)]
            assert [count(one) for one in made] == [[1, 2, 1]] * alive
            for one in made:
                library.forget_group(one, False)  # its object is gone, it is not
                assert count(one) == [3, 4, 2]
                library.forget_group(one, True)
                assert count(one) == [5, 6, 3]  # of ops that had begun
            later.value += 61
        count(stay)
        for _ in range(3):
            groups(5000)  # more than there are places
        before = info().uordblks
        for _ in range(5):
            groups(5000)
        print(info().uordblks - before, count(stay))
    """
    grown, said = run_later(tmp_path, cache, later, program).split(" ", 1)
    assert said == "[3, 4, 2]\n"
    assert int(grown) < 100_000, "bytes; 25,000 groups"


def test_a_group_of_the_parent_that_goes_in_a_child_takes_no_counts_of_the_child(
    tmp_path: Path, cache: str, later: str
) -> None:
    program = """
        import gc
        from torch.testing._internal.distributed.fake_pg import FakeStore
        def group():
            dist.init_process_group("fake", rank=0, world_size=8, store=FakeStore())
            made = dist.new_group(list(range(8)))
            dist.all_reduce(t(2), group=made)
            return made
        of_parent = group()
        pid = os.fork()
        if not pid:
            dist.destroy_process_group()
            own = group()
            del of_parent
            gc.collect()
            later.value += 61
            dist.all_reduce(t(2), group=dist.new_group(list(range(8))))
            dist.all_reduce(t(2), group=own)
            print(recorder().groups.known[id(own)].issued[1], flush=True)
            os._exit(0)
        os.waitpid(pid, 0)
    """
    assert run_later(tmp_path, cache, later, program) == "2\n"


@pytest.fixture
def copied(tmp_path: Path, cache: str) -> Path:
    """A cache with a copy of the build."""
    folder = tmp_path / "cache" / "frtop" / "native"
    folder.mkdir(mode=0o700, parents=True)
    shutil.copy(Path(cache) / "frtop" / "native" / FILE, folder)
    return folder / FILE


def refusal(tmp_path: Path, *path: Path) -> str:
    """Which kernels record where the cache is `tmp_path / "cache"`, and why."""
    program = """
        sys.path += sys.argv[1:]
        from torch.testing._internal.distributed.fake_pg import FakeStore
        dist.init_process_group("fake", rank=0, world_size=8, store=FakeStore())
        dist.barrier()
    """
    cache = str(tmp_path / "cache")
    (ended,) = run(dedent(PRELUDE) + dedent(program), tmp_path / "rings", *map(str, path),
                   FRTOP_NATIVE="1", XDG_CACHE_HOME=cache)  # fmt: skip
    assert ended.code == 0, ended.err
    assert kinds(ended.ring) == ["barrier"]
    assert ended.err == ""
    return kernels(ended)


def test_without_a_build_python_records(tmp_path: Path) -> None:
    said = "none was built for this torch: run `frtop build-native` before its next start"
    assert refusal(tmp_path) == f"Python: {said}"


@pytest.mark.parametrize("mode", [0o720, 0o702])
def test_a_build_that_others_may_write_is_refused(tmp_path: Path, copied: Path, mode: int) -> None:
    where = copied if mode & 0o020 else copied.parent
    where.chmod(mode)
    assert refusal(tmp_path) == f"Python: others may write {where}"


def test_a_link_to_a_build_is_refused(tmp_path: Path, copied: Path) -> None:
    elsewhere = copied.rename(tmp_path / "elsewhere.so")
    copied.symlink_to(elsewhere)
    assert refusal(tmp_path) == f"Python: {copied} is not a plain file"


def test_a_build_that_is_no_library_is_refused(tmp_path: Path, copied: Path) -> None:
    copied.write_bytes(b"#!/bin/sh\n")
    assert refusal(tmp_path).startswith("Python: ")


def test_a_build_for_another_torch_is_refused(tmp_path: Path, copied: Path) -> None:
    made_for = library.built_for(torch).encode()
    content = copied.read_bytes()
    assert content.count(made_for) == 1
    copied.write_bytes(content.replace(made_for, made_for.replace(b"torch 2.", b"torch 1.")))
    assert refusal(tmp_path).startswith(f"Python: {copied} was built for torch 1.")


@pytest.mark.parametrize(
    ("text", "problem"),
    [(None, "this torch has no headers: "), ("class intrusive_ptr;", "need torch 2.10 or newer")],
)
def test_a_torch_whose_tensors_would_be_lost_is_refused(
    tmp_path: Path, text: str | None, problem: str
) -> None:
    """As torch 2.8: with weak references of other threads, its tensors became undefined."""
    header = tmp_path / "include" / "c10" / "util" / "intrusive_ptr.h"
    header.parent.mkdir(parents=True)
    if text is not None:
        header.write_text(text)
    with pytest.raises(BuildError, match=problem):
        build.compile_kernels("torch 2.8.0", tmp_path, tmp_path / "include", tmp_path)


def test_a_build_of_the_package_is_used(tmp_path: Path, copied: Path) -> None:
    """Whoever may write there could change what is imported, so it is not checked again."""
    package = tmp_path / "site" / "frtop_native"
    package.mkdir(parents=True)
    copied.rename(package / FILE)
    (package / FILE).chmod(0o666)
    assert refusal(tmp_path, package.parent) == "native"


@pytest.fixture(scope="module")
def loaded(cache: str) -> ctypes.PyDLL:
    """The kernels in this process, which records nothing."""
    return ctypes.PyDLL(str(Path(cache) / "frtop" / "native" / FILE))


def test_the_kernels_are_checked_in_no_time(loaded: ctypes.PyDLL) -> None:
    took = []
    for _ in range(5):
        begun = time.perf_counter()
        assert check.difference(loaded) == ""
        took.append(time.perf_counter() - begun)
    assert min(took) < 0.005


@pytest.mark.parametrize(
    ("where", "instead", "differs"),
    [
        ("native.check.crc32", lambda data: zlib.crc32(data) ^ 1, "another CRC-32"),
        ("native.check.layout.CHUNK", 128, "another layout of the ring"),
        (
            "native.check.layout.SLOT_BODY",
            struct.Struct("=qQQQIIIIIBBQH"),
            "another layout of slots",
        ),
        ("native.check._line", lambda _code, _at: 7, "other frames of Python"),
    ],
)
def test_kernels_that_compute_something_else_are_not_used(
    loaded: ctypes.PyDLL, monkeypatch: pytest.MonkeyPatch, where: str, instead: Any, differs: str
) -> None:  # fmt: skip
    monkeypatch.setattr(f"frtop_probe.recorder.{where}", instead)
    assert check.difference(loaded) == differs


def stress(tmp_path: Path, cache: str, *arguments: str) -> None:
    text = Path(__file__).with_name("native_stress.py").read_text()
    (ended,) = run(text, tmp_path / "rings", *arguments, FRTOP_NATIVE="1", XDG_CACHE_HOME=cache)
    assert ended.code == 0, ended.err
    assert kernels(ended) == "native"
    assert ended.ring.cell(StatusCell.HOOK_ERRORS) == 0, ended.err
    assert "frtop" not in ended.err


def test_many_ops_at_once(tmp_path: Path, cache: str) -> None:
    stress(tmp_path, cache, "20000")


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_very_many_ops_at_once(tmp_path: Path, cache: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_runner, "DEADLINE_S", 3500.0)
    stress(tmp_path, cache, os.environ.get("FRTOP_STRESS", "1000000"))  # 2 minutes; 10⁷: 20
    (tmp_path / "switched").mkdir()
    stress(tmp_path / "switched", cache, "20000", "--switch")
