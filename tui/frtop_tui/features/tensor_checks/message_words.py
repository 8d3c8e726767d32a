"""What samples say of messages: which arrived as they were sent, and which did not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from frtop_probe import wire
from frtop_tui.features.tensor_checks.comparison import Findings
from frtop_tui.features.tensor_checks.samples import GroupNames
from frtop_tui.features.tensor_checks.sent_and_received import MessageDifference
from frtop_tui.job.units import counted
from frtop_tui.text.lines import WordLine

MOST_MESSAGES: Final = 4


def message_words(
    ones: Sequence[MessageDifference],
    names: GroupNames,
    site: Callable[[wire.Site | None], str],
) -> Iterator[WordLine]:
    """The first message of each channel that arrived with other bytes."""
    for one in ones[:MOST_MESSAGES]:
        yield from _message(one, names, site)
    if len(ones) > MOST_MESSAGES:
        yield WordLine("", f"and in {len(ones) - MOST_MESSAGES:,} more channels", "bad")


def arrived_words(found: Findings, names: GroupNames) -> Iterator[WordLine]:
    """What arrived as it was sent, and what was not compared."""
    for group, count in found.equal_messages.items():
        verb = "has" if count == 1 else "have"
        text = f"{counted(count, 'message')} {verb} arrived bit by bit as sent"
        yield WordLine(names.label(group), text, "good" if not found.messages else "dim")
    if found.unclear_messages:
        text = (
            f"{counted(found.unclear_messages, 'message')} differ from what was sent, but nothing"
            " shows that both sides count alike: nothing is concluded"
        )
        yield WordLine("", text, "dim")
    if found.one_sided:
        text = (
            f"{counted(found.one_sided, 'message')} sampled on one side only: each rank begins and"
            " ends on its own"
        )
        yield WordLine("", text, "dim")


def _message(
    one: MessageDifference, names: GroupNames, site: Callable[[wire.Site | None], str]
) -> Iterator[WordLine]:
    sent, received = one.sent, one.received
    group = names.label(one.channel.group)
    where = " ".join(filter(None, (f"step {sent.sample.step}", site(sent.site))))
    tag = f", tag {one.channel.tag}" if one.channel.tag else ""
    text = (
        f"rank {received.rank} received other bytes than rank {sent.rank} sent: message"
        f" #{one.message} {group}{tag}, {where}"
    )
    yield WordLine("differs", text, "bad")
    counts = f"{one.differing:,} of {one.compared:,} compared messages between them differ"
    arrived = f"received by {received.sample.kind} #{received.sample.number}"
    yield WordLine("", f"{' '.join(filter(None, (arrived, site(received.site))))}; {counts}", "dim")
    whose = f"rank {sent.rank}'s buffer"
    yield WordLine("", {
        True: f"{whose} changed after its isend and before its wait: the program wrote to it too"
        " early",
        False: f"{whose} was the same at its wait: the receiver's program, a network or a memory"
        " changed the bytes",
        None: f"{whose} may have changed before the send was over: no wait for it was sampled",
    }[one.changed], "warn")  # fmt: skip
    if one.received_late:
        text = "the receive was over before its wait: the receiver may have changed the bytes"
        yield WordLine("", text, "warn")
