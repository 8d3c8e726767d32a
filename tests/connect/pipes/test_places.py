"""What `--ssh` and `--via` may name, and what each of them leads to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from frtop_tui.connect.endpoints import expand
from frtop_tui.connect.pipes import LAUNCHERS
from frtop_tui.connect.pipes.kubernetes import Pods
from frtop_tui.connect.pipes.places import _PARSERS, places
from frtop_tui.connect.pipes.slurm import SlurmJob
from frtop_tui.errors import FrtopError, UsageError

PODS = """{"items": [
 {"metadata": {"name": "train-0", "namespace": "ml"},
  "status": {"phase": "Running", "containerStatuses": [
   {"name": "istio", "ready": true}, {"name": "main", "ready": true}]}},
 {"metadata": {"name": "train-1", "namespace": "ml",
   "annotations": {"kubectl.kubernetes.io/default-container": "main"}},
  "status": {"phase": "Running", "containerStatuses": [
   {"name": "istio", "ready": true}, {"name": "main", "ready": true}]}},
 {"metadata": {"name": "train-2", "namespace": "ml"},
  "status": {"phase": "Pending"}},
 {"metadata": {"name": "train-3", "namespace": "ml"},
  "status": {"phase": "Running", "containerStatuses": [{"name": "main", "ready": false}]}},
 {"metadata": {"name": "-o evil", "namespace": "ml"},
  "status": {"phase": "Running", "containerStatuses": [{"name": "main", "ready": true}]}}
]}"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of stand-ins, before all others."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path


def stand_in(folder: Path, name: str, script: str) -> None:
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


@pytest.mark.parametrize(
    ("specs", "names"),
    [
        (["node[0-2]"], ["node0", "node1", "node2"]),
        (["ann@node[0-1]:2222"], ["ann@node0:2222", "ann@node1:2222"]),
        (["slurm:12_3", "node1"], ["slurm:12_3", "node1"]),
        (["k8s:app=train"], ["k8s:app=train"]),
        (["k8s:ml/app=train,tier!=x:main"], ["k8s:ml/app=train,tier!=x:main"]),
        (["k8s:training.kubeflow.org/job-name=t"], ["k8s:training.kubeflow.org/job-name=t"]),
    ],
)
def test_places_have_the_names_that_were_typed(specs: list[str], names: list[str]) -> None:
    assert [place.name for place in places(specs)] == names


@pytest.mark.parametrize(
    ("selector", "pods"),
    [
        ("k8s:ml/app=t", Pods("app=t", "ml")),
        ("k8s:app=t:main", Pods("app=t", "", "main")),
        ("k8s:kubeflow.org/job=t", Pods("kubeflow.org/job=t")),
        ("k8s:ml/kubeflow.org/job=t", Pods("kubeflow.org/job=t", "ml")),
    ],
)
def test_a_prefix_of_a_label_is_no_namespace(selector: str, pods: Pods) -> None:
    assert places([selector]) == (pods,)


@pytest.mark.parametrize(
    ("specs", "via", "text"),
    [
        (["slurm:abc"], "", "not the number of a Slurm job"),
        (["k8s:"], "", "no label selector"),
        (["k8s:-x"], "", "no label selector"),
        (["k8s:app=x:UPPER"], "", "not a container's name"),
        (["-oProxyCommand=x"], "", "not the name of a host"),
        (["node[0-"], "", "not a host list"),
        (["node[0-1]"], "docker exec -i box sh", "same command for 2 hosts"),
        ([], "docker exec -i {host} sh", "no host is named"),
        (["slurm:1"], "sh", "--via is for hosts"),
        (["node0"], "sh 'x", "--via"),
        (["node0"], " ", "--via names no command"),
    ],
)
def test_what_cannot_be_meant_is_refused(specs: list[str], via: str, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        places(specs, via)


def test_via_names_the_host_in_one_word_and_uses_no_shell() -> None:
    (place,) = places(
        ["box7"], "docker exec -i x-{host} sh -c 'exec sh'"
    )  # fmt: skip
    (endpoint,) = place.find()
    assert endpoint.commands == (("docker", "exec", "-i", "x-box7", "sh", "-c", "exec sh"),)


def test_ssh_gets_only_what_its_user_has_not_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config"
    config.write_text(
        "Host slow\n  ConnectTimeout 60\n  ServerAliveInterval 30\n"
        "Host behind\n  ProxyJump bastion\n  LogLevel QUIET\n"
    )
    monkeypatch.setenv("FRTOP_SSH", f"ssh -F {config}")
    found = {}
    for place in places(["slow", "behind", "ann@node0:2222"]):
        (found[place.name],) = place.find()
    slow, behind, other = (found[name].commands[0] for name in ("slow", "behind", "ann@node0:2222"))
    assert not any("ConnectTimeout" in word or "Alive" in word for word in slow)
    assert {"ConnectTimeout=10", "ServerAliveInterval=5", "LogLevel=ERROR"} <= set(behind)
    assert other[-5:] == ("-p", "2222", "--", "ann@node0", "sh")
    assert {"BatchMode=yes", "ControlMaster=no"} <= set(slow)
    assert found["behind"].crowded
    assert found["behind"].through == "bastion"
    assert not found["slow"].crowded


def test_settings_that_ssh_refuses_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config"
    config.write_text("NoSuchOption yes\n")
    monkeypatch.setenv("FRTOP_SSH", f"ssh -F {config}")
    with pytest.raises(FrtopError, match=r"ssh refuses its settings: .*config: line 1"):
        places(["node0"])[0].find()
    monkeypatch.setenv("FRTOP_SSH", "no-such-ssh")
    with pytest.raises(FrtopError, match="no-such-ssh is not installed here"):
        places(["node0"])[0].find()


def test_a_slurm_job_is_one_step_over_its_hosts_or_ssh_to_each(programs: Path) -> None:
    stand_in(programs, "squeue", '[ "$*" = "-j 77 -h -o %N" ] && echo "node[0-2]"')
    found = SlurmJob("77").find()
    assert [one.host for one in found] == ["node0", "node1", "node2"]
    assert [one.task for one in found] == [0, 1, 2]
    assert len({one.commands[0] for one in found}) == 1
    assert found[0].commands[0][:4] == ("srun", "--overlap", "--jobid=77", "--nodes=3")
    assert found[1].commands[1][-3:] == ("--", "node1", "sh")


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("exit 0", "has no hosts: it is still queued, or has ended"),
        ("echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1", "Invalid job id"),
        ("echo '-oProxyCommand=x'", "did not print a list of hosts"),
        ("echo 'node['", "did not print a list of hosts"),
        ("echo 'node[0-99999999999]'", "did not print a list of hosts"),
        ("echo 'node[0-1000000000000]'", "did not print a list of hosts"),
        ("echo 'a[0-999]b[0-999]c[0-9]'", "did not print a list of hosts"),
    ],
)
def test_a_slurm_job_without_hosts_is_said(programs: Path, script: str, text: str) -> None:
    stand_in(programs, "squeue", script)
    with pytest.raises(FrtopError, match=text):
        SlurmJob("77").find()


def test_pods_that_run_are_found_each_with_its_container(programs: Path) -> None:
    file = programs / "pods"
    file.write_text(PODS)
    stand_in(programs, "kubectl",
             f'[ "$*" = "get pods -n ml -l app=t -o json" ] && cat {file}')  # fmt: skip
    found = Pods("app=t", "ml").find()
    assert [(one.host, one.commands[0][6:]) for one in found] == [
        ("train-0", ("-c", "istio", "--", "sh")),
        ("train-1", ("-c", "main", "--", "sh")),
    ]
    assert found[0].commands[0][:6] == ("kubectl", "exec", "-n", "ml", "-i", "train-0")
    named = Pods("app=t", "ml", "main").find()
    assert [one.commands[0][7] for one in named] == ["main", "main"]
    with pytest.raises(
        FrtopError, match=r"no running pod with a ready container x matches app=t in ml .5 m"
    ):
        Pods("app=t", "ml", "x").find()


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("echo '{\"items\": []}'", "no running pod matches app=t"),
        ("echo nonsense", "did not print a list of pods"),
        ("echo 'error: You must be logged in' >&2; exit 1", "You must be logged in"),
    ],
)
def test_pods_that_cannot_be_listed_are_said(programs: Path, script: str, text: str) -> None:
    stand_in(programs, "kubectl", script)
    with pytest.raises(FrtopError, match=text):
        Pods("app=t").find()


def test_hosts_behind_one_on_the_way_share_its_connection() -> None:
    (place,) = places(["node[1-2]"], through="bastion")
    one, two = place.find()
    assert (one.host, two.host) == ("node1", "node2")
    assert one.commands[0] == two.commands[0]
    assert one.commands[0][-2:] == ("bastion", "sh")
    assert one.onward[-2:] == ("node1", "sh")
    assert "-J" in one.commands[1]  # where the one on the way cannot log in


def test_a_host_on_the_way_is_no_option_of_ssh() -> None:
    with pytest.raises(UsageError, match="is not the name of a host"):
        places(["node1"], through="-oProxyCommand=id")


@pytest.mark.parametrize(
    ("specs", "via"), [([], ""), (["slurm:7"], ""), (["node0"], "docker exec -i {host} sh")]
)
def test_on_the_way_to_hosts_only(specs: list[str], via: str) -> None:
    with pytest.raises(UsageError, match="--through"):
        places(specs, via, through="bastion")


def test_every_launcher_can_be_read_and_is_no_host_list() -> None:
    assert LAUNCHERS.keys() == _PARSERS.keys()
    for prefix in LAUNCHERS:
        with pytest.raises(UsageError, match="reached through a shell"):
            expand([f"{prefix}1"])
