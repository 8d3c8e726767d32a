"""The child that reads a host. A request has the `pids` of the ranks."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any

from frtop_probe.gauges.host.sources import HostSources
from frtop_probe.proc import line_server


def _prepare() -> line_server.Answer:
    sources = HostSources()

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        pids = request.get("pids", ())
        return asdict(sources.read([pid for pid in pids if isinstance(pid, int)]))

    return answer


if __name__ == "__main__":
    line_server.serve(_prepare)
    os._exit(0)  # without waiting for threads that hang
