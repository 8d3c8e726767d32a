"""`init_process_group` that everybody has entered and nobody leaves."""

from __future__ import annotations

import pytest

from diagnosis.scenes import C10D, Scene, frame, only
from frtop_probe import wire

RENDEZVOUS = "/venv/lib/python3.11/site-packages/torch/distributed/rendezvous.py"
CONNECTING = (
    frame(f"{RENDEZVOUS}:199", "_create_c10d_store"),
    frame(f"{RENDEZVOUS}:280", "_env_rendezvous_handler"),
    frame(f"{C10D}:1892", "init_process_group"),
)
PAST_STORE = (
    frame(f"{C10D}:2100", "_new_process_group_helper"),
    frame(f"{C10D}:1920", "init_process_group"),
)


def meeting(address: str, port: int, *stack: wire.TraceFrame, hosts: int = 1) -> Scene:
    kind = "init_rpc" if stack[-1].function == "init_rpc" else "init_process_group"
    scene = Scene(2, begun=0, hosts=hosts, job=wire.Job(address, port, 2, "", 0, "", "train.py"))
    for actor in scene.actors.values():
        actor.groups.clear()
    scene.in_pseudo([0, 1], kind, for_s=31)
    for rank in (0, 1):
        scene.at(rank, *stack)
    return scene


def test_a_store_that_does_not_answer_is_named_with_its_address() -> None:
    found = meeting("node0", 29500, *CONNECTING).settle()
    verdict = only(found)
    assert (verdict.kind, verdict.confidence, verdict.culprits) == ("stuck", "confirmed", ())
    assert "nobody answers at node0:29500; ranks 0-1 wait" in verdict.headline
    assert (verdict.why.cause, verdict.why.layer) == ("rendezvous", "network")
    assert "ss -ltnp 'sport = :29500'" in verdict.next
    assert "nc -vz node0 29500" in verdict.next
    assert found.health == "hung"


def test_port_0_is_no_port() -> None:
    verdict = only(meeting("127.0.0.1", 0, *CONNECTING).settle())
    assert "nobody answers at 127.0.0.1:0" in verdict.headline
    assert (verdict.why.layer, "MASTER_PORT" in verdict.why.text) == ("software", True)
    assert "free port" in verdict.next


@pytest.mark.parametrize("address", ["127.0.0.1", "localhost", "::1"])
def test_an_address_that_is_each_hosts_own_brings_no_two_together(address: str) -> None:
    verdict = only(meeting(address, 29500, *CONNECTING, hosts=2).settle())
    assert (verdict.why.cause, verdict.why.layer) == ("rendezvous", "software")
    assert "is the host itself" in verdict.why.text
    verdict = only(meeting(address, 29500, *CONNECTING).settle())
    assert verdict.why.layer == "network"
    assert "other hosts" not in verdict.next


@pytest.mark.parametrize(("address", "shown"), [
    ("::1", "nobody answers at [::1]:29500;"),
    ("[fd00::7]", "nobody answers at [fd00::7]:29500;"),
    ("file:///shared/meet", "the job's store does not answer;"),
    ("", "the job's store does not answer;"),
])  # fmt: skip
def test_addresses_of_other_forms(address: str, shown: str) -> None:
    assert shown in only(meeting(address, 29500, *CONNECTING).settle()).headline


def test_an_address_is_typed_as_one_word() -> None:
    step = only(meeting("node0; rm -rf ~", 29500, *CONNECTING).settle()).next
    assert "nc -vz 'node0; rm -rf ~' 29500" in step


def test_past_the_store_it_is_their_own_connections() -> None:
    verdict = only(meeting("node0", 29500, *PAST_STORE).settle())
    assert (verdict.kind, verdict.why.cause, verdict.why.layer) == ("stuck", "transport", "network")
    assert "SOCKET_IFNAME" in verdict.next


def test_without_stacks_it_is_one_or_the_other() -> None:
    scene = meeting("node0", 29500, *CONNECTING)
    for actor in scene.actors.values():
        actor.dump_error = "refused"
    verdict = only(scene.settle())
    assert (verdict.kind, verdict.why.layer) == ("stuck", "unknown")
    assert "the job's store at node0:29500" in verdict.why.text
    assert "nobody answers" not in verdict.headline
    assert verdict.missing == ("stacks of rank 0: ptrace is refused",)
    assert "ptrace" in verdict.next


def test_a_rank_that_starts_is_in_it_for_as_long_as_it_waits() -> None:
    found = meeting("node0", 29500, *CONNECTING).settle()
    view = found.ranks[0]
    assert view.state == "starting"
    assert 30 < (found.now_ns - view.state_since_ns) / 1e9 < 40


def test_init_rpc_has_an_address_of_its_own() -> None:
    rpc = frame(
        "/venv/lib/python3.11/site-packages/torch/distributed/rpc/__init__.py:190", "init_rpc"
    )
    verdict = only(meeting("node0", 29500, *CONNECTING[:2], rpc).settle())
    assert "init_method in the options of init_rpc" in verdict.next
    assert "29500" not in f"{verdict.headline} {verdict.why.text} {verdict.next}"
