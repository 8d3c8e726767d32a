"""Transports past c10d, as they show in real processes: by modules, their variables, and maps."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from pathlib import Path

import pytest

from frtop_probe.proc.memory import GONE, NotReadable
from frtop_probe.transports import MODULES, SIGNS, VARIABLES, by_files
from frtop_probe.unprepared.reader import UnpreparedReader, _TransportSearch
from frtop_probe.unprepared.worker import UnpreparedWorker
from unprepared.ranks import program

LATE = """
import sys, types, mmap
def module(name, **variables):
    made = sys.modules[name] = types.ModuleType(name)
    vars(made).update(variables)
def mapped(path):
    with open(path, "w+b") as file:
        file.truncate(4096)
        return mmap.mmap(file.fileno(), 4096)
print("started", flush=True)
for line in sys.stdin:
    kept = eval(line)
    print("done", flush=True)
"""


IMPORTED = "import sys; sys.modules['mpi4py.MPI'] = sys; print('started', flush=True); input()"


class Program:
    """A process that does what it is asked to, and a reader of it."""

    def __init__(self, do: Callable[[str], None], reader: UnpreparedReader) -> None:
        self.do = do
        self._reader = reader

    def transports(self) -> dict[str, str]:
        found = self._reader.transports()
        assert found is not None
        return {one.name: one.sign for one in found}


@pytest.fixture
def late() -> object:
    with program(LATE) as process, UnpreparedReader(process.pid) as reader:

        def do(line: str) -> None:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(f"{line}\n".encode())
            process.stdin.flush()
            assert process.stdout.readline() == b"done\n"

        yield Program(do, reader)


def test_a_module_that_is_imported_late_is_seen_at_once(late: Program) -> None:
    assert late.transports() == {}
    late.do("module('deep_ep')")
    assert late.transports() == {"DeepEP": "module deep_ep is imported"}
    late.do("module('mpi4py.MPI')")
    assert list(late.transports()) == ["DeepEP", "MPI"]
    late.do("sys.modules.pop('deep_ep')")
    assert list(late.transports()) == ["MPI"]


def test_what_engines_import_on_cpus_too_is_a_sign_once_cuda_is_initialized(late: Program) -> None:
    late.do("module('vllm.distributed.device_communicators.pynccl')")
    assert late.transports() == {}
    late.do("module('torch.cuda', _initialized=False)")
    assert late.transports() == {}
    late.do("setattr(sys.modules['torch.cuda'], '_initialized', True)")
    late.do("module('another')")
    assert list(late.transports()) == ["pynccl"]


def test_what_everybody_imports_is_a_sign_only_with_entries(late: Program) -> None:
    late.do("module('torch.distributed._symmetric_memory', _group_name_to_store={})")
    late.do("module('transformer_engine.pytorch.module.base', _ub_communicators=None)")
    assert late.transports() == {}
    late.do("module('torch.distributed._symmetric_memory', _group_name_to_store={'0': 1})")
    late.do("module('another')")
    assert late.transports() == {
        "symmetric memory": "torch.distributed._symmetric_memory._group_name_to_store has entries"
    }


def test_a_mapped_file_is_seen(late: Program, tmp_path: Path) -> None:
    late.do(f"mapped({str(tmp_path / 'nvshmem_transport_ibrc.so.3')!r})")
    assert late.transports() == {"NVSHMEM": "nvshmem_transport_ibrc.so.3 is mapped"}


def test_a_process_that_is_gone() -> None:
    with program("print('started', flush=True); input()") as process:
        reader = UnpreparedReader(process.pid)
    with reader, pytest.raises(NotReadable) as error:
        reader.transports()
    assert error.value.reason == GONE


def test_without_a_right_to_its_memory_what_is_mapped_still_tells(tmp_path: Path) -> None:
    path = tmp_path / "libmscclpp.so.0"
    with path.open("w+b") as file:
        file.truncate(4096)
        with mmap.mmap(file.fileno(), 4096):
            (found,) = _TransportSearch().read(None, lambda: [str(path)])
    assert (found.name, found.sign) == ("MSCCL++", "libmscclpp.so.0 is mapped")


@pytest.mark.parametrize(("path", "name"), [
    ("/v/site-packages/deep_ep_cpp.cpython-312-x86_64-linux-gnu.so", "DeepEP"),
    ("/v/nvidia/nvshmem/lib/nvshmem_bootstrap_uid.so.3.0.0", "NVSHMEM"),
    ("/home/me/.cache/flashinfer/0.5/90a/cached_ops/trtllm_comm/trtllm_comm.so", "FlashInfer"),
    ("/v/mscclpp/_mscclpp.cpython-312-x86_64-linux-gnu.so", "MSCCL++"),
    # What torch, or an engine, loads for everybody:
    ("/v/nvidia/nvshmem/lib/libnvshmem_host.so.3", ""),
    ("/v/torch/lib/libtorch_nvshmem.so", ""),
    ("/v/vllm/_C.abi3.so", ""),
    ("/v/sgl_kernel/common_ops.abi3.so", ""),
    ("/v/transformer_engine/libtransformer_engine.so", ""),
])  # fmt: skip
def test_files_that_are_signs_and_files_that_are_none(path: str, name: str) -> None:
    assert [found for found, _ in by_files([path])] == ([name] if name else [])


def test_the_table_has_no_name_or_sign_twice() -> None:
    names = [signs.name for signs in SIGNS]
    assert len(names) == len(set(names))
    assert len(MODULES) == sum(len(signs.modules) for signs in SIGNS)
    assert len(VARIABLES) == sum(len(signs.made) for signs in SIGNS)


async def test_the_answer_passes_through_the_child() -> None:
    reader = UnpreparedWorker()
    try:
        with program(IMPORTED) as process:
            look = await reader.look(process.pid, transports=True)
            plain = await reader.look(process.pid)
    finally:
        await reader.close()
    assert look.transports is not None
    assert [(one.name, one.sign) for one in look.transports] == [
        ("MPI", "module mpi4py.MPI is imported")
    ]
    assert plain.transports is None
