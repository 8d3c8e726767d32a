"""The cost of `frtop profile`: a step before, while and after torch's profiler runs in a rank.

One process with the recorder trains 12 layers. Blocks before, during and after an order alternate
within the process, so all see the same machine; medians of steps count. The order goes to the
rank's own socket, as from an agent.

Then traces as a script's own profiler writes them are merged: time and peak memory.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

from bench.dumps import run

STEPS: Final = 40
ROUNDS: Final = 5
LAYERS: Final = 12
MERGED: Final = 4
MERGED_OPS: Final = 200_000
WAYS: Final[dict[str, dict[str, bool]]] = {
    "plain": {},
    "shapes": {"shapes": True},
    "stacks": {"stacks": True},
    "memory": {"memory": True},
    "execution trace": {"execution": True},
    "modules": {},
}


def main() -> None:
    """Prints medians of a step in ms, and for how long a rank stands still."""
    print("torch's profiler on request, one process: ms a step (medians), memory in MB")
    print(f"{'way':<18}{'before':>9}{'while':>9}{'after':>9}{'events':>9}{'stands':>9}"
          f"{'us/event':>9}{'file MB':>9}{'memory':>9}")  # fmt: skip
    for way in WAYS:
        found = _child(way)
        before, during, after = (found[name] for name in ("before", "during", "after"))
        events, still_ms = found["events"], found["still_ms"]
        print(f"{way:<18}{before:>9.2f}{during:>9.2f}{after:>9.2f}{events:>9,.0f}{still_ms:>9.0f}"
              f"{1000 * still_ms / events:>9.1f}{found['file_mb']:>9.1f}"
              f"{found['memory_mb']:>+9.0f}")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        size_mb = _write_traces(Path(folder)) / 1e6
        command = [
            sys.executable,
            "-m",
            "frtop_tui",
            "profile",
            folder,
            "-o",
            f"{folder}/all.json.gz",
        ]
        seconds, cpu, memory, said = run(command)
    print(f"frtop profile TRACES of {MERGED} ranks, {size_mb:.0f} MB: {seconds:.1f} s "
          f"({cpu:.1f} s of CPU), {memory:.0f} MB; {said.strip().splitlines()[-1]}")  # fmt: skip


def _write_traces(folder: Path) -> int:
    """Writes a trace for each rank: collectives as NCCL records them, and many small ops."""
    from features.profile.script_traces import document, nccl, span  # noqa: PLC0415 - of the tests

    size = 0
    for rank in range(MERGED):
        ops = [span("aten::add", n * 1.5, 1.0, rank, "cpu_op") for n in range(MERGED_OPS)]
        path = folder / f"rank{rank}.pt.trace.json"
        text = json.dumps(
            document(rank, [*nccl(rank, numbers=True), *ops], ahead_ns=rank * 5_000_000)
        )
        size += path.write_text(text)
    return size


def _child(way: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o700)
        settings = {"FRTOP_DIR": folder, "FRTOP_AGENT": "0"}
        settings["FRTOP_MODULES"] = str(int(way == "modules"))
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "bench.features.profile", way],
            env={**os.environ, **settings},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=True,
        )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def measure(way: str) -> dict[str, float]:
    """Runs in a child."""
    import torch  # noqa: PLC0415 - only the children need torch
    import torch.distributed as dist  # noqa: PLC0415
    from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: PLC0415

    import frtop_probe  # noqa: PLC0415
    from frtop_probe.recorder.process.lifecycle import lifecycle  # noqa: PLC0415

    frtop_probe.start()
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    torch.set_num_threads(1)
    model = torch.nn.Sequential(*(torch.nn.Linear(128, 128) for _ in range(LAYERS)))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    data = torch.ones(32, 128)

    def block() -> float:
        times = []
        for _ in range(STEPS):
            begin = time.perf_counter()
            model(data).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            times.append(time.perf_counter() - begin)
        return 1000 * statistics.median(times)

    assert lifecycle.recorder is not None
    path = lifecycle.recorder.ring.path.with_suffix(".sock")
    block()
    found: dict[str, list[float]] = {name: [] for name in ("before", "during", "after")}
    more: dict[str, list[float]] = {n: [] for n in ("events", "still_ms", "file_mb", "memory_mb")}
    for number in range(ROUNDS):
        order = f"{number:08x}"
        found["before"].append(block())
        memory = _memory()
        _ask(path, order=order, action="begin", steps=STEPS, wait_s=60.0, **WAYS[way])
        model(data).sum().backward()
        optimizer.step()  # starts it
        found["during"].append(block())
        while (status := _ask(path, order=order, action="status"))["stage"] != "ready":
            assert not status["error"], status["help"]
            time.sleep(0.05)
        more["memory_mb"].append((_memory() - memory) / 1e6)
        trace = path.with_suffix(".trace.json")
        more["file_mb"].append(trace.stat().st_size / 1e6)
        more["events"].append(len(json.loads(trace.read_bytes())["traceEvents"]))
        more["still_ms"].append(status["stood_still_ns"] / 1e6)
        _ask(path, order=order, action="withdraw")
        found["after"].append(block())
    return {name: statistics.median(values) for name, values in {**found, **more}.items()}


def _ask(path: Path, **request: Any) -> dict[str, Any]:
    from frtop_probe.recorder.requests.responder import HEAD  # noqa: PLC0415

    answer: list[dict[str, Any]] = []

    def exchange() -> None:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            client.sendall(json.dumps({"ask": "ProfileRank", **request}).encode())
            client.sendall(b"\n")
            data = b""
            while len(data) < HEAD.size or len(data) < HEAD.size + HEAD.unpack_from(data)[0]:
                data += client.recv(65536)
            answer.append(json.loads(data[HEAD.size :]))

    thread = threading.Thread(target=exchange)
    thread.start()
    thread.join(30)
    return answer[0]


def _memory() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1])))
    else:
        main()
