"""A host whose link lets little through is told from a rank that is late."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from hosts.cluster import Cluster
from hosts.network import obstacle

PROGRAM = Path(__file__).parents[1] / "jobs" / "over_links.py"
MBIT = 20
BITS = 8 * 4 * 25_000
"""What each rank of a pair sends in one op: half of it twice."""


@pytest.fixture
def links(tmp_path: Path) -> Iterator[Cluster]:
    """Four hosts that frtop reaches by a network of their own."""
    if why := obstacle():
        pytest.skip(why)
    cluster = Cluster(tmp_path, 4, managed=True, program=PROGRAM)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


@pytest.mark.long
def test_the_host_with_a_slow_link_is_named(links: Cluster) -> None:
    watcher = links.watch("node[0-3]-m")
    links.wait_for(lambda: len(list(links.folder.glob("trains.*"))) == 4, "all train", 60)
    verdicts: list[dict[str, Any]] = []

    def is_slow() -> bool:
        verdicts[:] = watcher.frame()["verdicts"]
        assert not [one for one in verdicts if set(one["culprits"]) - {1}], verdicts
        return bool(verdicts)

    with ExitStack() as limits:
        limits.enter_context(links.network.slow("node1", f"{MBIT}mbit"))
        seconds = links.wait_for(is_slow, "that the link of node1 is slow", 60)
        (verdict,) = verdicts
        assert (verdict["kind"], verdict["confidence"]) == ("slow", "confirmed")
        assert (verdict["why"]["cause"], verdict["why"]["layer"]) == ("network", "network")
        assert verdict["culprits"] == [1]
        assert verdict["victims"] == "0,2-3"
        late_s = verdict["slow"]["late_s"]
        print(f"named after {seconds:.1f} s: {1e3 * late_s:.1f} ms longer; {verdict['headline']}")
        assert late_s == pytest.approx(BITS / MBIT / 1e6, rel=0.1)
        assert watcher.frame()["health"] == "slow"
    links.wait_for(lambda: watcher.frame()["health"] == "healthy", "it is quick again", 90)
