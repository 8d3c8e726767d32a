"""From the operator's words to addresses."""

from __future__ import annotations

import pytest

from frtop_tui.errors import FrtopError, UnknownHost, UsageError
from frtop_tui.sources.places import Place, expand, resolve


@pytest.mark.parametrize(
    ("specs", "names"),
    [
        (["node[0-2]"], ("node0", "node1", "node2")),
        (["node[01-03]"], ("node01", "node02", "node03")),
        (["node0", "node1", "node0"], ("node0", "node1")),
        (["node[0-1]:7700"], ("node0:7700", "node1:7700")),
        (["a,b", "c"], ("a", "b", "c")),
    ],
)
def test_host_lists_unfold(specs: list[str], names: tuple[str, ...]) -> None:
    assert expand(specs) == names


@pytest.mark.parametrize("spec", ["node[0-", "node[5-2]", ""])
def test_what_is_no_host_list_is_refused(spec: str) -> None:
    with pytest.raises(UsageError):
        expand([spec])


def test_the_default_pair_of_ports() -> None:
    assert resolve("127.0.0.1") == Place("127.0.0.1", "127.0.0.1", 7677, 7678)


def test_a_named_port_and_the_next() -> None:
    place = resolve("127.0.0.1:9000")
    assert (place.updates, place.requests) == ("tcp://127.0.0.1:9000", "tcp://127.0.0.1:9001")


def test_a_name_that_does_not_resolve_is_named() -> None:
    with pytest.raises(UnknownHost, match=r"no-such-host\.invalid"):
        resolve("no-such-host.invalid")


def test_a_port_that_is_none() -> None:
    with pytest.raises(FrtopError, match="65535"):
        resolve("127.0.0.1:65535")
