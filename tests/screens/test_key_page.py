"""The page of keys is the program's."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_table_of_keys_is_current(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from docs.keys import PAGE, with_table  # noqa: PLC0415 - found only now

    page = PAGE.read_text()
    assert with_table(page) == page, "run `make docs`"
