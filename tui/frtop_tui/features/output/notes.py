"""Lines of the output of a verdict's ranks that bear on it, beside the verdict."""

from __future__ import annotations

from typing import Final

from frtop_tui.features.output.telling import telling_lines

NOTES: Final = {"output": telling_lines}
