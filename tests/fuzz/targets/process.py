"""Processes that others own: their memory, their libraries, and what the kernel says of them."""

from __future__ import annotations

import asyncio
import json
import os
import struct
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from agent.unprepared_fakes import candidate
from agent.unprepared_fakes import job as job_of
from frtop_probe import wire
from frtop_probe.agent.black_boxes import RecordedJob
from frtop_probe.agent.gauges.gauge_table import GaugeTable
from frtop_probe.agent.statistics_requests import statistics_response
from frtop_probe.agent.unprepared.unprepared_rank import UnpreparedRank
from frtop_probe.gauges.readings import (
    GpuReading,
    GpusReading,
    HostReading,
    gpus_reading_from,
    host_reading_from,
)
from frtop_probe.proc import connections, memory, pid_stat, processes
from frtop_probe.proc.memory import BAD_ADDRESS, Mapping, NotReadable, ProcessMemory
from frtop_probe.stacks import pystack_output
from frtop_probe.stacks.cxx_names import short_name
from frtop_probe.unprepared import cpython, cxx, elf, static_symbols, torch_layout
from frtop_probe.unprepared import reader as unprepared_reader
from frtop_probe.unprepared.__main__ import Readers
from frtop_probe.unprepared.discovery import command_line
from frtop_probe.unprepared.discovery.proc_reader import parse_cmdline, parse_environ
from frtop_probe.unprepared.reader import _one_kind_of_error
from frtop_probe.unprepared.recorded_lines import line_at
from frtop_probe.unprepared.tensors import tensor_of_impl
from frtop_probe.unprepared.worker import look_from
from fuzz.mutations import Mutator, as_bytes, as_json, as_text
from fuzz.target import Take, refused, target
from gauges.test_host_parsers import READING, SAMPLES
from proc.test_connections import HEAD, line, word
from stacks.test_pystack_output import RANK
from unprepared.ranks import job

BASE: Final = 0x10000


class MadeUpMemory(ProcessMemory):
    """These bytes at `BASE`, and nothing else; the bounds are those of any memory."""

    def __init__(self, data: bytes) -> None:
        self.pid, self.reads, self.bytes, self._descriptor = 1, 0, 0, -1
        self._data = data

    def read(self, address: int, size: int) -> bytes:
        if not 0 <= size <= memory.MAX_READ:
            raise NotReadable(memory.TOO_LARGE)
        self._spend(size)
        at = address - BASE
        if at < 0 or at + size > len(self._data):
            raise NotReadable(BAD_ADDRESS)
        return self._data[at : at + size]


def _of_this_process(_: Path) -> Iterable[bytes]:
    """Objects of Python, with their types behind them: their addresses are made to fit."""
    yield struct.pack("<8Q", *(BASE + 8 * n for n in range(8))) * 8
    for value in ("ascii", "gr\u00fcn", 1 << 70, (1, 2), {"a": 1}, b"octets"):
        yield _packed(value)


def _packed(value: object) -> bytes:
    size = value.__sizeof__()
    raw = bytearray(_own(id(value), (size + 7) // 8 * 8))
    place = BASE + len(raw)
    struct.pack_into("<Q", raw, 8, place)  # its type
    kind = bytearray(64)
    struct.pack_into("<Q", kind, 24, place + 64)  # the type's name
    return bytes(raw + kind + type(value).__name__.encode().ljust(128, b"\0"))


def _own(address: int, size: int) -> bytes:
    descriptor = os.open("/proc/self/mem", os.O_RDONLY)
    try:
        return os.pread(descriptor, size, address)
    finally:
        os.close(descriptor)


@target("objects of CPython and libstdc++ in memory", as_bytes, _of_this_process, most=2048)
def objects(_: Path, __: ExitStack) -> Take:
    layouts = [*cpython.FIXED.values()]

    def looks(data: bytes) -> list[Callable[[], object]]:
        fake = MadeUpMemory(data)
        words = memory.to_words(data[: len(data) // 8 * 8].ljust(80, b"\0"))
        python = cpython.Python(fake, layouts[len(data) % len(layouts)])
        return [
            lambda: cxx.string(fake, BASE),
            lambda: cxx.vector(words[:3], 8, 100),
            lambda: cxx.deque_of_pointers(fake, words[:10]),
            lambda: cxx.hash_map_nodes(fake, BASE, words[:7], 8),
            lambda: tensor_of_impl(fake, BASE),
            lambda: python.text(BASE),
            lambda: python.integer(BASE),
            lambda: python.items(BASE),
            lambda: python.octets(BASE),
            lambda: python.entries(BASE),
            lambda: python.find(BASE, ("a",)),
            lambda: cpython.debug_layout(data[:128].ljust(128, b"\0"), (3, 13)),
            lambda: line_at(data, 7, 400),
            lambda: torch_layout.member_offset(data[:16].ljust(16, b"\0"), 62, 8),
            lambda: torch_layout.member_offset(data[:16].ljust(16, b"\0"), 183, 8),
            lambda: torch_layout.compared_offset(data[:16].ljust(16, b"\0"), 62),
            lambda: torch_layout.counter_offset(data[:48].ljust(48, b"\0"), 62),
        ]

    def take(data: bytes) -> bool:
        taken = 0
        for look in looks(data):
            try:
                with _one_kind_of_error():  # as its callers do
                    look()
                taken += 1
            except NotReadable as error:
                refused(error)
        return taken > 5

    return take


@target("libraries: headers, hash tables and symbols of ELF", as_bytes, most=20_000)
def elf_files(folder: Path, _: ExitStack) -> Take:
    path = folder / "library.so"

    def take(data: bytes) -> bool:
        taken = 0
        try:
            with _one_kind_of_error():
                image = elf.Image(MadeUpMemory(data), Mapping("/lib", BASE, BASE + len(data)))
                for name in ("shown", "hidden", "no_such_symbol"):
                    taken += image.address_of(name) is not None
        except NotReadable as error:
            refused(error)
        path.write_bytes(data)
        descriptor = os.open(path, os.O_RDONLY)
        try:
            for kind in (static_symbols.SYMBOLS, static_symbols.EXPORTED):
                found = static_symbols.find_symbol(descriptor, "hidden", kind)
                taken += found is not None
        except struct.error:  # its callers turn it into `NO_FILE`
            pass
        finally:
            os.close(descriptor)
        return taken > 0

    return take


class Answers:
    """What an agent does with the answers of the child that reads a process."""

    def __init__(self, pid: int, stack: ExitStack) -> None:
        self.pid = pid
        self.loop = asyncio.new_event_loop()
        stack.callback(self.loop.close)

    def take(self, answer: dict[str, Any]) -> None:
        self.loop.run_until_complete(self._take(answer))

    async def _take(self, answer: dict[str, Any]) -> None:
        found = candidate(self.pid)
        rank = UnpreparedRank(1, found, job_of(found), None)
        look = look_from(answer)
        now = time.monotonic_ns()
        for tick in range(3):
            rank.take(look, now + tick)
            rank.take_ring(look, now + tick, time.time_ns() - now)
            update = rank.update(now + tick * 10**9)
            assert update is None or wire.size_of_rank(update)
        full = wire.StateResponse(1, wire.Update("h", "i", 1, now, now, (rank.full(),)))
        assert wire.decode_response(wire.encode(full)) == full
        for samples in (0, 8):
            asked = wire.StatisticsRequest(1, (1,), now - 10**12, now, not samples, samples, 4)
            wire.encode(await statistics_response("h", asked, [rank]))
        recorded = RecordedJob("h", "/r", wire.Job("a", 1, 2))
        recorded.add_rank(rank, recorded.job)
        await recorded.histories()
        wire.encode(wire.Update("h", "i", 1, now, now, recorded.updates_now(now)))
        assert not recorded.faults
        wire.encode(wire.HistoryResponse(1, "h", 1, rank.flight.excerpt(1, 0, 100)))
        repr(rank.progress)
        rank.lives = False
        wire.size_of_rank(rank.end(now + 10**10, 0))


KEPT: Final = ("_python", "_layout", "_c10d", "_rings", "_transports")
"""What a reader remembers of a process between looks."""
COLD: Final = 0.02
"""Share of the inputs that begin with a first look, which takes a hundred times as long."""
CHANGE: Final = struct.Struct("<IHHQ")
"""The number of a read, where in its answer, how, and what is written there."""
LOOK: Final = {"rings": 64, "transports": True, "environment": ["SET_LATER"]}


class LyingMemory(ProcessMemory):
    """The memory of a real rank, of which the answers to some reads are changed."""

    changes: dict[int, tuple[int, int, int]]
    count = 0

    def read(self, address: int, size: int) -> bytes:
        data = super().read(address, size)
        kind = type(self)
        kind.count += 1
        change = self.changes.get(kind.count)
        return data if change is None or not data else _changed(data, *change)


def _changed(data: bytes, place: int, how: int, value: int) -> bytes:
    changed, at = bytearray(data), place % len(data)
    match how % 5:
        case 0:
            changed[at] ^= 1 << value % 8
        case 1:
            changed[at:] = value.to_bytes(8, "little")[:1] * (len(data) - at)
        case 2:
            other = value % len(data) // 8 * 8
            changed[at // 8 * 8 :][:8] = data[other : other + 8]
        case _:
            at = at // 8 * 8
            changed[at : at + 8] = value.to_bytes(8, "little")[: len(data) - at]
    return bytes(changed[: len(data)])


def _as_changes(_: bytes, mutator: Mutator) -> bytes:
    """One to five reads that are answered with something else."""
    cold = mutator.chance(COLD)
    found = bytes([0 if cold else 1])
    for _count in range(mutator.random.choice((1, 1, 2, 5))):
        size = 0 if mutator.chance(0.5) else mutator.random.randrange(1 << 16)
        found += CHANGE.pack(
            mutator.random.getrandbits(32), size, mutator.random.randrange(5), mutator.word()
        )
    return found


@target(
    "the memory of a rank that lies", _as_changes, lambda _: [b"\0", b"\1"],
    most=1 + 5 * CHANGE.size, quick=50, needs_torch=True,
)  # fmt: skip
def rank_memory(folder: Path, stack: ExitStack) -> Take:
    """A first byte below 5 asks for a first look; then each change."""
    (folder / "rank").mkdir()
    ranks = job("queued", folder / "rank", TORCH_FR_BUFFER_SIZE="64", TIMEOUT_S="3600")
    pid = stack.enter_context(ranks)[0]
    stack.enter_context(patch.object(unprepared_reader, "ProcessMemory", LyingMemory))
    stack.enter_context(patch.object(unprepared_reader, "_TRIES", 1))
    answers, readers = Answers(pid, stack), Readers()
    request = {"pid": pid, **LOOK}
    lengths = []
    for _ in range(2):
        LyingMemory.changes, LyingMemory.count = {}, 0
        assert not readers.answer(request)["reason"]
        lengths.append(LyingMemory.count)
    (reader,) = readers._readers.values()
    kept = {name: getattr(reader, name) for name in KEPT}

    def take(data: bytes) -> bool:
        cold = data[:1] < b"\x05" and data[:1] != b"\1"
        for name, value in kept.items():
            setattr(reader, name, None if cold and name != "_transports" else value)
        length, whole = lengths[not cold], (len(data) - 1) // CHANGE.size * CHANGE.size
        LyingMemory.count = 0
        LyingMemory.changes = {
            1 + number % length: (place, how, value)
            for number, place, how, value in CHANGE.iter_unpack(data[1 : 1 + max(0, whole)])
        }
        try:
            answer = readers.answer(request)
        finally:
            LyingMemory.changes = {}
        assert "Error" not in answer["reason"], answer["reason"]
        answers.take(json.loads(json.dumps(answer)))
        return not answer["reason"]

    return take


@target("what the child says that read a rank's memory", as_json, most=60_000, quick=150)
def looks(_: Path, stack: ExitStack) -> Take:
    """The child is ours, but what it says is made of a rank's memory."""
    answers = Answers(os.getpid(), stack)

    def take(data: bytes) -> bool:
        try:
            answer = json.loads(data)
            if not isinstance(answer, dict):
                return False
            answers.take(answer)
        except (ValueError, RecursionError, NotReadable):
            return False
        return True

    return take


def _kernel_texts(_: Path) -> Iterable[bytes]:
    for text in SAMPLES.values():
        yield text.encode()
    yield f"{HEAD}\n{line(word('10.77.0.13') + ':BC8E')}\n".encode()
    yield b"4711 (a (b) c) S 5 77 77 0 -1 " + b"4194304 " * 44
    yield b"7f00-7f10 r--p 00000000 08:01 12 /lib/a b.so (deleted)\n7f10-7f20 r-xp 0 0:1 1 /x\n"
    yield b"0 0x3 0x7f 0x1 0x0 0x0 0x0 0x7ffc 0x7f51\n"
    yield b"python3\0-m\0torch.distributed.run\0--local_rank=3\0a.py\0"
    yield b"RANK=3\0WORLD_SIZE=8\0MASTER_ADDR=h\0"
    yield b"ray::train_func()\0"
    yield b"void (anonymous namespace)::f<std::vector<int>, (lambda#1)>::operator()(int) const"


@target("what the kernel says of a process, and symbols of C++", as_text, _kernel_texts, most=4000)
def kernel_texts(_: Path, __: ExitStack) -> Take:
    def take(data: bytes) -> bool:
        text = data.decode("utf-8", "replace")
        for parse in SAMPLES:
            parse(text)
        connections.parse(text.splitlines())
        found = pid_stat.parse(data)
        memory.parse_maps(text)
        processes.parse_syscall(text)
        processes.parse_wchan(text)
        processes.parse_io(text)
        processes.parse_schedstat(text)
        argv = parse_cmdline(data)
        parse_environ(data)
        command_line.program_name(argv)
        command_line.launcher(argv)
        command_line.helper_role(argv)
        command_line.read_title(argv, text[:15])
        command_line.option(argv, "--local_rank")
        assert len(short_name(text)) <= max(4096, len(text))
        return found is not None

    return take


def _readings(_: Path) -> Iterable[bytes]:
    yield json.dumps(asdict(READING)).encode()
    gpu = GpuReading(0, "GPU-1", "H200", values={"util": 50}, pids=(7,), pid_bytes=(1 << 30,))
    yield json.dumps(asdict(GpusReading(9, (gpu,)))).encode()


_NO_READING: Final = (KeyError, TypeError, ValueError, OverflowError)
"""What `PausingChild` expects of a reading of another form."""


@target("figures that children read from GPUs and the host", as_json, _readings, most=20_000)
def readings(_: Path, __: ExitStack) -> Take:
    def take(data: bytes) -> bool:
        try:
            answer = json.loads(data)
        except (ValueError, RecursionError):
            return False
        taken = 0
        for read in (host_reading_from, gpus_reading_from):
            try:
                found = read(answer)
            except _NO_READING:
                continue
            taken += 1
            if isinstance(found, HostReading):
                table = GaugeTable()
                table.add(found.at_ns, found.subjects, found.notes, {77: 1}.get)
                assert wire.encode(wire.Update("h", "i", 1, 0, 0, gauges=table.full()))
        return taken > 0

    return take


@target("stacks as pystack prints them", as_text, lambda _: [RANK.encode()], most=40_000)
def py_stack(_: Path, __: ExitStack) -> Take:
    def take(data: bytes) -> bool:
        try:
            threads = pystack_output.parse(data.decode("utf-8", "replace"))
        except pystack_output.NotPystackError:
            return False
        assert len(threads) <= pystack_output.MAX_THREADS
        return True

    return take
