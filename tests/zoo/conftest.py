from __future__ import annotations

from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest file first: files are handed out in order, and nobody waits for the last."""
    items.sort(key=lambda item: item.path != Path(__file__).with_name("test_zoo.py"))
