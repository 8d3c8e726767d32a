"""Which lines stand beside a verdict, who is asked for them, and what files keep of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from connect.fakes import FakeConnections
from frtop_probe import wire
from frtop_probe.features.output.messages import ReadOutput
from frtop_tui.connect.request_tracker import RequestTracker
from frtop_tui.diagnosis.model import Frame
from frtop_tui.features.output.follow import AGAIN_NS, OutputOfCulprits
from frtop_tui.features.output.telling import MOST_LINES, lines_of, ranks_to_read, telling_lines
from frtop_tui.files import capture
from screens import scenes
from screens.driving import driven

TORN = """\
step 41 loss 0.3
[rank37]: Traceback (most recent call last):
[rank37]:   File "/srv/train.py", line 214, in main
[rank37]:     batch = next(batches)
[rank37]: KeyError: 'secret-[bold]weight[/bold]'
node4:9:10 [0] misc/socket.cc:50 NCCL WARN socketProgress: lost
"""


def with_output(frame: Frame, texts: dict[int, str], path: str = "/srv/job-{}.out") -> Frame:
    """The frame with the output of these ranks, each in its own file unless `path` is one."""
    ranks = {**frame.ranks}
    for rank, text in texts.items():
        view = ranks[rank]
        name = path.format(rank)
        file = wire.OutputFile(name, ("stdout", "stderr"), len(text), text, 12.0)
        answer = wire.OutputResponse(1, view.host, view.key, frame.now_ns, (file,))
        ranks[rank] = replace(view, output=answer)
    return replace(frame, ranks=ranks)


def test_what_a_rank_said_comes_first_then_remarks_and_the_end_of_the_file() -> None:
    lines = telling_lines(with_output(scenes.hung(), {37: TORN}))
    assert lines == [
        "job-37.out: [rank37]: KeyError: 'secret-[bold]weight[/bold]'",
        "job-37.out: node4:9:10 [0] misc/socket.cc:50 NCCL WARN socketProgress: lost",
        "job-37.out: quiet for 12s when read",
    ]


@pytest.mark.parametrize(("text", "ends"), [
    ("", []),
    ("\n\n \n", []),
    ("step 1\nstep 2\n", ["step 2"]),
    ("10%\r20%\r30%", ["30%"]),
    ("a \x1b[31mred\x1b[0m line\n", ["a red line"]),
    ("\x07\x1b]0;title\x07 [rank99]:\n", ["��]0;title� [rank99]:"]),
])  # fmt: skip
def test_the_last_line_is_what_a_terminal_shows(text: str, ends: list[str]) -> None:
    lines = telling_lines(with_output(scenes.hung(), {37: text}))
    said = [line.partition(" when read")[2].removeprefix(": ") for line in lines]
    assert [one for one in said if one] == ends


def test_many_lines_of_one_kind_are_few_beside_a_verdict() -> None:
    frame = with_output(scenes.hung(), {37: TORN * 50, 0: TORN * 50})
    assert len(telling_lines(frame)) <= MOST_LINES + 2


def test_what_the_watcher_writes_there_is_not_quoted_in_turn() -> None:
    line = json.dumps({"at": "2026-11-29T17:43:14.784+00:00", "event": "confirmed", "beside": TORN})
    (last,) = telling_lines(with_output(scenes.hung(), {37: f"step 41\n{line}\n"}))
    assert last.endswith(": step 41")


def test_one_file_of_several_ranks_is_quoted_once() -> None:
    frame = with_output(scenes.hung(), {37: TORN, 0: TORN}, "/srv/job.out")
    assert len(telling_lines(frame)) == 3


def test_lines_are_numbered_as_the_reader_of_logs_does() -> None:
    assert lines_of("a\r\nb\n\nc")[3] == "c"


def test_a_job_that_is_healthy_or_only_slow_is_not_asked() -> None:
    slow = replace(scenes.hung().verdicts[0], kind="slow")
    assert ranks_to_read(scenes.healthy()) == ()
    assert ranks_to_read(replace(scenes.hung(), verdicts=(slow,))) == ()
    assert telling_lines(scenes.healthy()) == []


class Asked:
    """A follower, and the ranks that it asked since the last call."""

    def __init__(self) -> None:
        self.connections = FakeConnections()
        self.follower = OutputOfCulprits(RequestTracker(self.connections.send))

    def __call__(self, frame: Frame, now: int) -> list[int]:
        self.follower.update(frame, now)
        sent, self.connections.sent = self.connections.sent, []
        by_key = {(view.host, view.key): view.rank for view in frame.ranks.values()}
        requests = ((host, one) for host, one in sent if isinstance(one, ReadOutput))
        return [by_key[host, one.key] for host, one in requests]


def test_culprits_are_asked_again_after_a_while_and_when_they_end() -> None:
    asked, frame = Asked(), scenes.hung()
    assert asked(scenes.healthy(), 1) == []
    assert asked(frame, 1) == [37, 0]
    assert asked(frame, 2) == []
    ended = replace(frame.ranks[37], exit_info=wire.ExitInfo(1, exit_code=1))
    over = replace(frame, ranks={**frame.ranks, 37: ended})
    assert asked(over, 3) == [37]
    assert asked(over, 4) == []
    assert asked(over, 4 + AGAIN_NS)[:1] == [37]


def test_nobody_asks_who_may_only_read() -> None:
    frame = replace(scenes.hung(), read_only="started with --read-only")
    assert Asked()(frame, 1) == []
    assert not OutputOfCulprits.lacks(frame)


def test_a_frame_lacks_output_until_it_has_come() -> None:
    frame = scenes.hung()
    assert OutputOfCulprits.lacks(frame)
    assert not OutputOfCulprits.lacks(with_output(frame, {37: TORN, 0: ""}))
    assert not OutputOfCulprits.lacks(scenes.healthy())


@pytest.mark.parametrize("redact", [False, True])
def test_a_capture_has_the_output_and_a_redacted_one_has_none(tmp_path: Path, redact: bool) -> None:
    frame = with_output(scenes.hung(), {37: TORN}, "/home/alice/job-{}.out")
    path = tmp_path / "job.cap"
    capture.write(path, frame, {}, (), over=False, redact=redact)
    found = capture.read(path).ranks[37].output
    assert found is not None
    (file,) = found.files
    assert file.text == ("" if redact else TORN)
    assert file.size == len(TORN)
    assert ("alice" in file.path) != redact
    assert bool(OutputOfCulprits.of_file(capture.read(path))) != redact


async def test_the_screen_shows_the_end_and_the_verdict_its_most_telling_line() -> None:
    frame = with_output(scenes.hung(), {37: "step\n" * 100 + TORN})
    async with driven(frame, size=(120, 40)) as app:
        app.source.given["output"] = tuple(telling_lines(frame))
        app.app.tick()
        await app.sees("job-37.out: [rank37]: KeyError: 'secret-[bold]weight[/bold]'", ":output")
        await app.press("O")
        await app.sees("output of rank 37", "socketProgress: lost", "[bold]weight")
        assert "/srv/job-37.out" not in app.text()  # above: the end is shown
        await app.press("g")
        await app.sees("stdout, stderr · 763 B", "last written 12s ago")
        await app.press("n")
        await app.sees("output of rank 38", "reading")


async def test_why_there_is_no_output_is_said() -> None:
    frame = scenes.hung()
    view = frame.ranks[37]
    pipe = wire.OutputFile("pipe:[4711]", ("stdout",), error="not a file", help="a pipe: no")
    answers = {
        37: wire.OutputResponse(1, view.host, view.key, 1, (pipe,)),
        38: wire.OutputResponse(1, view.host, 39, 1, error="off", help="FRTOP_OUTPUT=0: not read"),
    }
    ranks = {n: replace(frame.ranks[n], output=one) for n, one in answers.items()}
    async with driven(replace(frame, ranks={**frame.ranks, **ranks}), size=(80, 24)) as app:
        await app.press(*":output", "enter")
        await app.sees("pipe:[4711]", "stdout, a pipe: no")
        await app.press("n")
        await app.sees("FRTOP_OUTPUT=0: not read")
