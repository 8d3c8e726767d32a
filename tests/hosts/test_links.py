"""Links that let nothing or little through: an op that does not complete, or takes longer."""

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
BITS = 8 * 4 * 25_000 * 1514 / 1448
"""What each rank of a pair sends in one op, half of it twice, with headers in every packet."""


@pytest.fixture
def managed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """Four hosts that frtop reaches by a network of their own."""
    if why := obstacle():
        pytest.skip(why)
    program = {"program": request.param} if hasattr(request, "param") else {}
    cluster = Cluster(tmp_path, managed=True, **program)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


@pytest.mark.long
def test_a_host_whose_interface_is_down_is_named(managed: Cluster) -> None:
    watcher = managed.watch("node[0-3]-m")
    managed.wait_for(lambda: watcher.frame()["coverage"]["reporting"] == 4, "all are reporting", 60)
    managed.past_start()
    verdicts: list[dict[str, Any]] = []

    def is_confirmed() -> bool:
        verdicts[:] = watcher.frame()["verdicts"]
        innocent = [v for v in verdicts if set(v["culprits"]) - {2}]
        assert not innocent
        return [v["confidence"] for v in verdicts if v["culprits"] == [2]] == ["confirmed"]

    with ExitStack() as cuts:
        # In the middle of an op only one link may be in use, and its bad end is unknown.
        with managed.between_steps():
            cuts.enter_context(managed.network.cut("node2"))
        seconds = managed.wait_for(is_confirmed, "that node2 cannot be reached", 30)
        (verdict,) = verdicts
        assert verdict["kind"] == "stuck"
        assert verdict["why"]["cause"] == "cut_off"
        assert verdict["why"]["layer"] == "network"
        assert "node2" in verdict["headline"]
        assert verdict["victims"] == "0-1,3"
        assert any("not acknowledged" in line for line in verdict["evidence"])
        assert watcher.frame()["coverage"]["reporting"] == 4
    managed.wait_for(lambda: watcher.frame()["health"] == "healthy", "it goes on", 60)
    print(f"found and confirmed {seconds:.1f} s after the cable was pulled")


@pytest.mark.long
def test_a_host_that_frtop_cannot_reach_either_is_named_and_not_blamed(
    managed: Cluster,
) -> None:
    watcher = managed.watch("node[0-3]-m")
    managed.wait_for(lambda: watcher.frame()["coverage"]["reporting"] == 4, "all are reporting", 60)
    managed.past_start()

    def is_reported() -> bool:
        verdicts = watcher.frame()["verdicts"]
        sure = [v for v in verdicts if v["confidence"] == "confirmed" and v["culprits"]]
        assert not sure
        texts = [" ".join((v["headline"], v["why"]["text"], *v["evidence"])) for v in verdicts]
        return len(texts) == 1 and "rank 2" in texts[0] and "10.77.0.12" in texts[0]

    with managed.network.cut("node2"), managed.network.cut("node2", cable=1):
        seconds = managed.wait_for(is_reported, "rank 2 and its unreachable address", 30)
        assert watcher.frame()["ranks"]["2"]["state"] == "unreachable"
        assert watcher.frame()["verdicts"][0]["kind"] == "undecided"
    print(f"found {seconds:.1f} s after both cables were pulled")


@pytest.mark.long
@pytest.mark.parametrize("managed", [PROGRAM], indirect=True)
def test_the_host_with_a_slow_link_is_named(managed: Cluster) -> None:
    watcher = managed.watch("node[0-3]-m")
    managed.wait_for(lambda: len(list(managed.folder.glob("trains.*"))) == 4, "all train", 60)
    verdicts: list[dict[str, Any]] = []

    def is_slow() -> bool:
        verdicts[:] = watcher.frame()["verdicts"]
        assert not [one for one in verdicts if set(one["culprits"]) - {1}], verdicts
        return [one["confidence"] for one in verdicts] == ["confirmed"]

    with ExitStack() as limits:
        limits.enter_context(managed.network.slow("node1", f"{MBIT}mbit"))
        seconds = managed.wait_for(is_slow, "that the link of node1 is slow", 60)
        (verdict,) = verdicts
        assert verdict["kind"] == "slow"
        assert (verdict["why"]["cause"], verdict["why"]["layer"]) == ("network", "network")
        assert verdict["culprits"] == [1]
        assert verdict["victims"] == "0,2-3"
        late_s = verdict["slow"]["late_s"]
        print(f"named after {seconds:.1f} s: {1e3 * late_s:.1f} ms longer; {verdict['headline']}")
        assert late_s == pytest.approx(BITS / MBIT / 1e6, rel=0.1)
        assert watcher.frame()["health"] == "slow"
    managed.wait_for(lambda: watcher.frame()["health"] == "healthy", "it is quick again", 90)
