"""A process with the agents of some scripted hosts: `frtop demo --ranks` starts some of them.

    python -m frtop_tui.demo.scripted RANKS FAULT BEGIN_NS PROCESS PROCESSES

It prints its hosts' ports in one line of JSON, and ends with its standard input.
"""

from __future__ import annotations

import json
import signal
import sys

from frtop_probe import keys
from frtop_tui.demo.scripted.script import Script, ScriptedMesh
from frtop_tui.demo.scripted.service import Service


def main() -> None:
    """Serves until the other end of standard input closes for whatever reason."""
    ranks, fault, begin_ns, process, processes = sys.argv[1:6]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # from the terminal; whoever started this ends it
    script = Script(ScriptedMesh.of(int(ranks)), fault, int(begin_ns))
    hosts = range(int(process), script.shape.hosts, int(processes))
    service = Service(keys.load(create=False), script, hosts)
    try:
        found = [(agent.host.name, agent.pub, agent.ask) for agent in service.agents]
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()
        service.stop_with(sys.stdin.fileno())
        service.run()
    finally:
        service.close()


if __name__ == "__main__":
    main()
