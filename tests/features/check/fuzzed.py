"""Hostile plans."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from features.check.test_plan import PLAN
from frtop_tui.errors import FrtopError
from frtop_tui.features.check.plan import read_plan
from fuzz.mutations import as_text
from fuzz.target import Take, refused, target


@target("plans of `frtop check`", as_text, lambda _: [PLAN.encode()], most=70_000)
def plans(folder: Path, _: ExitStack) -> Take:
    path = folder / "plan.toml"

    def take(data: bytes) -> bool:
        path.write_bytes(data)
        try:
            read_plan(path)
        except FrtopError as error:
            return refused(error)
        return True

    return take
