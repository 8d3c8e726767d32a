"""Behaves like `srun --label --input=all`, for as many tasks as `--ntasks` says, on this host.

By the manual of Slurm 23.11, and as Slurm 22.05 was seen to do:

* "stdin is broadcast to all remote tasks."
* `--label`: "Prepend task number to lines of stdout/err."
* A line of more than 1,024 bytes is cut there, and each piece gets a label and an end.
* The step ends with its last task (`--kill-on-bad-exit=0`), and with its input for tasks that end
  at the end of theirs.

`SRUN_REFUSES` in the environment is what it says before it gives up, `SRUN_WAITS` what it says
while it waits for ever; it makes the file `SRUN_SPOKEN` once it has said it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO

CUT = 1024
_writing = threading.Lock()


def main(arguments: list[str]) -> int:
    if refusal := os.environ.get("SRUN_REFUSES"):
        _say(refusal)
        return 1
    if reason := os.environ.get("SRUN_WAITS"):
        _say(reason)
        time.sleep(1000)
    count = next(int(one.partition("=")[2]) for one in arguments if one.startswith("--ntasks="))
    assert {"--label", "--input=all", "--kill-on-bad-exit=0", "--overlap"} <= set(arguments)
    width = len(str(count - 1))
    tasks = [
        subprocess.Popen(
            arguments[-1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, "SLURM_PROCID": str(number)},
        )
        for number in range(count)
    ]  # fmt: skip
    readers = [
        threading.Thread(target=_pass_on, args=(task.stdout, f"{number:{width}}: ".encode()))
        for number, task in enumerate(tasks)
    ]
    for reader in readers:
        reader.start()
    while data := os.read(0, 65536):
        for task in tasks:
            assert task.stdin is not None
            try:
                task.stdin.write(data)
                task.stdin.flush()
            except BrokenPipeError:
                continue
    for task in tasks:
        assert task.stdin is not None
        task.stdin.close()
    for reader in readers:
        reader.join()
    return max(task.wait() for task in tasks)


def _say(reason: str) -> None:
    print(f"srun: {reason}", file=sys.stderr, flush=True)
    Path(os.environ["SRUN_SPOKEN"]).touch()


def _pass_on(output: IO[bytes], label: bytes) -> None:
    for line in output:
        pieces = [line[at : at + CUT] for at in range(0, len(line), CUT)]
        for piece in pieces:
            with _writing:
                sys.stdout.buffer.write(label + piece.removesuffix(b"\n") + b"\n")
                sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
