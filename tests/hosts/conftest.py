from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hosts.cluster import Cluster
from hosts.network import obstacle

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == HERE:
            item.add_marker(pytest.mark.hosts)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Four hosts with a job that trains across them, and the operator's host."""
    if why := obstacle():
        pytest.skip(why)
    cluster = Cluster(tmp_path_factory.mktemp("hosts"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()
