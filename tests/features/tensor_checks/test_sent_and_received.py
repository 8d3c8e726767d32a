"""Which messages arrived as they were sent, who is named, and when nothing may be concluded."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

import pytest
from msgspec.structs import replace

from frtop_probe import wire
from frtop_probe.features.tensor_checks.messages import NumberSample
from frtop_tui.features.tensor_checks.comparison import Findings, findings
from frtop_tui.features.tensor_checks.finding_words import brief_finding, finding_words, next_step
from frtop_tui.features.tensor_checks.samples import GroupNames, RankSample
from frtop_tui.job.stack_frames import site_line

GROUP = ("7", "4-7", 0)
"""Its ranks are not their places in it."""
LINE = wire.Site("/home/me/stages.py", 40, "forward")
CLOCK = count(1)


def half(
    rank: int, role: str, peer: int, message: int, checksum: str, *, taken: str = "", nans: int = 0,
    step: int = 1, tag: int = 0, elements: int = 8, kind: str = "",
) -> RankSample:  # fmt: skip
    """One side of a message; `peer` is the place in the group."""
    at_ns = next(CLOCK)
    taken = taken or ("issue" if role == "sent" else "wait")
    kind = kind or ("send" if role == "sent" else "recv")
    sample = NumberSample(
        at_ns, 1, message + 100, kind, role, taken, step, at_ns, 3, "float32", elements,
        4 * elements, 4 * elements, checksum, nans, peer=peer, tag=tag, message=message,
    )  # fmt: skip
    return RankSample(rank, sample, GROUP, LINE, at_ns=at_ns)


def sent(rank: int, peer: int, message: int, checksum: str, **more: object) -> RankSample:
    return half(rank, "sent", peer, message, checksum, **more)  # type: ignore[arg-type]


def received(rank: int, peer: int, message: int, checksum: str, **more: object) -> RankSample:
    return half(rank, "received", peer, message, checksum, **more)  # type: ignore[arg-type]


def arrives(sums: str, others: str = "") -> list[RankSample]:
    """Messages from rank 4 to 5 with these checksums, which arrive with the others."""
    return [
        one
        for n, (ours, theirs) in enumerate(zip(sums, others or sums, strict=True), 1)
        for one in (sent(4, 1, n, ours), received(5, 0, n, theirs))
    ]


def found_in(samples: Iterable[RankSample]) -> Findings:
    return findings(samples, 4)


def said(found: Findings) -> str:
    names = GroupNames({GROUP: "pp:0"})
    return "\n".join(" ".join(one[:2]) for one in finding_words(found, names, site_line))


def test_messages_that_arrive_as_sent_are_counted() -> None:
    found = found_in(arrives("abc"))
    assert (dict(found.equal_messages), found.any_fault) == ({GROUP: 3}, False)
    assert "pp:0 3 messages have arrived bit by bit as sent" in said(found)


def test_a_message_that_arrives_with_other_bytes_is_named_with_both_ranks() -> None:
    found = found_in(arrives("abcd", "abxd"))
    (one,) = found.messages
    assert (one.message, one.differing, one.compared, found.named) == (3, 1, 4, (4, 5))
    text = said(found)
    assert "rank 5 received other bytes than rank 4 sent: message #3 pp:0, step 1" in text
    assert "received by recv #103 stages.py:40; 1 of 4 compared messages" in text
    assert "may have changed before the send was over: no wait for it was sampled" in text
    assert found.any_fault
    assert brief_finding(found, GroupNames({GROUP: "pp:0"})).startswith("rank 5 received other")


@pytest.mark.parametrize(
    ("at_wait", "named", "says"),
    [
        ("x", (4,), "rank 4's buffer changed after its isend and before its wait"),
        ("c", (4, 5), "rank 4's buffer was the same at its wait"),
    ],
)
def test_what_the_sender_had_at_its_wait_tells_who_changed_it(
    at_wait: str, named: tuple[int, ...], says: str
) -> None:
    found = found_in([*arrives("abcd", "abxd"), sent(4, 1, 3, at_wait, taken="wait")])
    assert found.named == named
    assert says in said(found)
    assert ("wait for its isend" in next_step(found)) == (at_wait == "x")


def test_a_sender_that_changed_what_arrived_is_named_though_all_messages_differ() -> None:
    samples = [*arrives("ab", "xy"), sent(4, 1, 1, "x", taken="wait")]
    found = found_in(samples)
    assert [one.message for one in found.messages] == [1]


@pytest.mark.parametrize(
    ("samples", "what"),
    [
        (arrives("abcd", "bcde"), "one side has counted a message more"),
        (arrives("aaab", "aabc"), "equal, but so are the others: that shows nothing"),
        (
            [*arrives("abcd", "abxd"), received(5, -1, 9, "q", kind="recv_any_source")],
            "it may have taken one of them from any source",
        ),
    ],
)
def test_nothing_is_concluded_where_both_sides_may_not_count_alike(
    samples: list[RankSample], what: str
) -> None:
    found = found_in(samples)
    assert (found.messages, found.any_fault) == ((), False), what
    assert found.unclear_messages
    assert "nothing is concluded" in said(found)


def test_what_is_not_comparable_is_left_out() -> None:
    found = found_in([
        *arrives("abc"),
        sent(4, 1, 0, "d"), received(5, 0, 0, "e"),  # not counted
        sent(4, 1, 7, "f", elements=4), received(5, 0, 7, "g"),
        sent(4, 1, 8, "h"), sent(4, 1, 8, "i"), received(5, 0, 8, "i"),  # numbers began again
        sent(4, 1, 9, "j", tag=1), received(5, 0, 9, "k", tag=2),
        sent(4, 9, 9, "l"),  # no such place
    ])  # fmt: skip
    assert (found.messages, found.one_sided) == ((), 2)
    assert dict(found.equal_messages) == {GROUP: 3}


def test_a_nan_is_named_at_the_rank_that_had_received_none() -> None:
    """Stage 5 makes it; it goes on to 6, and back to 4 with the gradients."""
    found = found_in([
        sent(4, 1, 1, "a"), received(5, 0, 1, "a"),
        sent(5, 2, 1, "n", nans=3), received(6, 1, 1, "n", nans=3),
        sent(6, 1, 1, "m", nans=9), received(5, 2, 1, "m", nans=9),
        sent(5, 0, 1, "o", nans=9), received(4, 1, 1, "o", nans=9),
    ])  # fmt: skip
    (bad,) = found.bad
    assert (bad.rank, bad.received, bad.earliest) == (5, 1, False)
    text = said(found)
    assert "rank 5: 3 NaN in what it sent to rank 6, send #101 pp:0, step 1 stages.py:40" in text
    assert "none in the message that it had received before in that step" in text


def test_a_clock_that_is_ahead_blames_no_receiver() -> None:
    theirs = received(6, 1, 1, "n", nans=3), sent(6, 3, 1, "m", nans=3)
    found = found_in([*theirs, sent(5, 2, 1, "n", nans=3)])
    assert [one.rank for one in found.bad] == [5]
    assert "nothing was sampled before: it may have begun earlier" in said(found)


def test_a_nan_that_was_not_sent_is_named_at_its_receiver() -> None:
    found = found_in([
        *arrives("ab"), sent(4, 1, 3, "c"), received(5, 0, 3, "x", nans=1),
        sent(5, 2, 1, "y", nans=8),
    ])  # fmt: skip
    assert [one.rank for one in found.bad] == [5]
    assert "1 NaN in what it received from rank 4, recv #103" in said(found)
    assert "none in what rank 4 sent" in said(found)
    found = found_in([received(5, 0, 3, "x", nans=1)])  # its sender was not asked
    assert [one.rank for one in found.bad] == [5]


def test_a_step_that_a_loss_scaler_skipped_does_not_count() -> None:
    update = sent(5, 2, 1, "").sample
    scaled = [
        replace(update, role=role, taken="scaler 0", step=2, number=1, peer=-1, message=0,
                maximum=value)
        for role, value in (("found_inf", 1.0), ("loss_scale", 512.0))
    ]  # fmt: skip
    skipped = sent(5, 2, 1, "n", nans=1, step=2)
    samples = [skipped, *(RankSample(5, one, None) for one in scaled)]
    found = found_in(samples)
    assert [(one.rank, one.left_out) for one in found.bad] == [(5, True)]
    assert not found.any_fault
    found = found_in([*samples, sent(6, 3, 1, "m", nans=1, step=3)])
    assert [(one.rank, one.left_out) for one in found.bad] == [(6, False)]
