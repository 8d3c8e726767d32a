"""Reads what a command prints with `--json`, and checks that it is of the schema it names."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from frtop_tui.cli.schema import types


def read_document(text: str | bytes, schema: str) -> Any:
    """The document; fails if a value is of another type than in its schema, or a key is new."""
    document = json.loads(text)
    assert document["schema"] == schema
    read = msgspec.to_builtins(msgspec.convert(document, types()[schema]))
    assert json.loads(json.dumps(read)) == document
    return document
