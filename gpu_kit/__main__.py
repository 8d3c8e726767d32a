"""The kit's one command: `python3 -m gpu_kit`, or `python3 gpu-kit` beside the packed folder."""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from gpu_kit.points import CHECKS
from gpu_kit.session import Session, chosen

WITHIN_S: Final = 585.0
DRY_WITHIN_S: Final = 3600.0
_CUDA: Final = "import torch; raise SystemExit(0 if torch.cuda.is_available() else 3)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0 if every check ran, whatever it found; 1 if not; 2 for a wrong command."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["--one"]:
        return _one(words[1:])
    options = _options(words)
    signal.signal(signal.SIGTERM, _stopped)
    try:
        checks = chosen(options.only)
    except LookupError as error:
        print(error, file=sys.stderr)
        return 2
    within = options.within or (DRY_WITHIN_S if options.dry else WITHIN_S)
    until = time.monotonic() + within
    if not options.dry and (why := _no_gpu()):
        print(f"{why}; --dry runs the checks that need no GPU", file=sys.stderr)
        return 2
    session = Session(_root(), options.out, options.dry, until)
    session.run(checks, lambda text: print(text, flush=True))
    print(f"\nresults in {options.out}/report.txt and results.json")
    return 1 if any(finding.outcome == "failed" for finding in session.findings) else 0


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gpu-kit", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("gpu-kit-results"), metavar="FOLDER",
                        help="where results.json, report.txt and logs.txt go")  # fmt: skip
    parser.add_argument("--dry", action="store_true",
                        help="without a GPU: on gloo, which proves nothing about NCCL"
                        )  # fmt: skip
    parser.add_argument("--within", type=float, metavar="SECONDS",
                        help=f"end by then (default {WITHIN_S:.0f}; with --dry, an hour)"
                        )  # fmt: skip
    parser.add_argument("--only", action="append", default=[], metavar="CHECK",
                        help=f"only this check: {', '.join(check.name for check in CHECKS)}"
                        )  # fmt: skip
    return parser.parse_args(words)


def _one(words: Sequence[str]) -> int:
    """Runs one check in this process; only the session calls this."""
    from gpu_kit.checks.context import Context  # noqa: PLC0415

    module, folder, seconds, *rest = words
    dry = "--dry" in rest
    context = Context(
        Path(folder),
        time.monotonic() + float(seconds),
        dry,
        tuple(word for word in rest if word != "--dry"),
    )
    importlib.import_module(module).run(context)
    return 0


def _root() -> Path:
    return Path(__file__).resolve().parents[1]


def _no_gpu() -> str:
    """Returns why torch has no GPU, "" if it has one. It asks in a process, as CUDA may hang."""
    try:
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", _CUDA], timeout=60,
                              capture_output=True, check=False)  # fmt: skip
    except subprocess.TimeoutExpired:
        return "torch does not answer within 60 s"
    if done.returncode == 3:
        return "torch sees no GPU here"
    return "" if done.returncode == 0 else "torch cannot be imported here"


def _stopped(*_: object) -> None:
    """Ends the kit, but only once: killing and writing take some seconds."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(os.EX_TEMPFAIL)


if __name__ == "__main__":
    sys.exit(main())
