"""Messages between agents and operators, and what operators make of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import msgspec

from connect.fakes import rank_view
from diagnosis.scenes import Scene
from frtop_probe import wire
from frtop_probe.agent import rank_client
from frtop_probe.agent.rank_client import NoReplyError
from frtop_probe.statistics.rank_summary import Window
from frtop_probe.statistics.steps import StepEnd
from frtop_tui.diagnosis.engine import Engine
from frtop_tui.statistics.answers import answers_of
from frtop_tui.statistics.merger import StatisticsMerger
from fuzz.mutations import Mutator, as_json, as_msgpack
from fuzz.shown import SCENES, show
from fuzz.target import Take, refused, target
from job_statistics import ranks
from job_statistics.ranks import MS, S, group, op
from pipe.twin import twin
from wire.messages import MESSAGES

DECODERS: Final = ("decode_update", "decode_request", "decode_response", "decode_box")


@target(
    "messages of every kind; each is decoded as each", as_msgpack,
    lambda _: [wire.encode(one) for _, one in MESSAGES.values()], most=20_000,
)  # fmt: skip
def messages(_: Path, __: ExitStack) -> Take:
    def take(data: bytes) -> bool:
        taken = 0
        for name in DECODERS:
            try:
                found = getattr(wire, name)(data)
            except wire.WireError as error:
                refused(error)
                continue
            taken += 1
            again = wire.encode(found)
            assert repr(getattr(wire, name)(again)) == repr(found)  # NaN is not equal to NaN
        return taken > 0

    return take


@target(
    "the same messages, by the decoder of an agent at the end of a pipe", as_msgpack,
    lambda _: [wire.encode(one) for _, one in MESSAGES.values()], most=20_000, quick=150,
)  # fmt: skip
def messages_of_pipes(_: Path, __: ExitStack) -> Take:
    other = twin("frtop_probe.wire")

    def outcome(module: Any, name: str, data: bytes) -> str | None:
        try:
            return repr(getattr(module, name)(data))
        except module.WireError:
            return None

    def take(data: bytes) -> bool:
        taken = 0
        for name in DECODERS:
            found = outcome(wire, name, data)
            assert outcome(other, name, data) == found, "the stand-in for msgspec differs"
            taken += found is not None
        return taken > 0

    return take


def _statistics(_: Path) -> Iterable[bytes]:
    window = Window(0, 10 * S, samples=8, steps=8)
    ops = [op(n, n * 9 * MS, n % 40 * MS, of=1 + n % 2, late=n % 7 == 0) for n in range(1, 90)]
    told = ranks.answer(1, ops, window, steps=[StepEnd(n, n * S) for n in range(9)])
    yield wire.encode(
        wire.StatisticsResponse(1, "node0", 0, 10 * S, (told.statistics,), told.sites)
    )


@target(
    "statistics of ranks, up to the rows of a job", as_msgpack, _statistics, most=20_000,
    quick=100,
)  # fmt: skip
def statistics(_: Path, __: ExitStack) -> Take:
    """The host of a rank that others share their rows with lies, in the first or second slice."""
    views = {n: rank_view(n - 1, "node0", groups={1: group(), 2: group(2)}) for n in (1, 2)}
    (good,) = (wire.decode_response(one) for one in [*_statistics(Path())][:1])
    assert isinstance(good, wire.StatisticsResponse)

    def take(data: bytes) -> bool:
        try:
            found = wire.decode_response(data)
        except wire.WireError as error:
            return refused(error)
        if not isinstance(found, wire.StatisticsResponse):
            return False
        merger = StatisticsMerger()
        for number in range(2):
            merger.begin(number, number * 10 * S, (number + 1) * 10 * S)
            for response in (found, good) if number else (good, found):
                for _, one in answers_of(views, response):
                    merger.add(number, one._replace(rank=int(response is good)))
        built = merger.build({"node0": 0}, (0, 1, 2))
        assert built is not None
        assert all(row.count > 0 for row in built.calls)
        msgspec.msgpack.encode(built)  # in a capture
        return True

    return take


class Recording(msgspec.Struct, array_like=True):
    """What the second host of a scene sends in four ticks, as plain values."""

    scene: int
    updates: list[Any] = []
    looks: list[Any] = []


def _plain(message: Any) -> Any:
    return msgspec.msgpack.decode(wire.encode(message))


class Operator:
    """Follows a scene for some ticks; the second host says what a recording says."""

    def __init__(self, scene: Scene, said: Recording, *, recording: bool) -> None:
        self.scene, self.said, self.recording = scene, said, recording
        self.engine = Engine(explain=True)
        self.heard = self.looked = self.taken = 0
        self.reported = scene.state.apply
        scene.state.apply = self.hear  # type: ignore[method-assign]

    def hear(self, host: str, update: wire.Update, now_ns: int) -> bool:
        if host == "node1":
            if self.recording:
                self.said.updates.append(_plain(update))
            try:
                update = wire.decode_update(msgspec.msgpack.encode(self.said.updates[self.heard]))
                self.taken += 1
            except (wire.WireError, IndexError, ValueError, OverflowError):
                return True  # is left out
            finally:
                self.heard += 1
        self.reported(host, update, now_ns)
        return True

    def follow(self, path: Path) -> None:
        for _ in range(4):
            self.scene.hear()
            judgement = self.engine.judge(self.scene.frame())
            for wanted in judgement.look_requests:
                actor = self.scene.actors.get(wanted.key - 1)
                if actor is None:
                    continue
                look = self.scene.look_of(actor, wanted.pids[:4], stacks=wanted.stacks)
                answer = wire.SnapshotResponse(1, wanted.host, (look,))
                if wanted.host == "node1":
                    found = self._answer(answer)
                    if found is None:
                        continue
                    answer = found
                self.scene.state.apply_snapshots(wanted.host, answer)
            self.scene.pass_time(2.0)
        show(judgement.frame, path)

    def _answer(self, answer: wire.SnapshotResponse) -> wire.SnapshotResponse | None:
        if self.recording:
            self.said.looks.append(_plain(answer))
        try:
            found = wire.decode_response(msgspec.msgpack.encode(self.said.looks[self.looked]))
        except (wire.WireError, IndexError, ValueError, OverflowError):
            return None
        finally:
            self.looked += 1
        return found if isinstance(found, wire.SnapshotResponse) else None


def _recordings(folder: Path) -> Iterable[bytes]:
    for number, make in enumerate(SCENES):
        said = Recording(number)
        Operator(make(), said, recording=True).follow(folder / "fuzz.frtop")
        yield msgspec.msgpack.encode(said)


def _as_recording(data: bytes, mutator: Mutator) -> bytes:
    """Some values changed in any of the messages."""
    try:
        said = msgspec.msgpack.decode(data, type=Recording)
    except msgspec.DecodeError:
        return mutator.any_bytes(data)
    for _ in range(mutator.random.choice((1, 1, 2, 3, 8))):
        part = mutator.random.choice((said.updates, said.updates, said.looks))
        if part:
            at = mutator.random.randrange(len(part))
            part[at] = mutator.value(part[at])
    return msgspec.msgpack.encode(said)


@target(
    "updates and looks of a host that lies, up to the verdict", _as_recording, _recordings,
    most=100_000, quick=100,
)  # fmt: skip
def updates(folder: Path, _: ExitStack) -> Take:
    def take(data: bytes) -> bool:
        try:
            said = msgspec.msgpack.decode(data, type=Recording)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return False
        scene = SCENES[said.scene % len(SCENES)]()
        operator = Operator(scene, said, recording=False)
        operator.follow(folder / "fuzz.frtop")
        return operator.taken > 0

    return take


class Named:
    """Of a rank, what an error about its reply needs."""

    pid = 7


def _replies(_folder: Path) -> Iterable[bytes]:
    for _, message in MESSAGES.values():
        if isinstance(message, wire.Response):
            yield json.dumps(_by_name(message)).encode()


def _by_name(value: Any) -> Any:
    if hasattr(value, "__struct_fields__"):
        return {name: _by_name(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, dict):
        return {key: _by_name(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_by_name(one) for one in value]
    return value.decode("latin-1") if isinstance(value, bytes) else value


@target("replies of ranks to an agent", as_json, _replies, most=80_000)
def replies(_: Path, __: ExitStack) -> Take:
    """Each is taken as the reply to each request that a rank answers, after its JSON."""
    asked = [one for one in wire.declared() if getattr(one, "in_rank", False)]
    answers = list(dict.fromkeys(one.answer for one in asked))
    rank: Any = Named()

    def take(data: bytes) -> bool:
        try:
            reply = json.loads(data)
        except (ValueError, RecursionError, OverflowError):
            return False
        if not isinstance(reply, dict):
            return False
        taken = 0
        for answer in answers:
            given = {"id": 1, "host": "h", "key": 2, "at_ns": 3, "data": b"", "size": 0}
            try:
                found = rank_client._checked(answer, {**reply, **given}, rank)
            except NoReplyError as error:
                refused(error)
                continue
            assert wire.encode(found)
            taken += 1
        return taken > 0

    return take
