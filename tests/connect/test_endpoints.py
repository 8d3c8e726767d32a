"""Host lists and names become addresses."""

from __future__ import annotations

import socket
import threading

import pytest
from msgspec.structs import replace

from frtop_tui.connect import endpoints
from frtop_tui.connect.endpoints import Endpoint, Resolver, expand, resolve
from frtop_tui.errors import UnknownHost, UsageError
from waiting import wait_for


@pytest.mark.parametrize(
    ("specs", "names"),
    [
        (["node[0-2]"], ("node0", "node1", "node2")),
        (["node[01-03]"], ("node01", "node02", "node03")),
        (["node0", "node1", "node0"], ("node0", "node1")),
        (["node[0-1]:7700"], ("node0:7700", "node1:7700")),
        (["a,b", "c"], ("a", "b", "c")),
        (["::1"], ("::1",)),
        (["[::1]:7700"], ("[::1]:7700",)),
    ],
)
def test_host_lists_are_expanded(specs: list[str], names: tuple[str, ...]) -> None:
    assert expand(specs) == names


@pytest.mark.parametrize(
    "spec",
    [
        "node[0-", "node[5-2]", "", "node0:http", "node0:0", "node0:70000",
        "node[0-999999999]", "n[0-9999]-[0-9999]", "n[0-1]9999999999", "n[0-9999999999999]",
        "n[0-9999999999999/2]", "a[0-65535],b",
    ],
)  # fmt: skip
def test_an_invalid_host_list_is_refused(spec: str) -> None:
    with pytest.raises(UsageError):
        expand([spec])


def test_without_a_port_the_defaults_are_used() -> None:
    assert resolve("127.0.0.1") == Endpoint("127.0.0.1", "127.0.0.1", 7677, 7678)


def test_a_port_and_the_next_one_are_used() -> None:
    endpoint = resolve("127.0.0.1:9000")
    assert (endpoint.update_url, endpoint.request_url) == (
        "tcp://127.0.0.1:9000",
        "tcp://127.0.0.1:9001",
    )


def test_an_unknown_name_is_named() -> None:
    with pytest.raises(UnknownHost, match=r"no-such-host\.invalid"):
        resolve("no-such-host.invalid")


@pytest.mark.parametrize(
    ("name", "updates", "requests"),
    [
        ("::1", "tcp://[::1]:7677", "tcp://[::1]:7678"),
        ("[::1]:7700", "tcp://[::1]:7700", "tcp://[::1]:7701"),
        ("localhost:7700", "tcp://127.0.0.1:7700", "tcp://127.0.0.1:7701"),
    ],
)
def test_ipv4_and_ipv6_urls(name: str, updates: str, requests: str) -> None:
    endpoint = resolve(name)
    if name.startswith("localhost"):
        endpoint = replace(endpoint, address="127.0.0.1")  # a host may prefer ::1
    assert (endpoint.update_url, endpoint.request_url) == (updates, requests)


@pytest.mark.parametrize("name", ["node3:7700:9", "a..b", "x" * 300])
def test_an_impossible_name_is_an_unknown_host(name: str) -> None:
    with pytest.raises(UnknownHost):
        resolve(name)


def resolved_names(resolver: Resolver) -> list[str]:
    """Waits for the next names that `resolver` resolves."""
    found = wait_for(lambda: list(resolver.resolved()), "a resolved name", seconds=60)
    return [name for name, _ in found]


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Until it is set, only the name `quick` is resolved."""
    event = threading.Event()

    def slow(host: str, *rest: object, **more: object) -> list[object]:
        if host != "quick":
            event.wait(60)
            raise OSError("timed out")
        return [(None, None, None, "", ("10.0.0.1", 1))]

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    return event


def test_a_slow_name_does_not_delay_others(release: threading.Event) -> None:
    resolver = Resolver(["slow", "quick"])
    for expected in ("quick", "slow"):
        assert resolved_names(resolver) == [expected]
        release.set()


def test_many_slow_names_delay_a_quick_one_only_briefly(
    release: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoints, "SLOW_S", 0.05)
    resolver = Resolver([*(f"slow{n}" for n in range(40)), "quick"])
    names = resolved_names(resolver)
    release.set()
    assert names == ["quick"]


def test_a_name_can_be_resolved_again(monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = iter(["10.0.0.1", "10.0.0.2"])

    def moving(*_: object, **__: object) -> list[object]:
        return [(None, None, None, "", (next(addresses, "10.0.0.3"), 1))]

    monkeypatch.setattr(socket, "getaddrinfo", moving)
    resolver = Resolver(["moving"])
    seen = []
    for _ in range(2):
        ((_, endpoint),) = wait_for(lambda: list(resolver.resolved()), "an address", seconds=60)
        assert isinstance(endpoint, Endpoint)
        seen.append(endpoint.address)
        resolver.resolve("moving")
    assert seen == ["10.0.0.1", "10.0.0.2"]
