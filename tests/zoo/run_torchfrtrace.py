"""Runs `torchfrtrace` on several folders, each in its own fork, and prints the outputs.

python run_torchfrtrace.py PREFIX FOLDER... -> JSON, a list of outputs
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback

from torch.distributed.flight_recorder.fr_trace import main


def _run(arguments: list[str]) -> str:
    with tempfile.TemporaryFile() as output:
        pid = os.fork()
        if not pid:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            try:
                main(arguments)
            except BaseException:  # noqa: BLE001 - its exception is part of the output
                traceback.print_exc()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)
        os.waitpid(pid, 0)
        output.seek(0)
        return output.read().decode(errors="replace")


if __name__ == "__main__":
    # Its own message recommends this option where a rank has no dump.
    options = ["--allow-incomplete-ranks", "-p", sys.argv[1]]
    print(json.dumps([_run([*options, folder]) for folder in sys.argv[2:]]))
