"""Eight hosts, one job, one operator. One job serves all tests here, in this order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from frtop_probe import keys
from hosts.cluster import ALL, CULPRIT, NODES, Cluster, Said, Watcher
from hosts.network import CLOCKS


def is_found(document: dict[str, Any]) -> bool:
    """Whether the one verdict is the truth, and sure."""
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
    """An operator who looks on from the first test to the last."""
    return cluster.watch(ALL)


@pytest.fixture(scope="module")
def hung(cluster: Cluster) -> int:
    """The culprit hangs; since when on our monotonic clock."""
    return cluster.hang()


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The key file of somebody else."""
    with monkeypatch.context() as patch:
        patch.setenv(keys.FILE_VARIABLE, str(tmp_path / "key"))
        return keys.load(create=True).path


def test_a_healthy_job_is_seen_whole(cluster: Cluster, watcher: Watcher) -> None:
    said = diagnosed(cluster)
    assert said.status == 0, said
    assert said.document["coverage"]["heard"] == 8
    assert watcher.look()["coverage"]["heard"] == 8
    assert [said.document["ranks"][str(n)]["host"] for n in range(8)] == list(NODES)


def test_the_hang_is_found_on_its_host(cluster: Cluster, watcher: Watcher, hung: int) -> None:
    said = diagnosed(cluster)
    assert said.status == 3, said
    assert is_found(said.document)
    (verdict,) = said.document["verdicts"]
    assert "node5" in verdict["headline"]
    assert verdict["victims"] == "0-4,6-7"
    assert verdict["why"]["cause"] == "file_io"
    assert str(cluster.folder / "shard") in verdict["why"]["text"]


def test_ages_are_right_though_no_two_clocks_agree(
    cluster: Cluster, watcher: Watcher, hung: int
) -> None:
    if not CLOCKS:
        pytest.skip("this kernel has no time namespaces")
    cluster.until(lambda: is_found(watcher.look()), 20, "the verdict")
    seen = watcher.look()
    for rank in set(range(8)) - {CULPRIT}:
        waits = seen["waits_s"][str(rank)]
        assert waits == pytest.approx((seen["now_ns"] - hung) / 1e9, abs=0.5), (rank, seen)


def test_a_host_is_cut_off_and_comes_back(cluster: Cluster, watcher: Watcher, hung: int) -> None:
    cluster.until(lambda: is_found(watcher.look()), 20, "the verdict")
    cluster.network.cut("node3")
    gone = cluster.until(
        lambda: watcher.look()["ranks"]["3"]["posture"] == "unheard", 10, "node3 is missed"
    )
    seen = watcher.look()
    assert is_found(seen), seen
    assert seen["coverage"]["unheard"] == "3"
    said = cluster.frtop("diagnose", "--connect", ALL)
    assert said.status == 3, said
    assert "7 of 8 ranks heard; not 3" in said.output
    assert "NOT ENTERED: rank 5 (node5 " in said.output
    assert "  node3" in said.output, "who is not heard is not said"
    assert said.seconds < 7, "the verdict waited for a host that says nothing"
    cluster.network.restore("node3")
    back = cluster.until(
        lambda: watcher.look()["coverage"]["heard"] == 8, 30, "node3 is heard again"
    )
    cluster.until(lambda: is_found(watcher.look()), 10, "the verdict")
    print(
        f"missed after {gone:.1f} s, told in {said.seconds:.1f} s, heard again after {back:.1f} s"
    )


def test_an_agent_that_was_killed_is_followed(
    cluster: Cluster, watcher: Watcher, hung: int
) -> None:
    cluster.until(lambda: watcher.look()["coverage"]["heard"] == 8, 20, "all are heard")
    before = watcher.look()
    killed = cluster.kill_agent("node2")
    cluster.until(lambda: watcher.look()["hosts"]["node2"]["state"] != "heard", 10, "missed")
    assert is_found(watcher.look())
    anew = cluster.until(
        lambda: cluster.agent("node2") not in (0, killed), 30, "the rank starts another"
    )
    back = cluster.until(
        lambda: watcher.look()["hosts"]["node2"]["state"] == "heard", 20, "it is heard"
    )
    after = watcher.look()
    assert after["ranks"]["2"]["pid"] == before["ranks"]["2"]["pid"]
    assert is_found(after)
    print(f"started anew after {anew:.1f} s, heard {back:.1f} s later")


def test_a_slow_link_keeps_nobody_waiting(cluster: Cluster, hung: int) -> None:
    cluster.network.slow("node6", "64kbit")
    try:
        said = diagnosed(cluster)
    finally:
        cluster.network.fast("node6")
    assert said.status == 3, said
    assert is_found(said.document)
    assert said.seconds < 15


def test_a_stranger_is_told_so(cluster: Cluster, stranger: Path, hung: int) -> None:
    said = cluster.frtop("diagnose", "--connect", ALL, key=stranger)
    print(f"refused after {said.seconds:.1f} s: {said.errors}")
    assert said.status == 1, said
    assert "key" in said.errors
    assert "authorized_keys" in said.errors or "FRTOP_KEY_FILE" in said.errors
    assert "Traceback" not in said.errors
