"""`[watch]` of the configuration file: defaults of `frtop watch`."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from frtop_tui.cli.verbs.parts import Setting
from frtop_tui.features.watch.verbs import BEFORE_S, DEADLINE_S, EVERY_S, time_span


class WatchTable(Struct, frozen=True, rename="kebab", forbid_unknown_fields=True):
    """`[watch]`: defaults of `frtop watch`. Times are written `90s`, `10m`, `6h` or `2d`."""

    exec: str | None = None
    shell: bool | None = None
    post: str | None = None
    captures: str | None = None
    state: str | None = None
    every: str | None = None
    before: str | None = None
    deadline: str | None = None


TABLES: Final = {"watch": WatchTable}
SETTINGS: Final = (
    Setting("watch.exec", "command", ""),
    Setting("watch.shell", "shell", False),
    Setting("watch.post", "post", ""),
    Setting("watch.captures", "captures", None),
    Setting("watch.state", "state", None),
    Setting("watch.every", "every", EVERY_S, of_file=time_span),
    Setting("watch.before", "before", BEFORE_S, of_file=time_span),
    Setting("watch.deadline", "deadline", DEADLINE_S, of_file=time_span),
)
