"""Eight hosts whose agents listen on ports, and an operator who reaches none but the first one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hosts import shells
from hosts.cluster import ALL, CULPRIT, NODES, OPERATOR, Cluster, Watcher
from hosts.network import obstacle
from hosts.shells import Shells

pytestmark = pytest.mark.long
WAY = NODES[0]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if why := obstacle() or shells.obstacle():
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("through")
    cluster = Cluster(folder)
    try:
        reached = Shells(folder)
        hosts = cluster.network.hosts
        reached.serve(hosts[WAY], "AllowTcpForwarding no\nAllowStreamLocalForwarding no")
        reached.write_config(WAY)
        for node in NODES[1:]:
            hosts[OPERATOR].run("ip", "route", "add", "unreachable", hosts[node].address)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("FRTOP_SSH", f"ssh -F {reached.config}")
            cluster.start()
            yield cluster
    finally:
        cluster.close()


@pytest.fixture(scope="module")
def watcher(cluster: Cluster) -> Watcher:
    return cluster.watch("--through", WAY, ALL)


def heard(watcher: Watcher) -> int:
    count: int = watcher.frame()["coverage"]["heard"]
    return count


def is_found(document: dict[str, Any]) -> bool:
    verdicts = document["verdicts"]
    return [(v["kind"], v["culprits"]) for v in verdicts] == [("not_entered", [CULPRIT])]


def test_the_agents_are_out_of_reach_without_it(cluster: Cluster) -> None:
    said = cluster.frtop("diagnose", "--connect", NODES[1])
    assert said.status == 1
    assert "nobody answers on node1" in said.errors


def test_one_connection_carries_all_agents(cluster: Cluster, watcher: Watcher) -> None:
    cluster.wait_for(lambda: heard(watcher) == 8, "all are heard", 80)
    operator = cluster.network.hosts[OPERATOR]
    connections = operator.run("ss", "-Htn", "state", "established").splitlines()
    assert len(connections) == 1, connections
    assert connections[0].rstrip().endswith(":22")

    def are_sure() -> bool:
        hosts = watcher.frame()["hosts"]
        return all(0 < hosts[node]["clock_error_ns"] < 20_000_000 for node in NODES)

    cluster.wait_for(are_sure, "clocks are compared", 20)
    assert [watcher.frame()["ranks"][str(n)]["host"] for n in range(8)] == list(NODES)


def test_a_hang_is_found_and_captured(cluster: Cluster, tmp_path: Path) -> None:
    cluster.hang()
    said = cluster.frtop("diagnose", "--json", "--connect", ALL, "--through", WAY)
    assert said.status == 3, said
    assert is_found(said.document), said
    assert said.document["verdicts"][0]["victims"] == "0-4,6-7"
    file = tmp_path / "hang.cap"
    captured = cluster.frtop("capture", "-o", str(file), "--connect", ALL, "--through", WAY)
    assert captured.status in (0, 3), captured
    opened = cluster.elsewhere("diagnose", "--json", str(file))
    assert is_found(opened.document)
    print(f"diagnosed after {said.seconds:.1f} s, captured after {captured.seconds:.1f} s")


def test_hosts_that_cannot_be_reached_from_there_say_why(cluster: Cluster) -> None:
    cluster.hang()
    said = cluster.frtop("diagnose", "--connect", ALL, "nosuchhost", "node1:9", "--through", WAY)
    assert said.status == 3, said
    assert "host name 'nosuchhost' does not resolve on node0" in said.output
    assert "nobody listens on node1, ports 9 and 10, says node0" in said.output


def test_only_a_host_on_the_way_that_fails_is_an_error(cluster: Cluster) -> None:
    said = cluster.frtop("diagnose", "--connect", ALL, "--through", "locked")
    assert said.status == 1
    assert "on the way to node0: locked asks for a password or a code" in said.errors


def test_the_host_on_the_way_is_cut_off_and_comes_back(cluster: Cluster, watcher: Watcher) -> None:
    cluster.wait_for(lambda: heard(watcher) == 8, "all are heard", 80)

    def problems() -> set[str]:
        hosts = watcher.frame()["hosts"]
        return {hosts[node]["problem"].partition(": ")[0] for node in NODES}

    with cluster.network.cut(WAY):
        cluster.wait_for(
            lambda: problems() == {f"on the way to {node}" for node in NODES}, "all are missed", 60
        )
    back = cluster.wait_for(lambda: heard(watcher) == 8, "all are heard again", 90)
    print(f"heard again after {back:.1f} s")


def test_nothing_is_left_of_an_operator_who_was_killed(cluster: Cluster) -> None:
    hosts = cluster.network.hosts

    def processes() -> dict[str, set[int]]:
        return {name: set(hosts[name].processes()) for name in (WAY, OPERATOR)}

    before = processes()
    killed = cluster.watch("--through", WAY, ALL)
    cluster.wait_for(lambda: heard(killed) == 8, "all are heard", 80)
    assert all(processes()[name] - before[name] for name in before)
    killed.kill()

    def is_as_before() -> bool:  # or less: what the cut has left there ends by itself
        return all(pids <= before[name] for name, pids in processes().items())

    seconds = cluster.wait_for(is_as_before, "all is as it was", 20)
    print(f"nothing left {seconds:.1f} s after SIGKILL")
