"""A rank with a real recorder, controlled by lines on its input; ends when the input ends."""

from __future__ import annotations

import os
import sys

import frtop_probe
from frtop_probe.recorder import recorder


def main() -> None:
    recorder.AGENT_EVERY_S = 0.5  # type: ignore[misc]
    frtop_probe.start()
    print("ready", os.getpid(), flush=True)
    for number, line in enumerate(sys.stdin, 1):
        if line.strip() == "kill":
            os.abort()
        frtop_probe.step(number)
        print("done", flush=True)


if __name__ == "__main__":
    main()
