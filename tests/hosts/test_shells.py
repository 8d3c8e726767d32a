"""Four hosts with sshd and nothing of ours; a job that nobody prepared; one operator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from hosts import shells
from hosts.cluster import ALL, CULPRIT, NODES, OPERATOR, Cluster, Said, Watcher
from hosts.network import obstacle
from hosts.shells import Shells

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if why := obstacle() or shells.obstacle():
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("shells")
    cluster = Cluster(folder, bare=True)
    try:
        reached = Shells(folder)
        for node in NODES:
            reached.serve(cluster.network.hosts[node])
        reached.write_config()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("FRTOP_SSH", f"ssh -F {reached.config}")
            cluster.start()
            yield cluster
    finally:
        cluster.close()


@pytest.fixture(scope="module")
def watcher(cluster: Cluster) -> Watcher:
    return cluster.watch("--ssh", ALL)


def diagnosed(cluster: Cluster, *arguments: str) -> Said:
    said = cluster.frtop("diagnose", "--json", *arguments)
    print(f"frtop diagnose {' '.join(arguments)}: {said.seconds:.1f} s")
    return said


def is_found(document: dict[str, Any]) -> bool:
    verdicts = document["verdicts"]
    return (
        len(verdicts) == 1
        and verdicts[0]["kind"] == "not_entered"
        and verdicts[0]["culprits"] == [CULPRIT]
    )


def test_a_hang_is_found_on_hosts_with_nothing_of_ours(cluster: Cluster) -> None:
    cluster.hang()
    said = diagnosed(cluster, "--ssh", ALL)
    assert said.status == 3, said
    assert is_found(said.document), said
    (verdict,) = said.document["verdicts"]
    assert f"{NODES[CULPRIT]} " in verdict["headline"]
    assert verdict["victims"] == "0-1,3"
    assert [said.document["ranks"][str(n)]["host"] for n in range(4)] == list(NODES)
    assert not cluster.key_file.exists(), "no key is needed, so none is made"


def test_one_connection_to_a_host_on_the_way_carries_all(cluster: Cluster) -> None:
    cluster.hang()
    said = diagnosed(cluster, "--ssh", ALL, "--through", "node0")
    assert said.status == 3, said
    assert is_found(said.document), said
    assert [said.document["ranks"][str(n)]["host"] for n in range(4)] == list(NODES)


def test_the_doctor_sees_all_hosts_at_once(cluster: Cluster) -> None:
    said = cluster.frtop("doctor", "--ssh", ALL, "nosuchhost")
    assert said.status == 1, said
    head, _, rest = said.output.partition("\n\n")
    assert head.startswith("node[0-3]: uid 0, Python 3."), said
    assert "beside 4 ranks of" in " ".join(head.split())
    assert "c10d state       ok " in rest
    assert "nosuchhost: not examined" in rest
    through = cluster.frtop("doctor", "--ssh", ALL, "--through", "node0")
    assert through.output.partition("\n\n")[0] == head
    print(f"frtop doctor on 4 hosts: {said.seconds:.1f} s, --through {through.seconds:.1f} s")


def test_nothing_is_left_of_an_operator_who_was_killed(cluster: Cluster) -> None:
    cluster.hang()
    hosts = cluster.network.hosts

    def processes() -> dict[str, set[int]]:
        return {name: set(hosts[name].processes()) for name in (*NODES, OPERATOR)}

    before = processes()
    killed = cluster.watch("--ssh", ALL)
    named = cluster.wait_for(lambda: is_found(killed.frame()), "the culprit is named", 30)
    cluster.wait_for(lambda: killed.frame()["coverage"]["reporting"] == 4, "all are reporting", 30)
    assert all(len(processes()[name]) > len(before[name]) for name in before)
    killed.kill()
    seconds = cluster.wait_for(lambda: processes() == before, "all is as it was", 60)
    print(f"named after {named:.1f} s; nothing left {seconds:.1f} s after SIGKILL")


def test_a_host_is_cut_off_and_comes_back(cluster: Cluster, watcher: Watcher) -> None:
    cluster.hang()
    cluster.wait_for(lambda: watcher.frame()["coverage"]["reporting"] == 4, "all are reporting", 30)
    with cluster.network.cut("node3"):
        gone = cluster.wait_for(
            lambda: watcher.frame()["ranks"]["3"]["state"] == "unreachable", "node3 is missed", 60
        )
        cluster.wait_for(
            lambda: watcher.frame()["hosts"]["node3"]["state"] == "failed", "its pipe is down", 30
        )
        assert is_found(watcher.frame())
    back = cluster.wait_for(
        lambda: watcher.frame()["coverage"]["reporting"] == 4, "node3 is reporting again", 40
    )
    print(f"missed after {gone:.1f} s, reporting again after {back:.1f} s")
