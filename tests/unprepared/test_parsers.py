"""Parsers of foreign memory, on bytes made up here: whatever they read, one kind of error."""

from __future__ import annotations

import argparse
import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frtop_probe.proc import memory
from frtop_probe.proc.memory import NotReadable, ProcessMemory
from frtop_probe.unprepared import cpython, cxx, elf, flight_ring, static_symbols, torch_layout
from frtop_probe.unprepared.recorded_lines import line_at
from frtop_probe.unprepared.tensors import tensor_of_impl

BASE = 0x10000


class FakeMemory(ProcessMemory):
    """Bytes at `BASE`, in a file instead of /proc."""

    def __init__(self, data: bytes, tmp_path: Path) -> None:
        super().__init__(os.getpid())
        self.close()
        path = tmp_path / "mem"
        with path.open("wb") as file:
            file.seek(BASE)
            file.write(data)
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("memory")


@pytest.fixture
def own() -> Iterator[ProcessMemory]:
    memory_ = ProcessMemory(os.getpid())
    yield memory_
    memory_.close()


def words(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}Q", *values)


@pytest.mark.parametrize("address", [0, 8, 1 << 60, (1 << 56) - 8, 0x7FFF_FFFF_F000])
def test_an_address_that_leads_nowhere(own: ProcessMemory, address: int) -> None:
    with pytest.raises(NotReadable):
        own.read(address, 8)


def test_budgets_are_per_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MAX_READS", 2)
    monkeypatch.setattr(memory, "MAX_BYTES", 100)
    data = bytes(range(64))
    address = id(data) + 32
    own = ProcessMemory(os.getpid())
    try:
        assert own.read(address, 64) == data
        with pytest.raises(NotReadable) as refused:
            own.read(address, 64)
        assert refused.value.reason == memory.TOO_LARGE
        own.start_look()
        own.read(address, 1)
        own.read(address, 1)
        with pytest.raises(NotReadable):
            own.read(address, 1)
        own.start_look()
        with pytest.raises(NotReadable):
            own.read(address, memory.MAX_READ + 1)
    finally:
        own.close()


def test_strings_of_both_kinds(folder: Path) -> None:
    text = "a text of more than fifteen bytes"
    inline = words(BASE + 16, 5) + b"short\0".ljust(16, b"x")
    heap = words(BASE + 64, len(text), 40, 0) + text.encode() + b"\0"
    fake = FakeMemory(inline + heap, folder)
    assert cxx.string(fake, BASE) == "short"
    assert cxx.string(fake, BASE + 32) == text
    fake.close()


@pytest.mark.parametrize(
    "raw",
    [
        words(BASE + 16, 16) + b"y" * 16,  # too long to be local
        words(BASE + 16, 3) + b"four".ljust(16, b"\0"),  # no end
        words(BASE + 64, 20, 10, 0),  # longer than its capacity
        words(BASE + 64, 5, 5, 0),  # on the heap, and so short
        words(0, 20, 20, 0),
        words(BASE + 64, 1 << 40, 1 << 40, 0),
        words(BASE + 16, 2) + b"\xff\xfe\0".ljust(16, b"\0"),
    ],
)
def test_what_is_no_string(folder: Path, raw: bytes) -> None:
    fake = FakeMemory(raw.ljust(256, b"\0"), folder)
    with pytest.raises(NotReadable):
        cxx.string(fake, BASE)
    fake.close()


@given(st.binary(min_size=512, max_size=512))
def test_random_bytes_raise_one_kind_of_error(folder: Path, data: bytes) -> None:
    fake = FakeMemory(data, folder)
    python = cpython.Python(fake, cpython.FIXED[3, 11])
    layout = cpython.FIXED[3, 10]
    looks = (
        lambda: cxx.string(fake, BASE),
        lambda: cxx.vector(memory.to_words(data[:24]), 8, 100),
        lambda: cxx.deque_of_pointers(fake, memory.to_words(data[:80])),
        lambda: cxx.hash_map_nodes(fake, BASE, memory.to_words(data[:56]), 8),
        lambda: tensor_of_impl(fake, BASE),
        lambda: python.text(BASE),
        lambda: python.integer(BASE),
        lambda: python.items(BASE),
        lambda: python.octets(BASE),
        lambda: python.entries(BASE),
        lambda: cpython.Python(fake, layout).entries(BASE),
        lambda: elf.parse_header(data[:64], data[64:]),
        lambda: elf.Image(fake, memory.Mapping("/lib", BASE, BASE + 512)),
        lambda: cpython.debug_layout(data[:128], (3, 13)),
    )
    for look in looks:
        try:
            look()
        except NotReadable:
            continue
    fake.close()


@given(st.binary(min_size=16, max_size=16), st.sampled_from([62, 183]), st.sampled_from([1, 8]))
def test_random_code_has_no_offset_or_a_small_one(code: bytes, machine: int, width: int) -> None:
    for offset in (
        torch_layout.member_offset(code, machine, width),
        torch_layout.compared_offset(code, machine),
        torch_layout.counter_offset(code, machine),
    ):
        assert offset is None or 8 <= offset < 1 << 16


@pytest.mark.parametrize(
    ("code", "machine", "width", "offset"),
    [
        ("488b87c8010000c3", 62, 8, 0x1C8),  # mov 0x1c8(%rdi),%rax; ret
        ("488b4778c3", 62, 8, 0x78),
        ("f30f1efa488b87c8010000c3", 62, 8, 0x1C8),  # endbr64 first
        ("0fb6477cc3", 62, 1, 0x7C),  # movzbl 0x7c(%rdi),%eax; ret
        ("0fb687c8010000c3", 62, 1, 0x1C8),
        ("488b87c801000090", 62, 8, None),  # no return
        ("488b86c8010000c3", 62, 8, None),  # not from `this`
        ("488b47f8c3", 62, 8, None),  # before the object
        ("00e440f9c0035fd6", 183, 8, 0x1C8),  # ldr x0,[x0,#456]; ret
        ("5f2403d500e440f9c0035fd6", 183, 8, 0x1C8),  # bti c first
        ("00f04139c0035fd6", 183, 1, 0x7C),  # ldrb w0,[x0,#124]; ret
        ("01e440f9c0035fd6", 183, 8, None),  # into x1
        ("00e840f9c0035fd61f2003d51f2003d5", 183, 8, 0x1D0),  # torch 2.13: the number of gloo
        ("00104239c0035fd61f2003d51f2003d5", 183, 1, 0x84),  # its opType_
    ],
)
def test_offsets_in_machine_code(code: str, machine: int, width: int, offset: int | None) -> None:
    raw = bytes.fromhex(code).ljust(16, b"\x90")
    assert torch_layout.member_offset(raw, machine, width) == offset


@pytest.mark.parametrize(
    ("code", "machine", "offset"),
    [
        ("4883bfd0000000ff740e", 62, 0xD0),  # cmpq $-1,0xd0(%rdi); je
        ("48837f70ff740e", 62, 0x70),
        ("4883bfd000000000740e", 62, None),
        ("016840f93f0400b1", 183, 0xD0),  # ldr x1,[x0,#208]; cmn x1,#1
        ("016840f93f0800b1", 183, None),
        ("e10300aa006c40f91f0400b140000054", 183, 0xD8),  # mov x1,x0 first: torch 2.13
    ],
)
def test_a_member_compared_with_minus_one(code: str, machine: int, offset: int | None) -> None:
    raw = bytes.fromhex(code).ljust(16, b"\x90")
    assert torch_layout.compared_offset(raw, machine) == offset


def debug_offsets(version: int, free_threaded: int = 0) -> bytes:
    values = [0, version << 16 | 0xF0, free_threaded, 1000, 2000, 632, *range(106, 116)]
    return b"xdebugpy" + words(*values[1:])


def test_debug_offsets_of_both_layouts() -> None:
    old = cpython.debug_layout(debug_offsets(0x030D), (3, 13))
    new = cpython.debug_layout(debug_offsets(0x030E), (3, 14))
    assert (old.interpreters, old.modules, old.state_shift) == (632, 111, 2)
    assert (new.interpreters, new.modules, new.state_shift) == (632, 112, 2)
    assert (old.tuple_items, new.tuple_items) == (24, 32)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (debug_offsets(0x030D, free_threaded=1), cpython.FREE_THREADED),
        (debug_offsets(0x030E), cpython.UNKNOWN_PYTHON),  # not what Py_Version says
        (b"\0" * 128, cpython.UNKNOWN_PYTHON),
    ],
)
def test_refused_builds_of_python(raw: bytes, reason: str) -> None:
    with pytest.raises(NotReadable) as refused:
        cpython.debug_layout(raw, (3, 13))
    assert refused.value.reason == reason


def test_objects_of_this_very_process(own: ProcessMemory) -> None:
    python = cpython.open_python(
        own, memory.mapped_files(os.getpid()), memory.executable(os.getpid())
    )
    values = ["ascii", "grün", "日本", "😀", ""]
    assert [python.text(id(value)) for value in values] == values
    numbers = [0, 1, -1, 1 << 30, -(1 << 61), (1 << 90) + 5]
    assert [python.integer(id(number)) for number in numbers] == numbers
    data = {f"k{i}": numbers for i in range(300)}
    del data["k7"]
    assert [python.text(entry.key) for entry in python.entries(id(data))] == list(data)
    assert list(python.find(id(data), ("k8", "k7"))) == ["k8"]
    mixed = {1: "a", "b": 2}
    assert [entry.value for entry in python.entries(id(mixed))] == [id("a"), id(2)]
    assert python.items(id((values, data))) == (id(values), id(data))
    for wrong in (values, 1.5, object()):
        with pytest.raises(NotReadable):
            python.text(id(wrong))


def test_symbols_of_this_very_process(own: ProcessMemory) -> None:
    files = memory.mapped_files(os.getpid())
    libc = next(path for path in files if "libc.so" in path or "libc-" in path)
    image = elf.Image(own, files[libc])
    address = image.address_of("malloc")
    assert address is not None
    assert image.contains(address)
    assert image.address_of("no_such_symbol_anywhere") is None


def elf_library(place: int) -> bytes:
    """A library with no symbols, whose program headers are at a place in the file."""
    own = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\2\1", 3, 183, 1, 0, place, 0, 0, 64, 56, 2, 0, 0, 0
    )
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, 0x400000, 0x400000, 512, 512, 0x10000)
    dynamic = struct.pack("<IIQQQQQQ", 2, 6, 256, 0x400100, 0x400100, 64, 64, 8)
    tags = words(0x6FFFFEF5, BASE + 320, 6, BASE + 384, 5, BASE + 384, 0, 0)
    hashes = struct.pack("<IIII", 1, 1, 1, 0) + words(0) + struct.pack("<I", 0)
    filled = own.ljust(256, b"\0") + tags + hashes
    return filled.ljust(place, b"\0")[:place] + load + dynamic + filled[place + 112 :]


@pytest.mark.parametrize(("place", "mapped", "readable"), [
    (64, (), True),
    (4096, ((BASE + 0x10000, BASE + 0x11000, 4096),), True),  # as in torch 2.15 for aarch64
    (4096, (), False),
])  # fmt: skip
def test_program_headers_anywhere_in_the_file(
    folder: Path, place: int, mapped: tuple[tuple[int, int, int], ...], readable: bool
) -> None:
    data = elf_library(place)
    fake = FakeMemory(data[:512] + bytes(0x10000 - 512) + data[place:], folder)
    parts = ((BASE, BASE + 512, 0), *mapped)
    mapping = memory.Mapping("/lib", BASE, BASE + 512, parts)
    if readable:
        image = elf.Image(fake, mapping)
        assert (image.machine, image.address_of("name")) == (elf.AARCH64, None)
    else:
        with pytest.raises(NotReadable):
            elf.Image(fake, mapping)
    fake.close()


@given(st.text())
def test_maps_of_any_text(text: str) -> None:
    memory.parse_maps(text)


def test_files_of_a_process_in_a_chroot_are_named_as_it_names_them() -> None:
    text = "".join(
        f"{place:x}000-{place:x}fff r--p 00000000 fe:00 7 {path}\n"
        for place, path in enumerate(("/srv/root/lib/a.so", "/srv/root2/b.so", "/c.so"), 16)
    )
    assert set(memory.parse_maps(text, "/srv/root")) == {"/lib/a.so", "/srv/root2/b.so", "/c.so"}


def test_maps() -> None:
    text = (
        "7f00-7f10 r--p 00000000 08:01 12 /lib/a b.so (deleted)\n"
        "7f10-7f20 r-xp 00000010 08:01 12 /lib/a b.so (deleted)\n"
        "7f30-7f40 r-xp 00000010 08:01 12 /lib/no_start.so\n"
        "7f40-7f50 rw-p 00000000 00:00 0 [heap]\n"
    )
    parts = (0x7F00, 0x7F10, 0), (0x7F10, 0x7F20, 0x10)
    mapping = memory.Mapping("/lib/a b.so", 0x7F00, 0x7F20, parts)
    assert memory.parse_maps(text) == {"/lib/a b.so": mapping}
    assert mapping.address_of(0x18, 8) == 0x7F18
    assert mapping.address_of(0x18, 9) is None


def test_a_thread_that_waits_for_the_memory_lock_is_left_alone() -> None:
    stuck = memory.ProcessIdentity(1, 1, "D", "rwsem_down_write_slowpath")
    with pytest.raises(NotReadable) as refused:
        memory.refuse_if_locked(stuck)
    assert refused.value.reason == memory.WAITS_FOR_MEMORY
    memory.refuse_if_locked(memory.ProcessIdentity(1, 1, "D", "io_schedule"))


@given(st.binary(max_size=2000))
def test_static_symbols_of_any_file(folder: Path, data: bytes) -> None:
    path = folder / "library"
    path.write_bytes(data.ljust(64, b"\0"))
    descriptor = os.open(path, os.O_RDONLY)
    try:
        assert static_symbols.find_symbol(descriptor, "name") is None
    finally:
        os.close(descriptor)


def header(next_slot: int, id_: int) -> flight_ring._Header:
    return flight_ring._Header(BASE, BASE + 10 * 512, 10, next_slot, id_, 0)


def test_slots_of_a_ring_that_may_be_torn() -> None:
    assert flight_ring._written(header(8, 18), header(8, 18)) == set()
    # Two were written, and the third may have been begun.
    assert flight_ring._written(header(8, 18), header(0, 20)) == {8, 9, 0}
    assert flight_ring._written(header(8, 18), header(8, 28)) == set(range(10))
    assert flight_ring._written(header(8, 18), header(2, 2)) == set(range(10))  # reset


def test_newest_slots_of_a_ring() -> None:
    assert flight_ring._newest(2, 10, 4) == [1, 0, 9, 8]
    assert flight_ring._newest(3, 3, None) == [2, 1, 0]


@pytest.mark.parametrize(("machine", "code", "offset"), [
    (62, "8b87d4000000 8d5001 8997d4000000 c3", 0xD4),  # torch 2.13
    (62, "f30f1efa 8b87d4000000 8d5001 8997d4000000 c3", 0xD4),
    (62, "534889fb e811223344 8b83dc000000 8d5001 8993dc000000 5bc3", 0xDC),  # a check before
    (62, "8b87d4000000 8d5001 8997d8000000 c3", None),  # another member
    (62, "8b87d4000000 8d5002 8997d4000000 c3", None),
    (62, "c3", None),
    (183, "e10300aa 00d440b9 02040011 22d400b9 c0035fd6", 0xD4),  # torch 2.13
    (183, "00d440b9 02040011 22d800b9 c0035fd6", None),  # another member
    (183, "00d440b9 02080011 22d400b9 c0035fd6", None),
    (183, "00d440b9 02040011 23d400b9 c0035fd6", None),  # something else is stored
    (183, "c0035fd6", None),
])  # fmt: skip
def test_the_counter_of_collectives_is_found_in_the_code_that_increments_it(
    machine: int, code: str, offset: int | None
) -> None:
    assert torch_layout.counter_offset(bytes.fromhex(code).ljust(48, b"\x90"), machine) == offset


@pytest.mark.skipif(sys.version_info < (3, 11), reason="code objects have another table")
def test_the_line_of_an_instruction() -> None:
    file = Path(argparse.__file__)
    todo = [compile(file.read_text(), str(file), "exec")]
    while todo:
        code = todo.pop()
        todo += [inner for inner in code.co_consts if isinstance(inner, CodeType)]
        for place, (line, *_) in enumerate(code.co_positions()):
            found = line_at(code.co_linetable, code.co_firstlineno, 2 * place)
            assert found == (line or None), (code, place)


@pytest.mark.parametrize("table", [b"", b"\x00", b"\xf0", b"\xe8\x7f\x7f", b"\xe8" + b"\x7f" * 99])
def test_a_table_that_is_none_has_no_line(table: bytes) -> None:
    assert line_at(table, 7, 400) is None


@pytest.mark.parametrize("number", [flight_ring._MAX_ID + 1, (1 << 64) - 1])
@pytest.mark.parametrize("shift", flight_ring._SHIFTS)
def test_an_entry_of_the_flight_recorder_with_an_impossible_id_is_not_readable(
    own: ProcessMemory, shift: int, number: int
) -> None:
    raw = bytearray(flight_ring._ENTRY_END + shift)
    struct.pack_into("<Q", raw, 0, number)
    struct.pack_into("<q", raw, flight_ring._CREATED + shift, 1_700_000_000 * 10**9)
    layout = torch_layout.TorchLayout({}, frozenset(), frozenset(), {}, None, 0, 40)
    reader = flight_ring.RingReader(own, layout, static_symbols.StaticSymbols(), None)
    with pytest.raises(NotReadable, match="numbers"):
        reader._entry(bytes(raw), 0, shift)
