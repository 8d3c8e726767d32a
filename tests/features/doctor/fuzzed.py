"""A hostile doctor on another host."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from features.doctor.sample_facts import HOST, RANK
from frtop_probe.features.doctor.facts import SearchFacts
from frtop_tui.connect.pipes.framing import PipeError
from frtop_tui.features.doctor.examinations import read_facts
from fuzz.mutations import as_json
from fuzz.target import Take, refused, target


@target(
    "what a doctor on another host has found", as_json,
    lambda _: [json.dumps({"host": asdict(HOST), "search": asdict(SearchFacts((RANK,)))}).encode()],
    most=60_000,
)  # fmt: skip
def doctors(_: Path, __: ExitStack) -> Take:
    def take(data: bytes) -> bool:
        try:
            read_facts(data)
        except PipeError as error:
            return refused(error)
        return True

    return take
