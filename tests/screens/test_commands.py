"""Typed commands: completion, what each leads to, and what is said of a line that is none."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.message import Message

from frtop_tui.job.naming import job_key
from frtop_tui.screens import messages
from frtop_tui.screens.command_line import CommandLine
from frtop_tui.screens.commands import COMMANDS, VIEWS
from frtop_tui.screens.completion import (
    Action,
    CommandError,
    CommandScope,
    complete,
    interpret,
)
from frtop_tui.screens.overview import Overview
from frtop_tui.screens.rank import RankScreen

from . import answer_scenes, scenes
from .driving import driven

SCOPE = CommandScope(scenes.hung(), set())


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("ran", "rank"),  # rank and ranks
        ("rank", "rank"),
        ("exp", "export "),
        ("qui", "quit"),
        ("export sp", "export speedscope"),
        ("group d", "group dp:0"),
        ("host node", "host node"),
        ("rank 6", "rank 6"),
        ("xyz", "xyz"),
    ],
)
def test_tab_completes_as_far_as_all_candidates_agree(line: str, text: str) -> None:
    assert complete(line, COMMANDS, SCOPE).text == text


def test_candidates_are_listed_and_bounded() -> None:
    assert complete("host ", COMMANDS, SCOPE).candidates == tuple(f"node{n}" for n in range(8))
    assert len(complete("rank ", COMMANDS, SCOPE).candidates) == 64
    assert complete("rank 6", COMMANDS, SCOPE).candidates == ("6", "60", "61", "62", "63")
    assert "did you mean stacks?" in complete("stakcs", COMMANDS, SCOPE).hint


@pytest.mark.parametrize(
    ("line", "kind", "fields"),
    [
        ("rank 37", messages.OpenRank, {"rank": 37}),
        ("group dp:0", messages.OpenGroup, {"keys": (scenes.DP_KEY,)}),
        ("lens lag", messages.LookThrough, {"lens": "lag"}),
        ("host node4", messages.OpenRanks, {"filter_text": "host:node4"}),
        ("filter late !marked", messages.OpenRanks, {"filter_text": "late !marked"}),
    ],
)
def test_commands_become_messages(
    line: str, kind: type[Message], fields: dict[str, object]
) -> None:
    outcome = interpret(line, COMMANDS, SCOPE)
    assert type(outcome) is kind
    assert {name: getattr(outcome, name) for name in fields} == fields


def test_files_are_named_and_folders_are_checked(tmp_path: Path) -> None:
    outcome = interpret(f"export html {tmp_path}/job.html", COMMANDS, SCOPE)
    assert isinstance(outcome, messages.ExportJob)
    assert (outcome.path, outcome.name) == (tmp_path / "job.html", "html")
    outcome = interpret(f"capture {tmp_path}/now.cap", COMMANDS, SCOPE)
    assert isinstance(outcome, messages.CaptureJob)
    assert outcome.path == tmp_path / "now.cap"
    with pytest.raises(CommandError, match="is a folder"):
        interpret(f"capture {tmp_path}", COMMANDS, SCOPE)
    with pytest.raises(CommandError, match="there is no folder"):
        interpret(f"capture {tmp_path}/none/now.cap", COMMANDS, SCOPE)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("rnaks", "no command rnaks; did you mean ranks?"),
        ("h", "h is the beginning of hosts, host, help"),
        ("rank", "this needs an argument: rank N"),
        ("rank 64", "64 is not a rank; the job has 0 to 63"),
        ("rank -1", "-1 is not a rank"),
        ("ranks 7", "ranks takes nothing after it"),
        ("group dq:0", "no group dq:0; did you mean dp:0?"),
        ("host node44", "no host node44; did you mean node4?"),
        ("filter lat", "did you mean `late`?"),
        ("export htm", "no format htm; did you mean html?"),
        ("job nobody", "no other job nobody"),
        ("job llama-70b", "llama-70b is the job on the screen"),
    ],
)
def test_an_invalid_line_names_the_nearest_valid_one(line: str, says: str) -> None:
    with pytest.raises(CommandError) as caught:
        interpret(line, COMMANDS, SCOPE)
    assert says in str(caught.value)


def test_names_and_the_beginnings_of_names_are_commands() -> None:
    assert interpret("q", COMMANDS, SCOPE) == Action("back_or_quit")
    assert interpret("rank  3 ", COMMANDS, SCOPE).rank == 3  # type: ignore[union-attr]
    assert len({command.name for command in COMMANDS}) == len(COMMANDS)
    keys = [view.key for view in VIEWS if view.key]
    assert len(set(keys)) == len(keys)


async def test_tab_goes_through_the_candidates_and_up_through_former_commands() -> None:
    async with driven(scenes.hung()) as app:
        await app.press("colon", *"host n", "tab", "tab", "tab")
        await app.sees("host node1")
        await app.press("enter")
        await app.sees("filter host:node1")
        await app.press("colon", *"ranks", "enter", "colon", "up", "up")
        await app.sees(" host node1 ")
        await app.press("down", "enter")
        await app.sees("ranks 64 ")


async def test_a_wrong_line_stays_to_be_mended_and_a_right_one_goes() -> None:
    async with driven(scenes.hung()) as app:
        await app.press("colon", *"rank 99", "enter")
        await app.sees("99 is not a rank; the job has 0 to 63")
        await app.press("backspace", "enter")
        assert isinstance(app.screen, RankScreen)
        assert app.screen.rank == 9
        await app.press("colon", "escape")
        assert isinstance(app.screen, RankScreen)
        assert not app.screen.query(CommandLine)
        await app.press("colon", *"job", "enter")
        assert isinstance(app.screen, Overview)
        assert not app.screen.query(CommandLine)


async def test_what_is_unavailable_says_why() -> None:
    async with driven(answer_scenes.recorded()) as app:
        await app.press("colon", *"capture", "enter")
        await app.sees("This is already a capture")
        await app.press("escape", "colon", *"job x", "enter")
        await app.sees("A capture holds one job")


async def test_quit_and_files_by_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with driven(scenes.hung(), size=(160, 30)) as app:
        await app.press("colon", *"capture x.cap", "enter")
        path, automatic = app.source.captured[-1]
        assert (path.resolve(), automatic) == (tmp_path / "x.cap", False)
        await app.press("colon", *"export csv x.csv", "enter")
        ((path, name, _),) = app.source.exported
        assert (path.resolve(), name) == (tmp_path / "x.csv", "csv")
        assert isinstance(app.screen, Overview)
        await app.press("colon", "q", "enter")
    assert app.app.return_code == 0


async def test_a_job_can_be_chosen_by_name() -> None:
    async with driven(answer_scenes.jobs()) as app:
        await app.press("2", "colon", *"job llama 1", "tab", "enter")
        assert app.source.chosen == [job_key(answer_scenes.jobs().other_jobs[1])]
        assert isinstance(app.screen, Overview)
