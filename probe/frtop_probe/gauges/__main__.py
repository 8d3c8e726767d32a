"""The child that reads GPUs through NVML.

A request has `processes`: whether to ask for the processes on each GPU.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from frtop_probe.gauges.nvml import NvmlReader
from frtop_probe.proc import line_server


def _prepare() -> line_server.Answer:
    reader = NvmlReader()
    reader.load()  # a busy host makes this slow, not the driver

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        return asdict(reader.read(processes=bool(request.get("processes"))))

    return answer


if __name__ == "__main__":
    line_server.serve(_prepare)
