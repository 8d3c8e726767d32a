"""Writes the tables of fields, and the schemas of JSON documents, into dist/docs/."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from frtop_probe import wire
from frtop_tui.cli.schema import schemas
from frtop_tui.cli.schema import types as documents
from frtop_tui.diagnosis.model import Frame
from frtop_tui.files.capture import CaptureContent
from frtop_tui.files.formats import call_table, op_table
from frtop_tui.registry import contributions

OUT: Final = Path(__file__).parents[1] / "dist" / "docs"
_HEAD: Final = """# Fields of what frtop sends and writes

Written by `make docs` from the code. How to read all this: docs/formats.md.
"""
_COMMENT: Final = re.compile(r"^    (\w+): [^#\n]*#\s*(.+(?:,\n    # .+)*)$", re.MULTILINE)
"""A field with its comment, which goes on in the next line after a comma."""
_ATTRIBUTE: Final = re.compile(r"^    (\w+): ", re.MULTILINE)
_SCALARS: Final = {type(None): "nil", Any: "any", msgspec.Raw: "any", msgspec.UnsetType: "absent"}


def page() -> str:
    """Every struct of the events, of the stream and of files, and the columns of CSV files."""
    named: set[type] = set()
    answers = dict.fromkeys(one.answer for one in wire.declared())
    messages: list[type] = [*wire.declared(), *answers, wire.Error]
    parts = [
        _HEAD,
        "## Messages, and black boxes\n",
        *_sections([wire.Update, *messages, wire.BlackBox], named),
        "## Captures\n",
        *_sections([CaptureContent, Frame], named),
    ]
    parts += [
        "## What commands print with `--json`\n",
        *_sections(list(documents().values()), named),
    ]
    for title, events in contributions("events", "PAGE"):
        parts += [f"## {title}\n", *_sections(list(events), named)]
    for name, columns in (("csv", op_table.COLUMNS), ("calls", call_table.COLUMNS)):
        rows = [f"| `{column}` | {text} |" for column, text in columns.items()]
        parts.append(f"## `frtop export --format {name}`\n")
        parts.append("\n".join(["| column | |", "|---|---|", *rows, ""]))
    return "\n".join(parts)


def _sections(roots: list[type], named: set[type]) -> Iterator[str]:
    """A section for each struct that `roots` hold and that is not `named` yet."""
    waiting = list(roots)
    while waiting:
        kind = waiting.pop(0)
        if kind in named:
            continue
        named.add(kind)
        yield _section(kind)
        inner = (_structs(hint) for hint in typing.get_type_hints(kind).values())
        waiting += [one for structs in inner for one in structs]


def _section(kind: type) -> str:
    hints, comments = typing.get_type_hints(kind), _comments(kind)
    config = getattr(kind, "__struct_config__", None)
    is_array = config is not None and config.array_like
    tag = config.tag if config is not None else None
    lines = [f"{0:>2}  {'tag':<18}{_json(tag)}"] if tag else []
    if tag and config is not None and not is_array:
        lines = [f"{config.tag_field:<18}{_json(tag)}"]
    for index, (name, default) in enumerate(_fields(kind), len(lines)):
        place = f"{index:>2}  " if is_array else ""
        line = f"{place}{name:<18}{_type_name(hints[name])}{default}"
        lines.append(f"{line:<56}  {comments.get(name, '')}".rstrip())
    shape = "array" if is_array else "map"
    text = inspect.cleandoc(kind.__doc__ or "").replace("Attributes:\n", "")
    text = _ATTRIBUTE.sub(r"* `\1`: ", text)
    body = "\n".join(lines)
    return "\n\n".join(
        filter(None, (f"### {kind.__name__} ({shape})", text, f"```\n{body}\n```\n"))
    )


def _fields(kind: type) -> Iterator[tuple[str, str]]:
    """Name and default of each field, in the order of the array."""
    if dataclasses.is_dataclass(kind):
        for one in dataclasses.fields(kind):
            has_factory = one.default_factory is not dataclasses.MISSING
            yield one.name, _default(one.default, dataclasses.MISSING, has_factory=has_factory)
    else:
        for field in msgspec.structs.fields(kind):
            has_factory = field.default_factory is not msgspec.NODEFAULT
            yield field.name, _default(field.default, msgspec.NODEFAULT, has_factory=has_factory)


def _default(value: Any, missing: Any, *, has_factory: bool) -> str:
    if value is missing:
        return " = {}" if has_factory else ""
    if isinstance(value, msgspec.Struct):
        return " = defaults"
    if value is msgspec.UNSET:
        return " = absent"
    return " = nil" if value is None else f" = {_json(value)}"


def _json(value: Any) -> str:
    """A value in JSON; bytes as text in quotes."""
    return msgspec.json.encode("" if value == b"" else value).decode()


def _comments(kind: type) -> dict[str, str]:
    """The comments behind fields, those of base classes, too, each as one line."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("frtop"):
            found.update(_COMMENT.findall(inspect.getsource(base)))
    return {name: comment.replace("\n    # ", " ") for name, comment in found.items()}


def _type_name(hint: Any) -> str:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is None:
        return _SCALARS.get(hint) or str(hint.__name__)
    if origin is typing.Literal:
        return " | ".join(map(_json, arguments))
    inner = [_type_name(argument) for argument in arguments if argument is not Ellipsis]
    if origin is tuple and Ellipsis not in arguments:
        return f"({', '.join(inner)})"
    if origin in (tuple, frozenset):
        return f"[{inner[0]}]"
    is_union = origin in (typing.Union, types.UnionType)
    return " | ".join(inner) if is_union else "{" + ": ".join(inner) + "}"


def _structs(hint: Any) -> list[type]:
    if typing.get_args(hint):
        return [one for argument in typing.get_args(hint) for one in _structs(argument)]
    is_struct = isinstance(hint, type) and (
        issubclass(hint, msgspec.Struct) or dataclasses.is_dataclass(hint)
    )
    return [hint] if is_struct else []


if __name__ == "__main__":
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "fields.md").write_text(page())
    (OUT / "schemas").mkdir(exist_ok=True)
    for name, schema in schemas().items():
        (OUT / "schemas" / f"{name}.json").write_text(f"{json.dumps(schema, indent=1)}\n")
