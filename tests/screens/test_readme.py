"""The README's table of keys is current."""

from __future__ import annotations

from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"


def test_the_table_of_keys_is_current(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(README.parent))
    from docs.keys import with_table  # noqa: PLC0415 - found only now

    readme = README.read_text()
    assert with_table(readme) == readme, "run `make docs`"
