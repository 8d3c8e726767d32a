"""`frtop config`: every setting with its value and its source."""

from __future__ import annotations

import argparse
import json
from typing import Any

from frtop_tui.cli.settings import SETTINGS, SettingInUse
from frtop_tui.job.naming import printable


def run(options: argparse.Namespace) -> int:
    """Prints the table; returns 0."""
    settings, found = options.config, options.in_use
    if options.json:
        print(json.dumps(document(found, str(settings.path or ""), there=settings.found), indent=2))
        return 0
    there = "" if settings.found else " (not there)"
    print(f"file  {settings.path}{there}" if settings.path else "file  none: there is no home")
    rows = [
        (setting.key, value_text(found[setting.key].value), found[setting.key].origin)
        for setting in SETTINGS
    ]
    key_width = max(len(key) for key, _, _ in rows)
    value_width = min(40, max(len(value) for _, value, _ in rows))
    for key, value, origin in rows:
        print(printable(f"{key:{key_width}}  {value:{value_width}}  {origin}"))
    return 0


def document(found: dict[str, SettingInUse], path: str, *, there: bool) -> dict[str, Any]:
    """The same as JSON."""
    return {
        "file": path,
        "there": there,
        "settings": {key: {"value": one.value, "from": one.origin} for key, one in found.items()},
    }


def value_text(value: object) -> str:
    """The value as a person types it; `-` for nothing."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return " ".join(map(str, value)) or "-"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value) if value not in (None, "") else "-"
