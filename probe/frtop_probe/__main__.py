"""Runs a program with the recorder: `torchrun ... -m frtop_probe train.py args`.

`-m frtop_probe -m package.module args` runs a module. The program runs as `__main__`, with its
own arguments and its own folder first on the path.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import frtop_probe

USAGE = "usage: python -m frtop_probe [-m] PROGRAM [ARGUMENT ...]"


def main() -> None:
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help") or arguments == ["-m"]:
        sys.exit(0 if arguments[:1] in (["-h"], ["--help"]) else USAGE)
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        frtop_probe.start()
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    program = Path(arguments[0])
    if not program.exists():
        sys.exit(f"{program} does not exist\n{USAGE}")
    sys.argv = arguments
    # `-m` puts the working folder first; a script expects its own folder there.
    sys.path[0] = str(program.resolve().parent)
    frtop_probe.start()
    runpy.run_path(str(program), run_name="__main__")


if __name__ == "__main__":
    main()
