"""The top lines of every screen."""

from __future__ import annotations

from msgspec.structs import replace

from frtop_tui.job.naming import folded_hosts
from frtop_tui.widgets import spans
from frtop_tui.widgets.headline import health_line

from . import scenes
from .scenes import S


def test_hosts_are_folded() -> None:
    assert folded_hosts(("node0", "node1", "node2")) == "node[0-2]"
    assert folded_hosts(()) == ""


def test_a_wait_ends_when_its_last_waiting_rank_has_died() -> None:
    frame = scenes.hung()
    later = replace(frame, now_ns=frame.now_ns + 3600 * S)
    gone = {
        rank: replace(view, state="dead", state_since_ns=frame.now_ns)
        for rank, view in frame.ranks.items()
    }
    over = replace(later, ranks=gone)
    assert "HUNG 4m12s" in spans.text_of(health_line(over))
    assert "HUNG 1h04m" in spans.text_of(health_line(later))
