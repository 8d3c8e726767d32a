"""Orders reach ranks once, samples are asked for while there are any, and faults are named."""

from __future__ import annotations

import pytest
from msgspec import convert
from msgspec.structs import replace

from connect.fakes import FakeConnections, frame_of, rank_view
from features.tensor_checks.sampled_ranks import recorded_now
from frtop_probe import wire
from frtop_probe.features.tensor_checks.messages import (
    SETTING,
    NumberSample,
    NumbersOrder,
    NumberState,
    ReadSamples,
    SamplesResponse,
)
from frtop_probe.wire.recording import ChangeRecording, RecordedNow, RecordingResponse
from frtop_tui.connect.request_tracker import BUSY_RETRY_NS, RequestTracker
from frtop_tui.diagnosis.model import Frame
from frtop_tui.features.tensor_checks.follow import (
    NO_RECORDER,
    ORDER_NS,
    POLL_NS,
    UNREACHABLE_NS,
    NumberFollower,
    operator_name,
)
from frtop_tui.features.tensor_checks.orders import NOTHING, RecordOrder
from frtop_tui.job.groups import identifier
from frtop_tui.job.model import HostView

GROUP = wire.Group(1, "0", "default_pg", "gloo", "0-3", True)
ON = NumberState(True, 1, 10, 60)
ORDER = NumbersOrder(1, 10)
FRAME = frame_of(*(replace(rank_view(n, "a"), key=n + 1, groups={1: GROUP}) for n in range(4)))


def rank_key(request: wire.Request) -> int:
    assert isinstance(request, ChangeRecording | ReadSamples)
    return request.key


def numbers_in(request: wire.Request) -> NumbersOrder | None:
    """What an order asks to sample, if it does."""
    assert isinstance(request, ChangeRecording)
    given = request.settings.get(SETTING)
    return None if given is None else convert(given, NumbersOrder)


def following() -> tuple[NumberFollower, RequestTracker, FakeConnections]:
    connections = FakeConnections()
    tracker = RequestTracker(connections.send)
    return NumberFollower(tracker), tracker, connections


def requests(connections: FakeConnections) -> list[wire.Request]:
    found = [request for _, request in connections.sent]
    connections.sent.clear()
    return found


def sample(n: int, checksum: str) -> NumberSample:
    return NumberSample(
        n, 1, n, "all_reduce", "output", "wait", n, 1, 0, "float32", 8, 32, 32, checksum
    )


def test_a_rank_that_differs_is_named_once_its_samples_are_there() -> None:
    follower, tracker, connections = following()
    follower.order(RecordOrder((0, 1, 2, 3), ORDER, identifier(GROUP)))
    follower.update(FRAME, 1)
    orders = requests(connections)
    assert [one.key for one in orders if isinstance(one, ChangeRecording)] == [1, 2, 3, 4]
    assert all(wanted.groups == (1,) for one in orders if (wanted := numbers_in(one)))
    assert follower.numbers.runs
    for one in orders:
        assert isinstance(one, ChangeRecording)
        tracker.receive("a", RecordingResponse(one.id, "a", one.key, recorded_now(ON)), 2)
    now, asked = 3, 0
    while asked < 4:
        now += POLL_NS
        follower.update(FRAME, now)
        tracker.update(now)
        polls = requests(connections)
        assert 0 < len(polls) <= ReadSamples.at_once
        for poll in polls:
            assert isinstance(poll, ReadSamples)
            assert poll.after == 0
            asked += 1
            sums = (sample(1, "a"), sample(2, "b" if poll.key == 3 else "a"))
            state = NumberState(samples=2)
            answer = SamplesResponse(poll.id, "a", rank_key(poll), sums, state=state)
            tracker.receive("a", answer, now)
    follower.update(FRAME, now + POLL_NS)
    assert requests(connections) == []  # all have said all
    (different,) = follower.numbers.found.ops
    assert (different.number, different.odd) == (2, (2,))
    assert (follower.numbers.samples, follower.numbers.runs) == (8, False)


def test_an_order_that_cannot_be_carried_out_says_why() -> None:
    follower, tracker, connections = following()
    reader = replace(FRAME, hosts=(HostView("a", "reporting", may_act=False),))
    follower.order(RecordOrder((0, 9), note="x"))
    follower.update(reader, 1)
    assert connections.sent == []
    assert "may only read" in follower.numbers.controls[0].problem
    assert follower.numbers.controls[9].problem == "it is unreachable"
    follower.order(RecordOrder((0,), ORDER, ("other", "0-3", 0)))
    follower.update(FRAME, 2)
    assert follower.numbers.controls[0].problem == "it is no member of that group"
    follower.order(RecordOrder((1,), ORDER))
    follower.update(FRAME, 3)
    (request,) = requests(connections)
    assert isinstance(request, ChangeRecording)
    tracker.receive("a", wire.Error(request.id, "words", "words"), 4)
    follower.update(FRAME, 5 + POLL_NS)
    assert follower.numbers.controls[1].problem == "words"
    assert connections.sent == []  # such a rank is not asked for samples


def test_ranks_begin_to_sample_in_the_same_step() -> None:
    def at(step: int, far: int = 0) -> Frame:
        views = (
            replace(
                view,
                status=wire.RankStatus(1, 0, 0, step + (rank == 2) + far * rank, step * 10**8),
            )
            for rank, view in FRAME.ranks.items()
        )  # fmt: skip
        return frame_of(*views)

    follower, tracker, connections = following()
    follower.order(RecordOrder((0, 1, 2), ORDER))
    follower.update(at(5), 1)
    assert requests(connections) == []  # until it is known how long a step takes
    follower.update(at(7), 2)
    found = requests(connections)
    starts = [wanted.from_step for one in found if (wanted := numbers_in(one))]
    for one in found:
        assert isinstance(one, ChangeRecording)
        tracker.receive("a", RecordingResponse(one.id, "a", one.key), 2)
    assert starts == [8 + 1 + 20] * 3
    follower.order(RecordOrder((0, 1, 2), ORDER))
    follower.update(at(9, far=100), 3)  # they count by themselves
    (first, *_) = requests(connections)
    wanted = numbers_in(first)
    assert wanted is not None
    assert wanted.from_step == 0


def begun(*ranks: int, watch: int = 0) -> tuple[NumberFollower, RequestTracker, FakeConnections]:
    """Ranks that sample for us."""
    follower, tracker, connections = following()
    follower.order(RecordOrder(ranks, ORDER))
    follower.update(FRAME, 1)
    for one in requests(connections):
        assert isinstance(one, ChangeRecording)
        recorded = recorded_now(replace(ON, watch=watch))
        tracker.receive("a", RecordingResponse(one.id, "a", one.key, recorded), 2)
    return follower, tracker, connections


def polled(
    follower: NumberFollower,
    tracker: RequestTracker,
    connections: FakeConnections,
    *states: NumberState,
    samples: tuple[NumberSample, ...] = (),
) -> None:
    """Asks ranks for their samples; these are their answers."""
    follower.update(FRAME, 2 + POLL_NS)
    for poll, state in zip(requests(connections), states, strict=True):
        answer = SamplesResponse(poll.id, "a", rank_key(poll), samples, state=state)
        tracker.receive("a", answer, 3 + POLL_NS)


def ended(connections: FakeConnections) -> list[tuple[int, int]]:
    """Ranks that were told to end a watch, and which."""
    ends = [one for one in requests(connections) if isinstance(one, ChangeRecording)]
    found = [(rank_key(one), wanted) for one in ends if (wanted := numbers_in(one))]
    assert not any(wanted.ops for _, wanted in found)
    return [(key, wanted.watch) for key, wanted in found]


def changed(rank: int, **fields: object) -> Frame:
    views = {**FRAME.ranks, rank: replace(FRAME.ranks[rank], **fields)}
    return replace(FRAME, ranks=views)


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (changed(1, exit_info=wire.ExitInfo(5, signal=9)), "ended by signal 9"),
        (
            replace(FRAME, ranks={n: one for n, one in FRAME.ranks.items() if n != 1}),
            "no longer reporting",
        ),
        (changed(1, identity=replace(FRAME.ranks[1].identity, pid=77)), "this rank is now another"),
        (changed(1, state="unreachable", state_since_ns=0), "a is unreachable"),
    ],
)
def test_a_rank_that_ends_is_not_waited_for(frame: Frame, why: str) -> None:
    follower, tracker, connections = begun(0, 1)
    polled(follower, tracker, connections, ON, ON, samples=(sample(1, "a"),))
    follower.update(frame, UNREACHABLE_NS + 9)
    assert list(follower.numbers.gone) == [1]
    assert follower.numbers.gone[1].startswith(why)
    assert follower.numbers.runs  # rank 0 does
    assert follower.numbers.samples == 2  # those that came until then
    follower.order(RecordOrder((0, 1), NOTHING, own=True))
    requests(connections)
    follower.update(frame, UNREACHABLE_NS + 10)
    assert [one.key for one in requests(connections) if isinstance(one, ChangeRecording)] == [1]


def test_an_operator_whose_watch_was_replaced_takes_none_of_the_others_samples() -> None:
    follower, tracker, connections = begun(0, 1, watch=4)
    ours, theirs = (replace(ON, samples=1, watch=watch, by="mo@node4 PID 17") for watch in (4, 5))
    polled(follower, tracker, connections, ours, theirs, samples=(sample(1, "a"),))
    follower.update(FRAME, 3 + POLL_NS)
    found = follower.numbers
    assert found.gone == {1: "its sampling was replaced by one for mo@node4 PID 17"}
    assert found.samples == 1
    follower.order(RecordOrder((0, 1), NOTHING, own=True))
    follower.update(FRAME, 4 + POLL_NS)
    assert ended(connections) == [(1, 4)]


def test_who_has_ended_a_watch_early_is_named() -> None:
    follower, tracker, connections = begun(0, watch=4)
    polled(follower, tracker, connections, NumberState(watch=4, by="mo@node4 PID 17"))
    follower.update(FRAME, 3 + POLL_NS)
    found = follower.numbers
    assert found.problems == {0: "its sampling was ended by mo@node4 PID 17"}
    assert (found.runs, found.gone) == (False, {})


def test_samples_of_earlier_watches_are_not_waited_for() -> None:
    follower, tracker, connections = begun(0, watch=4)
    polled(follower, tracker, connections, NumberState(samples=90, watch=4))
    follower.update(FRAME, 3 + 2 * POLL_NS)
    assert follower.numbers.unfetched == 0
    assert requests(connections) == []


def test_each_operator_is_named_and_each_order_counted() -> None:
    follower, _, connections = following()
    follower.order(RecordOrder((1,)))
    follower.order(RecordOrder((0,), ORDER))
    follower.update(FRAME, 1)
    assert follower.numbers.orders == 2
    _, order = requests(connections)
    wanted = numbers_in(order)
    assert wanted is not None
    assert wanted.by == operator_name()


def test_a_host_with_many_ranks_gets_as_many_orders_at_a_time_as_it_takes() -> None:
    views = (replace(rank_view(n, "a"), key=n + 1, groups={1: GROUP}) for n in range(9))
    frame, now = frame_of(*views), 1
    follower, tracker, connections = following()
    follower.order(RecordOrder(tuple(range(9)), note="x"))
    answered: list[int] = []
    refused = 0
    while len(answered) < 9:
        follower.update(frame, now)
        assert all(one.due for rank, one in follower.numbers.controls.items()
                   if rank + 1 not in answered)  # fmt: skip
        sent = requests(connections)
        assert len(sent) <= 4
        for one in sent:
            assert isinstance(one, ChangeRecording)
            if refused < 3:  # looks of the diagnosis are under way, too
                refused += 1
                tracker.receive("a", wire.Error(one.id, "later", "busy"), now)
            else:
                answered.append(one.key)
                tracker.receive("a", RecordingResponse(one.id, "a", one.key), now)
        now += BUSY_RETRY_NS // 2
    follower.update(frame, now)
    assert sorted(answered) == list(range(1, 10))  # each note once
    assert not any(one.due or one.problem for one in follower.numbers.controls.values())


def test_an_agent_that_stays_busy_is_not_asked_for_ever() -> None:
    follower, tracker, connections = following()
    follower.order(RecordOrder((0,), note="x"))
    now = 1
    while not follower.numbers.controls or follower.numbers.controls[0].due:
        assert now < 2 * ORDER_NS
        follower.update(FRAME, now)
        for one in requests(connections):
            tracker.receive("a", wire.Error(one.id, "later", "busy"), now)
        now += BUSY_RETRY_NS
    assert follower.numbers.controls[0].problem == "later"


def test_an_order_waits_for_the_answer_to_the_one_before() -> None:
    follower, tracker, connections = following()
    follower.order(RecordOrder((0,), ORDER))
    follower.order(RecordOrder((0,), NOTHING, own=True))
    follower.update(FRAME, 1)
    (first,) = requests(connections)
    recorded = recorded_now(replace(ON, watch=7))
    tracker.receive("a", RecordingResponse(first.id, "a", rank_key(first), recorded), 2)
    follower.update(FRAME, 3)
    (second,) = requests(connections)
    wanted = numbers_in(second)
    assert wanted is not None
    assert wanted.watch == 7


def test_an_operator_who_leaves_ends_their_own_sampling_only() -> None:
    follower, tracker, connections = begun(0, 1, watch=4)
    polled(follower, tracker, connections, *(replace(ON, watch=watch) for watch in (4, 5)))
    follower.order(RecordOrder((2, 3), ORDER))  # not sent yet: it never is
    follower.end()
    assert follower.is_ordering
    follower.update(FRAME, 4 + POLL_NS)
    (end,) = [request for _, request in connections.sent]
    assert ended(connections) == [(1, 4)]
    assert follower.is_ordering
    tracker.receive("a", RecordingResponse(end.id, "a", 1, RecordedNow()), 5 + POLL_NS)
    assert not follower.is_ordering


@pytest.mark.parametrize("busy", [False, True])
def test_an_order_under_way_is_ended_once_it_is_answered(busy: bool) -> None:
    follower, tracker, connections = following()
    follower.order(RecordOrder((0,), ORDER))
    follower.update(FRAME, 1)
    (order,) = requests(connections)
    follower.end()
    if busy:
        tracker.receive("a", wire.Error(order.id, "busy", "busy"), 2)
    else:
        recorded = recorded_now(replace(ON, watch=4))
        tracker.receive("a", RecordingResponse(order.id, "a", rank_key(order), recorded), 2)
    follower.update(FRAME, 2 * BUSY_RETRY_NS)
    assert ended(connections) == ([] if busy else [(1, 4)])
    assert follower.is_ordering is not busy


def test_an_operator_who_samples_nothing_leaves_at_once() -> None:
    follower, _, connections = following()
    follower.update(FRAME, 1)
    follower.end()
    assert not follower.is_ordering
    assert requests(connections) == []


def test_ranks_without_a_recorder_all_have_one_reason() -> None:
    follower, tracker, connections = following()
    follower.order(RecordOrder((0, 1)))
    follower.update(FRAME, 1)
    for one in requests(connections):
        tracker.receive("a", wire.Error(one.id, f"process {one.id} has none", "unprepared"), 2)
    follower.update(FRAME, 3)
    assert {one.problem for one in follower.numbers.controls.values()} == {NO_RECORDER}
