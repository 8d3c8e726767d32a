"""A rank with a mapped file of libnccl's name, and a stand-in for RAS in its process.

Settings come as JSON in its one argument: `library`, `port`, `host`, `answer` (a file that holds
what RAS says), `fault`, `job`, `backend`, `commands` (a file for the lines that came), `inside` (a
file whose function the main thread calls). Commands on standard input: `pseudo KIND`, `over`.
"""

from __future__ import annotations

import importlib.util
import json
import mmap
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from agent.ring_builder import RingBuilder
from ras.stand_in import StandIn


def main() -> None:
    options: dict[str, Any] = json.loads(sys.argv[1])
    os.environ["TORCHELASTIC_RUN_ID"] = options.get("job", "one")
    if path := options.get("library"):
        with Path(path).open("rb") as file:
            held = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)  # noqa: F841 - stays mapped
    server = None
    if options.get("port"):
        server = StandIn(
            lambda form: Path(f"{options['answer']}.{form}").read_bytes(),
            host=options.get("host", "127.0.0.1"),
            port=options["port"],
            knows_json=options.get("json", True),
            fault=options.get("fault", ""),
        )
    builder = RingBuilder(Path(os.environ["FRTOP_DIR"]), rank=int(os.environ.get("RANK", "0")))
    builder.standard_tables()
    if options.get("groups", True):
        builder.add_group(1, "0-1", backend=options.get("backend", "nccl"))
    for _ in range(options.get("ops", 3)):
        builder.op(done=True)
    threading.Thread(target=beat, args=(builder,), daemon=True).start()
    print("ready", flush=True)
    threading.Thread(target=report, args=(server, options.get("commands")), daemon=True).start()
    if inside := options.get("inside"):
        call(Path(inside))
    pending = 0
    for line in sys.stdin:
        if line.startswith("pseudo"):
            pending = builder.pseudo(line.split()[1])
        elif line.startswith("over"):
            builder.complete(pending)
        print("done", flush=True)


def beat(builder: RingBuilder) -> None:
    while True:
        time.sleep(0.05)
        builder.beat()


def report(server: StandIn | None, path: str | None) -> None:
    """Writes the lines that came, for the test to read."""
    while server is not None and path:
        Path(path).write_text("\n".join(server.commands))
        time.sleep(0.05)


def call(path: Path) -> None:
    """Calls the function `wait_here` of a file: what the main thread is in."""
    spec = importlib.util.spec_from_file_location("somewhere", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.wait_here()


if __name__ == "__main__":
    main()
