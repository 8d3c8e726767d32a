"""A few hundred hostile inputs for each target: taken, or refused with a clear error; no more.

`FRTOP_FUZZ=SEED/N pytest ...` tries one input again, `FRTOP_FUZZ=SEED` another set. Millions:
`make fuzz`.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.bounded import Shared, Trial
from fuzz.engine import MEMORY, changed
from fuzz.target import TARGETS, Target

FREE = [one for one in TARGETS.values() if one.quick >= 300]
"""Targets quick enough for inputs that have nothing of a real one."""
LONG = (pytest.mark.long, pytest.mark.timeout(3600))


def cases() -> Iterator[object]:
    for one in TARGETS.values():
        marks = [pytest.mark.torch] if one.needs_torch else []
        yield pytest.param(one, one.quick, marks=marks, id=one.name)
        yield pytest.param(one, one.many, marks=[*marks, *LONG], id=f"{one.name}-long")


@pytest.mark.parametrize(("target", "count"), [*cases()])
def test_hostile_input_is_refused_or_taken(target: Target, count: int) -> None:
    seed, _, only = os.environ.get("FRTOP_FUZZ", "1").partition("/")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=MEMORY)))
        trial = Trial(target, target.prepare(folder, stack), None, Shared(target.most))
        seeds = target.all_seeds(folder)
        for data in seeds:
            trial.try_input(data)
        assert trial.shared.taken, "no seed is taken: are they out of date?"
        for number in (int(only),) if only else range(count):
            data = changed(target, seeds, seed, number)
            try:
                trial.try_input(data)
            except Exception:
                print(f"FRTOP_FUZZ={seed}/{number}")
                raise


@pytest.fixture(params=FREE, ids=lambda one: one.name)
def trial(request: pytest.FixtureRequest) -> Iterator[Trial]:
    target: Target = request.param
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=MEMORY)))
        yield Trial(target, target.prepare(folder, stack), None, Shared(target.most))


@given(st.binary(max_size=300) | st.text(max_size=100).map(str.encode))
def test_any_bytes_are_refused_or_taken(trial: Trial, data: bytes) -> None:
    trial.try_input(data)
