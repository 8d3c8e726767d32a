"""Tensors, asked for through real agents."""

from __future__ import annotations

from pathlib import Path

from connect.conftest import frame_with
from connect.test_many_agents import Pair, pair, source
from frtop_probe.features.tensors.messages import SummarizeTensors
from frtop_tui.connect.live import LiveSource

__all__ = ["pair", "source"]


def test_a_rank_without_a_responder_says_so(source: LiveSource) -> None:
    frame_with(source, lambda f: len(f.ranks) == 2)
    source.do(SummarizeTensors(), [1])
    frame = frame_with(source, lambda f: f.ranks[1].tensors)
    response = frame.ranks[1].tensors
    assert response is not None
    assert response.error
    assert response.help


def test_a_read_only_source_asks_no_rank(pair: Pair, tmp_path: Path) -> None:
    source = LiveSource(pair.names, read_only=True)
    try:
        frame = frame_with(source, lambda f: len(f.ranks) == 2)
        assert frame.read_only == "started with --read-only"
        source.do(SummarizeTensors(), [0])
        frame = frame_with(source, lambda f: f.ranks[0].tensors)
        response = frame.ranks[0].tensors
        assert response is not None
        assert response.error == "permission"
        # The agents know, and would refuse requests.
        frame_with(source, lambda f: not any(host.may_act for host in f.hosts))
    finally:
        source.close()
