"""Four hosts, one job, one operator. One job serves all tests here, in this order."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from hosts.cluster import ALL, CULPRIT, NODES, Cluster, Said, Watcher
from hosts.network import CLOCKS


def is_found(document: dict[str, Any]) -> bool:
    """Whether the only verdict is right and confirmed."""
    verdicts = document["verdicts"]
    return (
        len(verdicts) == 1
        and verdicts[0]["kind"] == "not_entered"
        and verdicts[0]["culprits"] == [CULPRIT]
        and verdicts[0]["confidence"] == "confirmed"
    )


def diagnosed(cluster: Cluster, *arguments: str) -> Said:
    said = cluster.frtop("diagnose", "--json", "--connect", ALL, *arguments)
    print(f"frtop diagnose {' '.join(arguments)}: {said.seconds:.1f} s")
    return said


@pytest.fixture(scope="module")
def watcher(cluster: Cluster) -> Watcher:
    """An operator who watches from the first test to the last."""
    return cluster.watch(ALL)


@pytest.fixture(scope="module")
def hung(cluster: Cluster) -> int:
    """The culprit hangs; the value is since when on our monotonic clock."""
    return cluster.hang()


def test_a_healthy_job_is_seen_completely(cluster: Cluster, watcher: Watcher) -> None:
    said = diagnosed(cluster)
    assert said.status == 0, said
    assert said.document["coverage"]["reporting"] == 4
    assert watcher.frame()["coverage"]["reporting"] == 4
    assert [said.document["ranks"][str(n)]["host"] for n in range(4)] == list(NODES)


def test_a_host_that_vanishes_from_a_running_job_is_not_blamed(
    cluster: Cluster, watcher: Watcher
) -> None:
    def is_undecided() -> bool:
        verdicts = watcher.frame()["verdicts"]
        sure = [one for one in verdicts if one["confidence"] == "confirmed"]
        assert not any(one["culprits"] for one in sure), sure
        return [one["kind"] for one in verdicts] == ["undecided"]

    with cluster.network.cut("node3"):
        seconds = cluster.wait_for(is_undecided, "an undecided verdict", 60)
        assert "rank 3" in watcher.frame()["verdicts"][0]["headline"]

    def is_back() -> bool:
        # The job may go on before the agent there is reporting again.
        seen = watcher.frame()
        return bool(seen["health"] == "healthy" and seen["coverage"]["reporting"] == 4)

    back = cluster.wait_for(is_back, "it goes on, and all are reporting", 30)
    print(f"undecided after {seconds:.1f} s; healthy {back:.1f} s after the cable was back")


def test_the_hang_is_found_on_its_host(cluster: Cluster, watcher: Watcher, hung: int) -> None:
    said = diagnosed(cluster)
    assert said.status == 3, said
    assert is_found(said.document)
    (verdict,) = said.document["verdicts"]
    assert "node2" in verdict["headline"]
    assert verdict["victims"] == "0-1,3"
    assert verdict["why"]["cause"] == "file_io"
    assert str(cluster.folder / "shard") in verdict["why"]["text"]


def test_ages_are_right_although_clocks_differ(
    cluster: Cluster, watcher: Watcher, hung: int
) -> None:
    if not CLOCKS:
        pytest.skip("this kernel has no time namespaces")
    cluster.wait_for(lambda: is_found(watcher.frame()), "the verdict", 60)
    seen = watcher.frame()
    age = (seen["now_ns"] - hung) / 1e9
    for rank in set(range(4)) - {CULPRIT}:
        wrong = seen["hosts"][NODES[rank]]["clock_error_ns"]
        assert wrong is not None
        assert wrong < 100_000_000
        assert seen["waits_s"][str(rank)] == pytest.approx(age, abs=1 + wrong / 1e9), (rank, seen)


@pytest.mark.long  # one that vanishes while the job runs is in every run
def test_a_host_is_cut_off_and_comes_back(cluster: Cluster, watcher: Watcher, hung: int) -> None:
    cluster.wait_for(lambda: is_found(watcher.frame()), "the verdict", 60)
    with cluster.network.cut("node3"):
        gone = cluster.wait_for(
            lambda: watcher.frame()["ranks"]["3"]["state"] == "unreachable", "node3 is missed", 60
        )
        seen = watcher.frame()
        assert is_found(seen), seen
        assert seen["coverage"]["unreachable"] == "3"
        said = cluster.frtop("diagnose", "--connect", ALL, "--wait", "60")
        assert said.status == 3, said
        assert "3 of 4 ranks reporting; not 3" in said.output
        assert "NOT ENTERED: rank 2 (node2 " in said.output
        notes = [line for line in said.output.splitlines() if line.startswith("note")]
        assert any("node3" in note for note in notes), said
        assert said.seconds < 40, "the verdict waited for a host that says nothing"
    back = cluster.wait_for(
        lambda: watcher.frame()["coverage"]["reporting"] == 4, "node3 is reporting again", 30
    )
    cluster.wait_for(lambda: is_found(watcher.frame()), "the verdict", 30)
    print(
        f"missed after {gone:.1f} s, diagnosed in {said.seconds:.1f} s,"
        f" reporting again after {back:.1f} s"
    )


def has_found(watcher: Watcher) -> bool:
    frame = watcher.frame()
    return frame["coverage"]["reporting"] == 4 and is_found(frame)


@pytest.mark.long
def test_a_slow_link_does_not_delay_other_hosts(cluster: Cluster, hung: int) -> None:
    with cluster.network.slow("node1", "16kbit"):
        said = diagnosed(cluster, "--wait", "60")
    assert said.status == 3, said
    assert is_found(said.document)
    assert said.seconds < 40


def test_the_screen_shows_the_hang(cluster: Cluster, hung: int) -> None:
    screen = cluster.screen()
    try:
        first = screen.shows("node3", 20)
        found = screen.shows("rank 2 (node2", 20)
    finally:
        status = screen.quit()
    assert status == 0
    print(f"the screen: all hosts after {first:.1f} s, the culprit after {found:.1f} s")


def test_the_first_death_is_named_although_clocks_differ(
    cluster: Cluster, watcher: Watcher, hung: int
) -> None:
    os.kill(watcher.frame()["ranks"]["1"]["pid"], signal.SIGKILL)

    def dead() -> set[str]:
        ranks = watcher.frame()["ranks"]
        return {rank for rank in ranks if ranks[rank]["state"] == "dead"}

    cluster.wait_for(lambda: {"1"} < dead(), "another dies of it", 60)
    blamed = [v["culprits"] for v in watcher.frame()["verdicts"] if v["kind"] == "dead"]
    assert blamed == [[1]], watcher.frame()["verdicts"]
