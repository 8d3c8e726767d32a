"""Output, asked for through a real agent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.agent_host import Host
from connect.conftest import frame_with
from frtop_probe.features.output.messages import ReadOutput
from frtop_tui.connect.live import LiveSource

TO_FILE = ("sh", "-c", 'echo "Traceback of a [bold]job[/bold]" > "$0"; exec "$@" 2>> "$0"')


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    one = Host(tmp_path, monkeypatch)
    yield one
    one.close()


def test_a_rank_with_a_file_and_a_pipe_also_after_its_end(host: Host, tmp_path: Path) -> None:
    path = tmp_path / "rank.err"
    rank = host.rank("wait", within=(*TO_FILE, str(path)))
    source = LiveSource([f"127.0.0.1:{host.agent().pub}"])
    try:
        frame_with(source, lambda f: f.ranks)
        source.do(ReadOutput(), [0])
        answer = frame_with(source, lambda f: f.ranks[0].output).ranks[0].output
        assert answer is not None
        files = {one.streams[0]: one for one in answer.files}
        assert files["stderr"].path == str(path)
        assert files["stderr"].text == "Traceback of a [bold]job[/bold]\n"
        assert files["stdout"].error == "not a file"

        with path.open("a") as file:
            file.write("its last words\n")
        rank.kill()
        # Nobody asks: the end of a rank is a verdict, and its output belongs beside it.
        frame = frame_with(source, lambda f: f.verdicts and f.ranks[0].output not in (None, answer))
        last = frame.ranks[0].output
        assert last is not None
        assert [one.text.splitlines()[-1] for one in last.files if one.text] == ["its last words"]
        frame_with(source, lambda _: any(map(is_last, source.news()["output"])))
    finally:
        source.close()


def is_last(line: str) -> bool:
    return line.startswith("rank.err: quiet for ") and line.endswith(": its last words")


def test_who_may_only_read_gets_no_output(host: Host) -> None:
    host.rank("wait")
    source = LiveSource([f"127.0.0.1:{host.agent().pub}"], read_only=True)
    try:
        frame_with(source, lambda f: f.ranks)
        source.do(ReadOutput(), [0])
        answer = frame_with(source, lambda f: f.ranks[0].output).ranks[0].output
        assert answer is not None
        assert answer.error == "permission"
        assert not answer.files
    finally:
        source.close()
