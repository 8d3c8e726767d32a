"""How long a stream waits for its job: as long as it was told, whatever lasts."""

from __future__ import annotations

from typing import cast

import pytest

from frtop_tui.connect.live import LiveSource
from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import FrtopError
from frtop_tui.features.stream.command import _first
from frtop_tui.job.model import HostView, Problem
from screens.scenes import hung

OTHER_JOB = Problem("no job is called 'a': there is b", "--job b")
UNREACHABLE = Problem("node3 does not answer", "is it up")


class Times:
    """A source of frames, and the clock of who waits for them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *frames: tuple[float, Frame]) -> None:
        self._now = 0.0
        self._frames = frames
        monkeypatch.setattr("time.monotonic", lambda: self._now)
        monkeypatch.setattr("time.sleep", self._sleep)
        monkeypatch.setattr("frtop_tui.connect.agent_start.is_starting", lambda: False)

    def _sleep(self, seconds: float) -> None:
        self._now += seconds

    def frame(self) -> Frame:
        return [frame for since, frame in self._frames if since <= self._now][-1]


@pytest.mark.parametrize(
    "lacking",
    [
        Frame(0, 0, hosts=(HostView("a", "reporting"),), problem=OTHER_JOB),
        Frame(0, 0, hosts=(HostView("a", "failed", UNREACHABLE),), problem=UNREACHABLE),
        Frame(0, 0, problem=Problem("no agent of frtop runs on this host")),
    ],
)
def test_nothing_but_the_time_ends_the_waiting(
    monkeypatch: pytest.MonkeyPatch, lacking: Frame
) -> None:
    source = cast("LiveSource", Times(monkeypatch, (0.0, lacking), (50.0, hung())))
    assert _first(source, 60.0) is not lacking
    with pytest.raises(FrtopError) as raised:
        _first(cast("LiveSource", Times(monkeypatch, (0.0, lacking))), 60.0)
    assert lacking.problem is not None
    assert str(raised.value).startswith(lacking.problem.text)


def test_a_failure_of_our_own_ends_it_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = Frame(0, 0, problem=Problem("frtop itself failed", internal=True))
    source = Times(monkeypatch, (0.0, failed))
    with pytest.raises(FrtopError, match="itself failed"):
        _first(cast("LiveSource", source), 60.0)
