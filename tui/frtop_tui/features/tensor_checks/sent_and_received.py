"""Compares what was sent with what was received, and finds where a NaN entered the messages.

A message has a number in its channel: both sides count the messages from one rank to another in a
group with a tag. A receive from any source has no number, so it is not compared.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from frtop_tui.features.tensor_checks.samples import RankSample, peer_of
from frtop_tui.job.groups import Identifier

OF_MESSAGES: Final = ("sent", "received")


class Channel(NamedTuple):
    """Whose messages are counted together."""

    group: Identifier
    sender: int
    receiver: int
    tag: int


@dataclass(frozen=True, slots=True)
class MessageDifference:
    """The first message of a channel that arrived with other bytes than were sent.

    `changed`: whether the sender's buffer changed between the issue and the wait; None if its wait
    was not sampled. `received_late`: the receive was over before its wait, so the receiver may have
    changed the bytes.
    """

    channel: Channel
    message: int
    sent: RankSample
    received: RankSample
    changed: bool | None
    received_late: bool
    differing: int  # messages that differ among those compared
    compared: int

    @property
    def named(self) -> tuple[int, ...]:
        """The sender if it changed its buffer, otherwise both sides."""
        return self.channel[1:2] if self.changed else self.channel[1:3]


@dataclass(frozen=True, slots=True)
class ComparedMessages:
    """What the messages of all channels show."""

    differences: tuple[MessageDifference, ...] = ()
    equal: Mapping[Identifier, int] = field(default_factory=dict)
    unclear: int = 0  # they differ, but nothing shows that both sides count alike
    one_sided: int = 0  # only one side was sampled


@dataclass(slots=True)
class _Message:
    sent: list[RankSample] = field(default_factory=list)
    at_wait: list[RankSample] = field(default_factory=list)
    received: list[RankSample] = field(default_factory=list)

    @property
    def pair(self) -> tuple[RankSample, RankSample] | None:
        """Both sides, if each was sampled once: numbers begin again after 65,535."""
        if len(self.sent) != 1 or len(self.received) != 1:
            return None
        return self.sent[0], self.received[0]

    @property
    def changed(self) -> bool | None:
        """Whether the sender's buffer changed before its wait."""
        if len(self.sent) != 1 or len(self.at_wait) != 1:
            return None
        return self.at_wait[0].sample.checksum != self.sent[0].sample.checksum


def compare_messages(samples: Iterable[RankSample]) -> ComparedMessages:
    """Compares all messages that were sampled on both sides."""
    channels: defaultdict[Channel, defaultdict[int, _Message]]
    channels = defaultdict(lambda: defaultdict(_Message))
    from_any: set[tuple[Identifier, int]] = set()
    for one in samples:
        peer, sample = peer_of(one), one.sample
        if one.group is None or sample.role not in OF_MESSAGES:
            continue
        if peer is None:
            from_any.add((one.group, one.rank))
            continue
        sent = sample.role == "sent"
        if not sample.message or not sample.checksum or sample.error:
            continue
        ends = (one.rank, peer) if sent else (peer, one.rank)
        message = channels[Channel(one.group, *ends, sample.tag)][sample.message]
        if not sent:
            message.received.append(one)
        else:
            (message.sent if sample.taken == "issue" else message.at_wait).append(one)
    equal: Counter[Identifier] = Counter()
    found: list[MessageDifference] = []
    unclear = one_sided = 0
    for channel, messages in channels.items():
        one_sided += sum(not (one.sent and one.received) for one in messages.values())
        if (channel.group, channel.receiver) in from_any:  # it may have taken some of them
            unclear += sum(one.pair is not None for one in messages.values())
            continue
        result = _compare_channel(channel, messages)
        equal[channel.group] += result.equal
        unclear += result.unclear
        found += [result.first] if result.first is not None else []
    found.sort(key=lambda one: (one.sent.sample.step, one.sent.at_ns))
    return ComparedMessages(tuple(found), dict(+equal), unclear, one_sided)


class _Compared(NamedTuple):
    first: MessageDifference | None
    equal: int
    unclear: int


def _compare_channel(channel: Channel, messages: Mapping[int, _Message]) -> _Compared:
    pairs = [
        (number, *one.pair, one)
        for number, one in messages.items()
        if one.pair is not None and _read(one.pair[0]) == _read(one.pair[1])
    ]
    differing = [row for row in pairs if row[1].sample.checksum != row[2].sample.checksum]
    equal = len(pairs) - len(differing)
    # Equal bytes that no other message has show that both sides count alike.
    sums = Counter(one.sample.checksum for each in messages.values() for one in each.sent)
    counted_alike = any(
        sent.sample.checksum == received.sample.checksum and sums[sent.sample.checksum] == 1
        for _, sent, received, _ in pairs
    )
    proven = [
        row
        for row in differing
        if counted_alike or (row[3].changed and _is_at_wait(row[2], row[3]))
    ]
    if not proven:
        return _Compared(None, equal, len(differing))
    number, sent, received, message = min(proven, key=lambda row: row[1].at_ns)
    first = MessageDifference(
        channel, number, sent, received, message.changed, received.sample.taken != "wait",
        len(differing), len(pairs),
    )  # fmt: skip
    return _Compared(first, equal, 0)


def _is_at_wait(received: RankSample, message: _Message) -> bool:
    """Whether the receiver has what the sender's buffer had at its wait."""
    return message.at_wait[0].sample.checksum == received.sample.checksum


def _read(one: RankSample) -> tuple[object, ...]:
    return one.sample.dtype, one.sample.elements, one.sample.seen


class BadMessage(NamedTuple):
    """Where a NaN or Inf entered the messages of a group."""

    one: RankSample
    clean: tuple[int, ...]  # of a received one: its sender, if its own sample has none
    received: int  # messages that the rank had received before in that step, without any
    earliest: bool  # its rank had no earlier sample of a message


def first_bad_message(
    samples: Sequence[RankSample], is_left_out: Callable[[RankSample], bool]
) -> BadMessage | None:
    """Finds the rank that first sent a NaN or Inf without having received one in that step.

    Args:
        samples: the messages of one group.
        is_left_out: whether a loss scaler has skipped the step; such a one counts if it is the only
            one.
    """
    by_step: defaultdict[int, list[RankSample]] = defaultdict(list)
    for one in samples:
        if not (one.sample.role == "sent" and one.sample.taken != "issue"):
            by_step[one.sample.step].append(one)
    skipped = None
    for step in sorted(by_step):
        bad = _first_in_step(by_step[step], samples)
        if bad is not None and not is_left_out(bad.one):
            return bad
        skipped = skipped or bad
    return skipped


def _first_in_step(step: Sequence[RankSample], samples: Sequence[RankSample]) -> BadMessage | None:
    firsts: dict[int, RankSample] = {}
    for one in sorted(step, key=lambda one: one.at_ns):
        if one.sample.nans or one.sample.infinities:
            firsts.setdefault(one.rank, one)
    if not firsts:
        return None
    clean = {
        (one.group, peer_of(one), one.rank, one.sample.tag, one.sample.message)
        for one in step
        if one.sample.role == "sent" and not (one.sample.nans or one.sample.infinities)
        and not one.sample.error
    }  # fmt: skip

    def came_clean(one: RankSample) -> bool:
        key = one.group, one.rank, peer_of(one), one.sample.tag, one.sample.message
        return bool(one.sample.message) and key in clean

    origins = [
        one for one in firsts.values() if one.sample.role == "sent" or came_clean(one)
    ] or list(firsts.values())  # fmt: skip
    first = min(origins, key=lambda one: one.at_ns)
    before = [one for one in step if one.rank == first.rank and one.at_ns < first.at_ns]
    received = sum(one.sample.role == "received" and not one.sample.error for one in before)
    earlier = any(one.rank == first.rank and one.at_ns < first.at_ns for one in samples)
    sender = peer_of(first)
    return BadMessage(
        first,
        (sender,) if sender is not None and came_clean(first) and first.sample.role == "received"
        else (),
        received if first.sample.role == "sent" else 0,
        not earlier,
    )  # fmt: skip
