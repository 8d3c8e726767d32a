"""Entries of torch's Flight Recorder become ops: which numbers count, and what is not known."""

from __future__ import annotations

import gc
import json
import os
import tracemalloc
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from agent.unprepared_fakes import EPOCH_NS, SECOND, backend, c10d, entry, group
from frtop_probe import wire
from frtop_probe.agent.unprepared import flight_history
from frtop_probe.agent.unprepared.flight_history import MAX_OPS, FlightHistory, KnownGroup, ops_of
from frtop_probe.consistency.signatures import RULE_OF_SIZES, difference
from frtop_probe.unprepared.flight_ring import NO_RING
from frtop_probe.unprepared.flight_settings import OFF, SWITCH_ON
from frtop_probe.unprepared.model import Backend, FlightRing, RingEntry, ring_from, ring_json
from frtop_probe.unprepared.worker import TOOK_TOO_LONG, Look
from frtop_tui.files.histories import ops_of as decoded
from frtop_tui.job.checksums import JobChecksums
from history_rows import rows_of

IDS = {("0", "gloo"): 1, ("0", "nccl"): 1}


def ring(entries: Iterable[RingEntry], kind: str = "gloo") -> FlightRing:
    found = tuple(entries)
    return FlightRing(kind, 2000, found[-1].id + 1 if found else 0, found)


def ops(
    entries: Iterable[RingEntry], before: Backend, after: Backend | None = None
) -> list[wire.Op]:
    known = {"0": KnownGroup(1, (4, 5, 6), before, after or before)}
    return ops_of(ring(entries, before.kind), known, EPOCH_NS)


def look(entries: Iterable[RingEntry], number: int, **fields: Any) -> Look:
    found = c10d(group("0", backend(number)))
    return Look(os.getpid(), found, rings=(ring(entries),), after=found, **fields)


def taken(*looks: Look) -> FlightHistory:
    history = FlightHistory()
    for at, one in enumerate(looks):
        history.take(one, IDS, (at + 1) * SECOND, EPOCH_NS)
    return history


def groups(found: list[wire.Op]) -> list[int]:
    return [op.group for op in found]


def test_an_entry_is_an_op_of_the_rank_and_its_end_is_not_timed() -> None:
    (first, last) = ops([entry(6), entry(7, retired=False)], backend(7))
    assert (first.group, first.number, first.issued_ns, first.timeout_ms) == (
        1, 6, 6 * SECOND, 1_800_000,
    )  # fmt: skip
    floats = (wire.TensorSpec("float32", (1024,)),)
    assert first.signature == wire.Signature("all_reduce", inputs=floats, outputs=floats)
    assert (first.pending, first.timed, first.tracked) == (False, False, True)
    assert (last.pending, last.timed, last.tracked) == (True, True, True)
    assert first.sequence < last.sequence < 0


@pytest.mark.parametrize(("name", "kind"), [
    ("gloo:all_to_all", "all_to_all"), ("nccl:_all_gather_base", "all_gather_into_tensor"),
    ("nccl:all_reduce_barrier", "barrier"), ("gloo:barrier", "barrier"),
])  # fmt: skip
def test_kinds_have_the_names_that_dumps_have(name: str, kind: str) -> None:
    ((op,)) = ops([entry(1, name)], backend(1))
    assert op.signature is not None
    assert op.signature.kind == kind


def test_while_the_group_stands_still_its_last_entry_is_the_last_op_of_the_c10d_state() -> None:
    entries = [entry(5, op_id=5), entry(6, op_id=8)]
    assert groups(ops(entries, backend(8, collectives=6))) == [1, 1]
    # A message was issued since, which is in no ring.
    assert groups(ops(entries, backend(9, collectives=6))) == [1, 1]
    # A monitored barrier counts twice, and is in no ring either.
    assert groups(ops(entries, backend(9, collectives=8))) == [0, 0]


def test_while_it_moves_both_counters_must_agree() -> None:
    before, after = backend(7, collectives=5), backend(9, collectives=7)
    assert groups(ops([entry(6, op_id=8)], before, after)) == [1]
    assert groups(ops([entry(6, op_id=7)], before, after)) == [0]
    assert groups(ops([entry(8, op_id=10)], before, after)) == [0]  # newer than the c10d state


def test_entries_of_a_destroyed_group_with_the_same_name_do_not_count() -> None:
    entries = [entry(8, id=0), entry(9, id=1), entry(1, id=2), entry(2, id=3)]
    assert groups(ops(entries, backend(2))) == [0, 0, 1, 1]
    assert groups(ops(entries[:2], backend(0))) == [0, 0]  # no op of the new one yet


def test_numbers_under_detail_do_not_count() -> None:
    assert groups(ops([entry(6)], replace(backend(6), checked=True))) == [0]


def test_a_group_that_is_not_in_the_c10d_state_is_shown_without_it() -> None:
    assert groups(ops([entry(6, group="7")], backend(6))) == [0]


def test_nccl_has_messages_times_and_coalesced_ops() -> None:
    one = backend(3, kind="nccl")
    message = entry(0, "nccl:send 0->2", id=1, is_p2p=True, p2p_number=4)
    ended = entry(2, "nccl:all_reduce", id=2, completed_ns=EPOCH_NS + 3 * SECOND)
    pair = [entry(3, "nccl:all_gather", id=n, retired=False) for n in (3, 4)]
    sent, timed, *coalesced = ops([message, ended, *pair], one)
    assert sent.signature is not None
    assert (sent.p2p, sent.number, sent.signature.peer) == (True, 4, 6)
    assert (timed.timed, timed.done_ns) == (True, 3 * SECOND)
    assert [(op.signature, op.tracked, op.group) for op in coalesced] == [(None, False, 1)] * 2


def test_completed_and_not_retired_means_nothing() -> None:
    seen = entry(1, "nccl:all_reduce", retired=False, completed_ns=EPOCH_NS + 3 * SECOND)
    ((op,)) = ops([seen], backend(1, kind="nccl"))
    assert (op.pending, op.tracked) == (True, False)


def test_reads_add_up_and_tell_what_is_over_by_now() -> None:
    first = look([entry(n, retired=n < 5) for n in range(1, 6)], 5)
    history = taken(first, look([entry(5), entry(6)], 6))
    assert [(op.number, op.pending) for op in history.ops] == [(n, False) for n in range(1, 7)]
    assert history.since() == {"gloo": 7}
    assert taken(first).since() == {"gloo": 5}  # not over
    assert FlightHistory().since() == {}
    many = look([entry(n) for n in range(1, MAX_OPS + 500)], MAX_OPS + 499)
    assert len(taken(many).ops) == MAX_OPS


def test_signatures_and_lines_that_no_op_has_any_more_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flight_history, "_DROPPED", 8)
    table = flight_history.OpTable(4)
    for n in range(40):
        shapes = ((n,),)
        one = entry(n, inputs=shapes, outputs=shapes, site=("/srv/train.py", n, "train"))
        table.merge(ops([one], backend(n)))
        assert len(table._sites) <= len(table._signatures) + 1 <= 14
    sizes = [op.signature.inputs[0].shape for op in table.ops() if op.signature]  # type: ignore[index]
    assert sizes == [(36,), (37,), (38,), (39,)]
    assert [op.site.line for op in table.ops() if op.site] == [36, 37, 38, 39]


def test_many_ops_that_are_alike_take_little_memory() -> None:
    """A host with 64 ranks has a quarter of a million of them."""
    site = ("/srv/a/long/path/to/a/program/train.py", 40, "train")
    found = look([entry(n, site=site) for n in range(1, MAX_OPS)], MAX_OPS - 1)
    sent = json.loads(json.dumps(ring_json(found.rings[0])))
    assert ring_from(sent) == found.rings[0]
    assert len(json.dumps(sent)) < 150 * MAX_OPS
    tracemalloc.start()
    history = FlightHistory()
    history.take(found, IDS, SECOND, EPOCH_NS)
    gc.collect()
    taken_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(history.ops) == MAX_OPS - 1
    assert taken_bytes < 90 * MAX_OPS


def test_what_could_not_be_numbered_is_read_again() -> None:
    moving = c10d(group("0", backend(5)))
    later = c10d(group("0", backend(9, collectives=7)))
    found = Look(1, moving, rings=(ring([entry(n) for n in range(1, 7)]),), after=later)
    assert groups(list((history := taken(found)).ops)) == [0] * 6
    assert history.since() == {"gloo": 1}
    still = look([entry(n) for n in range(1, 7)], 6)
    assert groups(list(taken(found, still).ops)) == [1] * 6


def test_a_ring_that_was_reset_begins_anew() -> None:
    history = taken(look([entry(n) for n in range(1, 6)], 5), look([entry(6, id=0)], 6))
    assert [op.number for op in history.ops] == [6]


def test_a_history_survives_its_tables() -> None:
    lines = [("/srv/train.py", 40, "train"), None, ("/srv/train.py", 40, "train")]
    entries = [entry(n, retired=n < 3, site=lines[n - 1]) for n in range(1, 4)]
    history = taken(look(entries, 3))
    sent = history.history()
    assert (len(sent.signatures), len(sent.sites)) == (1, 1)
    assert decoded(sent) == tuple(
        replaced(op, done_ns=op.done_ns and op.issued_ns + 1) for op in history.ops
    )
    assert "2,000" not in sent.note
    assert sent.note.startswith("Flight Recorder: the last 3 of 4 ops of gloo; messages, ")
    assert [row.number for row in rows_of(history.excerpt(1, 2, 9))] == [2, 3]
    assert [row.number for row in rows_of(history.history(1))] == [3]
    assert history.excerpt(2, 1, 9).columns is None


def replaced(op: wire.Op, **fields: Any) -> wire.Op:
    return wire.Op(**{name: getattr(op, name) for name in op.__struct_fields__} | fields)


@pytest.mark.parametrize(("found", "said"), [
    (Look(1, rings=(FlightRing("gloo", 0, 0, reason=OFF),)),
     f"not recorded: {OFF}; {SWITCH_ON}"),
    (Look(1, rings=(FlightRing("gloo", 0, 0, reason=OFF),),
          environment={"TORCH_FR_BUFFER_SIZE": "0"}),
     f"not recorded: {OFF} (TORCH_FR_BUFFER_SIZE=0); {SWITCH_ON}"),
    (Look(1, rings=(FlightRing("gloo", 0, 0, reason=NO_RING),)),
     f"not recorded: {NO_RING}; {SWITCH_ON}"),
    (Look(1, reason=TOOK_TOO_LONG), f"not recorded: {TOOK_TOO_LONG}"),
    (Look(1, rings=(FlightRing("gloo", 2000, 0),)), "Flight Recorder: no op yet"),
])  # fmt: skip
def test_why_there_is_no_history(found: Look, said: str) -> None:
    history = taken(found)
    assert history.note == said
    assert not history.ops


def test_a_read_that_failed_leaves_what_was_read_before() -> None:
    history = taken(look([entry(1)], 1), Look(1, reason=TOOK_TOO_LONG))
    assert [op.number for op in history.ops] == [1]


def compared(*ranks: Iterable[RingEntry], reads: int = 1) -> list[tuple[tuple[int, ...], ...]]:
    """Sides of the hints that sums of these ranks' entries lead to."""
    job = JobChecksums()
    members = wire.Group(1, "0", "", "gloo", f"0-{len(ranks) - 1}")
    for rank, entries in enumerate(ranks):
        history, found = FlightHistory(), list(entries)
        for read in range(reads):
            upto = found[: (read + 1) * len(found) // reads]
            sums = history.take(look(upto, upto[-1].number), IDS, SECOND, EPOCH_NS)
            assert all(one.rule == RULE_OF_SIZES for one in sums)
            job.add(rank, {1: members}, sums, 0)
        last = look(found, found[-1].number)
        job.add(rank, {1: members}, history.take(last, IDS, SECOND, EPOCH_NS), 0)
        job.add(rank, {1: members}, history.recent_sums(), 0)
    return [hint.sides for hint in job.hints(0)]


@pytest.mark.parametrize("reads", [1, 7])
def test_sums_show_an_op_that_differs_whatever_each_ring_still_had(reads: int) -> None:
    alike = [entry(n) for n in range(1, 1200)]
    odd = [*alike[:700], replace(alike[700], input_types=("int32",)), *alike[701:]]
    assert compared(alike, alike[150:], alike[33:], reads=reads) == []
    sides = compared(alike, alike[150:], odd[33:], reads=reads)
    assert ((0, 1), (2,)) in sides


def test_what_may_differ_gives_equal_sums() -> None:
    one = [entry(1, inputs=((4, 6),)), entry(2, "gloo:all_to_all", inputs=((3,),)),
           entry(3, "gloo:gather", outputs=((3, 5),)), entry(4, "gloo:barrier")]  # fmt: skip
    other = [entry(1, inputs=((24,),)), entry(2, "gloo:all_to_all", inputs=((9,),)),
             entry(3, "gloo:gather", outputs=(), output_types=()),
             entry(4, "gloo:barrier")]  # fmt: skip
    assert compared(one, other) == []
    for mine, theirs in zip(ops(one, backend(4)), ops(other, backend(4)), strict=True):
        assert mine.signature is not None
        assert theirs.signature is not None
        assert difference(mine.signature, theirs.signature, "gloo") is None
