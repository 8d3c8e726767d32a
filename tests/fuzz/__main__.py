"""Tries hostile inputs on all that reads what others write: `make fuzz SECONDS=600`.

Guided by coverage where atheris is installed, else by chance from a seed. A failing input is kept
with how to try it again; `python -m fuzz --target NAME FILE` does that.
"""

from __future__ import annotations

import argparse
import io
import sys
import tempfile
from contextlib import nullcontext, redirect_stderr
from pathlib import Path
from typing import Final

try:
    import atheris  # type: ignore[import-untyped, import-not-found, unused-ignore]
except ImportError:
    atheris = None

FAILURES: Final = Path(tempfile.gettempdir()) / "frtop-fuzz"
CHUNK_S: Final = 60.0
"""A child tries inputs for this long; then another one goes on with what it has found."""


def main() -> int:
    """Returns the exit status: 1 if any input broke a promise."""
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, help="inputs to try again; with --target")
    parser.add_argument("--target", action="append", metavar="NAME", help="only these")
    parser.add_argument("--inputs", type=int, default=0, metavar="N", help="for each target")
    parser.add_argument("--seconds", type=float, default=0, metavar="S", help="for each target")
    parser.add_argument("--seed", type=int, default=1, metavar="X")
    parser.add_argument("--blind", action="store_true", help="by chance, also with atheris")
    parser.add_argument("--failures", type=Path, default=FAILURES, metavar="FOLDER")
    parser.add_argument("--found", type=Path, metavar="FOLDER", help="keeps what covers more")
    parser.add_argument("--distil", action="store_true", help="take from --found into the corpus")
    parser.add_argument("--list", action="store_true", help="the targets")
    options = parser.parse_args()
    guided = atheris is not None and not (
        options.blind or options.files or options.list or options.distil
    )
    # With atheris it is imported so that the lines are seen which an input reaches.
    seen = atheris.instrument_imports(include=["frtop_probe", "frtop_tui"]) if guided else None
    with seen or nullcontext(), redirect_stderr(io.StringIO()):  # atheris names each module
        from fuzz import engine  # noqa: PLC0415
    return engine.run(options, atheris if guided else None, CHUNK_S)


if __name__ == "__main__":
    sys.exit(main())
