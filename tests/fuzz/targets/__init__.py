"""All targets: importing this fills `fuzz.target.TARGETS`. Those of features stand with them."""

from importlib import import_module
from pathlib import Path

from fuzz.targets import files, pipes, process, ring, wire_messages, words

_FEATURES = sorted(Path(__file__).parents[2].glob("features/*/fuzzed.py"))
ALL = (
    *(files, pipes, process, ring, wire_messages, words),
    *(import_module(f"features.{path.parent.name}.fuzzed") for path in _FEATURES),
)
