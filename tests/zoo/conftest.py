from __future__ import annotations

from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Runs the longest file first, because workers receive files in order."""
    items.sort(key=lambda item: item.path != Path(__file__).with_name("test_zoo.py"))
