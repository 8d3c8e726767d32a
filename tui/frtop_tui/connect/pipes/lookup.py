"""Runs a program that lists hosts: squeue, kubectl. Blocks; for threads of `place_search`."""

from __future__ import annotations

import shlex
import subprocess
from typing import Final

from frtop_tui.connect.pipes.framing import readable
from frtop_tui.errors import Missing, Unreachable

LOOKUP_S: Final = 20.0
MAX_OUTPUT: Final = 64 * 1024 * 1024


def output_of(command: tuple[str, ...], without: str) -> str:
    """What a program prints.

    Raises:
        Missing: it is not installed.
        Unreachable: it failed, or did not answer in time.
    """
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=LOOKUP_S,
            check=False, start_new_session=True,
        )  # fmt: skip
    except FileNotFoundError as error:
        raise Missing(f"{command[0]} is not installed here", without) from error
    except subprocess.TimeoutExpired as error:
        raise Unreachable(
            f"{command[0]} did not answer in {LOOKUP_S:.0f} s", f"see what `{command[0]}` says"
        ) from error
    except OSError as error:
        raise Unreachable(f"{command[0]}: {error}", without) from error
    if done.returncode or len(done.stdout) > MAX_OUTPUT:
        said = readable(done.stderr.strip().rpartition(b"\n")[2]) or f"status {done.returncode}"
        raise Unreachable(f"{command[0]}: {said}", f"try it: {shlex.join(command)}")
    return done.stdout.decode("utf-8", "replace")
