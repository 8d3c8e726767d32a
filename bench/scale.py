"""A whole fleet and one operator: seconds to the view and the verdict, CPU, memory, traffic.

    python -m bench scale [work] [sockets] [RANKS ...]

`work` feeds the messages of scripted agents to the operator's session in one process: its CPU time
by part, whatever else the machine does. `sockets` starts agents (`bench/fleet.py`) with sockets and
handshakes of their own, and an operator with the live source and no screen; the fleet takes
processors from it, so it wants a machine that is quiet.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final
from unittest import mock

from bench.fleet import FleetScript, mesh_of, raise_file_limit
from bench.operator_work import OperatorWork
from frtop_probe import keys, wire
from frtop_probe.agent.service import tick_s
from frtop_tui.connect.endpoints import Endpoint
from frtop_tui.connect.live import LiveSource
from frtop_tui.diagnosis.model import Frame

POINTS: Final = (1_024, 16_384)
"""100,000 takes minutes and gigabytes: it is measured when it is named."""
HOSTS_PER_PROCESS: Final = 6_250
WINDOW_S: Final = 20.0
PATIENCE_S: Final = 300.0
POLL_S: Final = 0.02
FAULT: Final = "stall"
Until = Callable[[Frame], bool]


def main() -> None:
    """Prints a table for each number of ranks and each of the two ways."""
    points = [int(one.replace(",", "")) for one in sys.argv[1:] if one[:1].isdigit()] or POINTS
    ways = {"work": _measure_work, "sockets": _measure_sockets}
    named = [way for way in ways if way in sys.argv[1:]]
    for way in named or ways:
        for ranks in points:
            mesh = mesh_of(ranks)
            print(f"{way}: {mesh.world:,} ranks, {mesh.hosts:,} agents, an update each"
                  f" {tick_s(mesh.world):.1f} s; load before {os.getloadavg()[0]:.1f} on"
                  f" {os.cpu_count()} cores")  # fmt: skip
            ways[way](ranks)
            print()


def _conditions(world: int, culprit: int) -> tuple[Until, Until, Until]:
    """All ranks are there; the verdict names the culprit and nobody else; it is confirmed."""

    def complete(frame: Frame) -> bool:
        return frame.coverage.reporting == world == frame.coverage.expected

    def named(frame: Frame) -> bool:
        return bool(frame.verdicts) and frame.verdicts[0].culprits == (culprit,)

    def confirmed(frame: Frame) -> bool:
        return named(frame) and frame.verdicts[0].confidence == "confirmed"

    return complete, named, confirmed


def _never(_: Frame) -> bool:
    return False


def _measure_work(ranks: int) -> None:
    work = OperatorWork(ranks, FAULT)
    try:
        script = work.script
        complete, named, confirmed = _conditions(script.shape.world, script.culprit)
        _print_work("first view of all ranks", work, work.until(complete, PATIENCE_S))
        _print_work("the job runs", work, work.until(_never, WINDOW_S))
        script.told[0] = script.step_at(work.now_ns) + 2
        fault_ns = script.step_ns(script.told[0])
        for name, until in (("culprit named", named), ("confirmed", confirmed)):
            spent = work.until(until, PATIENCE_S)
            spent["seconds"] = (work.now_ns - fault_ns) / 1e9
            _print_work(f"a rank hangs: {name}", work, spent)
        _print_work("the job hangs", work, work.until(_never, WINDOW_S))
    finally:
        work.close()


def _print_work(name: str, work: OperatorWork, spent: defaultdict[str, float]) -> None:
    updates, frames = max(1, spent["ranks"]), max(1, spent["made frames"])
    seconds = spent["passed"]
    print(
        f"  {name:<28}{spent['seconds']:7.1f} s   CPU by second:"
        f" updates {spent['take updates'] / seconds:.2f}"
        f" ({1e6 * spent['take updates'] / updates:.1f} us a rank),"
        f" answers {spent['take answers'] / seconds:.2f},"
        f" frames {spent['frames'] / seconds:.2f}"
        f" ({spent['made frames']:.0f} of {1e3 * spent['frames'] / frames:,.0f} ms),"
        f" between {spent['between frames'] / seconds:.2f};"
        f" {spent['updates'] / seconds:,.0f} updates/s, {spent['update bytes'] / seconds / 1e6:.1f}"
        f" MB/s; {spent['answers']:,.0f} answers, {spent['answer bytes'] / 1e6:.1f} MB;"
        f" {work.memory / 1e6:,.0f} MB",
        flush=True,
    )


def _measure_sockets(ranks: int) -> None:
    with _fleet(ranks) as (fleet, script, endpoints):
        with _operator("moving", script, endpoints) as operator:
            _print_phase("connect to the view of all ranks", _read(operator))
            _print_phase("the job runs", _read(operator))
            step = script.step_at(time.monotonic_ns()) + 3
            for process in fleet:
                _say(process.stdin, f"fault {step}")
            script.told[0] = step
            _say(operator.stdin, str(script.step_ns(step)))
            _print_phase("a rank hangs: culprit named", _read(operator))
            _print_phase("a rank hangs: confirmed", _read(operator))
            _print_phase("the job hangs", _read(operator))
        with _operator("hung", script, endpoints) as operator:
            _print_phase("connect to the hung job: all ranks", _read(operator))
            _print_phase("connect to the hung job: named", _read(operator))
            _print_phase("connect to the hung job: confirmed", _read(operator))


@contextmanager
def _fleet(
    ranks: int,
) -> Iterator[tuple[list[subprocess.Popen[str]], FleetScript, list[list[Any]]]]:
    folder = Path(tempfile.mkdtemp(prefix="frtop-bench-", dir="/dev/shm"))
    script = FleetScript(mesh_of(ranks), FAULT, time.monotonic_ns())
    processes: list[subprocess.Popen[str]] = []
    try:
        os.environ[keys.FILE_VARIABLE] = str(folder / "key")
        keys.load(create=True)
        count = -(-script.shape.hosts // HOSTS_PER_PROCESS)
        processes += [
            _start("bench.fleet", str(ranks), FAULT, str(script.begin_ns), str(n), str(count))
            for n in range(count)
        ]
        endpoints = [one for process in processes for one in _read(process)]
        yield processes, script, endpoints
    finally:
        for process in processes:
            _end(process)
        shutil.rmtree(folder)


@contextmanager
def _operator(
    state: str, script: FleetScript, endpoints: list[list[Any]]
) -> Iterator[subprocess.Popen[str]]:
    process = _start("bench.scale", state, str(script.shape.world), str(script.culprit))
    try:
        _say(process.stdin, json.dumps(endpoints))
        yield process
    finally:
        _end(process)


def _start(module: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments], text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip


def _end(process: subprocess.Popen[str]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None and not pipe.closed:
            pipe.close()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _say(to: IO[str] | None, line: str) -> None:
    assert to is not None
    to.write(line + "\n")
    to.flush()


def _read(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "the process ended"
    return json.loads(line)


def _print_phase(name: str, one: dict[str, float]) -> None:
    took = one["wall"]
    print(
        f"  {name:<40}{took:7.1f} s"
        f"   CPU {one['cpu']:6.1f} s (Python {one['python']:.1f}, sockets {one['io']:.1f})"
        f"   {one['updates'] / took:,.0f} updates/s with {one['ranks'] / took:,.0f} ranks,"
        f" {one['bytes'] / took / 1e6:.2f} MB/s;"
        f" {one['responses']:,.0f} responses, {one['response_bytes'] / 1e6:.1f} MB"
        f"   {one['frames'] / took:.2f} frames/s   {one['rss'] / 1e6:,.0f} MB"
        f" (peak {one['peak'] / 1e6:,.0f})   oldest report {one['oldest']:.1f} s,"
        f" {one['lost']:.0f} updates lost, {one['files']:.0f} files",
        flush=True,
    )


class _Operator:
    """The operator's process: the live source, and what it takes."""

    def __init__(self, endpoints: tuple[Endpoint, ...]) -> None:
        self._counts: Counter[str] = Counter()
        self._count_messages()
        self._begin()
        self.begun_ns = time.monotonic_ns()
        self._source = LiveSource(agents=endpoints)

    def _count_messages(self) -> None:
        counts = self._counts
        update_of, response_of = wire.decode_update, wire.decode_response

        def decode_update(data: bytes) -> wire.Update:
            update = update_of(data)
            counts["updates"] += 1
            counts["ranks"] += len(update.ranks)
            counts["bytes"] += len(data)
            return update

        def decode_response(data: bytes) -> wire.Response:
            counts["responses"] += 1
            counts["response_bytes"] += len(data)
            return response_of(data)

        mock.patch.object(wire, "decode_update", decode_update).start()
        mock.patch.object(wire, "decode_response", decode_response).start()

    def _begin(self) -> None:
        self._phase_ns, self._before = time.monotonic_ns(), self._now()

    def _now(self) -> dict[str, float]:
        cpu_s = {"io": 0.0, "cpu": time.process_time()}
        for task in Path("/proc/self/task").iterdir():
            fields = (task / "stat").read_text().rpartition(")")
            if "ZMQ" in fields[0]:
                ticks = sum(map(int, fields[2].split()[11:13]))
                cpu_s["io"] += ticks / os.sysconf("SC_CLK_TCK")
        cpu_s["python"] = cpu_s["cpu"] - cpu_s["io"]
        zero = dict.fromkeys(("updates", "ranks", "bytes", "responses", "response_bytes"), 0)
        return {**zero, "frames": 0, **self._counts, **cpu_s}

    def until(self, holds: Until, *, since_ns: int = 0, at_most_s: float) -> None:
        """Follows frames until one fits, then prints what this phase took."""
        until, frame = time.monotonic() + at_most_s, self._source.frame()
        while not holds(frame) and time.monotonic() < until:
            newest = self._source.frame()
            self._counts["frames"] += newest is not frame
            frame = newest
            time.sleep(POLL_S)
        now_ns, now = time.monotonic_ns(), self._now()
        phase = {name: value - self._before[name] for name, value in now.items()}
        statm = Path("/proc/self/statm").read_text().split()
        phase |= {
            "wall": (now_ns - (since_ns or self._phase_ns)) / 1e9,
            "rss": int(statm[1]) * resource.getpagesize(),
            "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "oldest": (frame.now_ns - min((h.reported_ns for h in frame.hosts), default=0)) / 1e9,
            "lost": sum(host.lost_updates for host in frame.hosts),
            "files": sum(1 for _ in Path("/proc/self/fd").iterdir()),
        }
        sys.stdout.write(json.dumps(phase) + "\n")
        sys.stdout.flush()
        self._begin()

    def close(self) -> None:
        self._source.close()


def _operate(state: str, world: int, culprit: int) -> None:
    endpoints = tuple(
        Endpoint(host, address, pub, ask, keys.load(create=False).public)
        for host, address, pub, ask in json.loads(sys.stdin.readline())
    )
    raise_file_limit(2 * len(endpoints) + 512)
    operator = _Operator(endpoints)

    complete, named, confirmed = _conditions(world, culprit)
    operator.until(complete, at_most_s=PATIENCE_S)
    since_ns = operator.begun_ns
    if state == "moving":
        operator.until(_never, at_most_s=WINDOW_S)
        since_ns = int(sys.stdin.readline())
    operator.until(named, since_ns=since_ns, at_most_s=PATIENCE_S)
    operator.until(confirmed, since_ns=since_ns, at_most_s=PATIENCE_S)
    if state == "moving":
        operator.until(_never, at_most_s=WINDOW_S)
    operator.close()


if __name__ == "__main__":
    _operate(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
