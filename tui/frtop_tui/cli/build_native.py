"""`frtop build-native`: compiles the recorder's native kernels for the torch of a job."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import frtop_probe
from frtop_tui.errors import FrtopError

_BUILD: Final = """
import sys
sys.path.append(sys.argv[1])
from frtop_probe.recorder.native.build import main
sys.exit(main())
"""
"""Appended, not put first: the job's own packages count."""


def run(options: argparse.Namespace) -> int:
    """Compiles in the job's Python, which does not need frtop."""
    python = shutil.which(options.python or sys.executable)
    if python is None:
        raise FrtopError(
            f"{options.python}: no such command", "give the Python that runs the job with --python"
        )
    print("compiling, which takes up to a minute", file=sys.stderr, flush=True)
    packages = str(Path(frtop_probe.__file__).parent.parent)
    return subprocess.run([python, "-c", _BUILD, packages], check=False).returncode
