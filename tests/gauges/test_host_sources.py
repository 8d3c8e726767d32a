"""The gauges of a host: this one, and what it lacks in the form that the kernel's pages give."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from frtop_probe.gauges.host import hanging
from frtop_probe.gauges.host.cgroups import CgroupSource, place
from frtop_probe.gauges.host.disks import DiskSource
from frtop_probe.gauges.host.figures import NO_PRESSURE, CpuSource, TcpSource, TreeSource
from frtop_probe.gauges.host.hanging import HangingCalls
from frtop_probe.gauges.host.mounts import Mount
from frtop_probe.gauges.host.network import NO_INFINIBAND, InfinibandSource, NicSource
from frtop_probe.gauges.host.sources import HostSources
from frtop_probe.gauges.readings import SubjectReading
from gauges.hung_mount import hung_mount, possible
from gauges.trees import cgroup_v2, infiniband_port, nic, write
from waiting import wait_for
from zoo import cgroup

PROC = Path("/proc")
S = 1_000_000_000
BURN = "import time\nwhile True: pass"
LIMIT = 48 << 20
HOG = "data = b'x' * (96 << 20)"


@contextmanager
def running(program: str, *, inside: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A Python process, in a cgroup from its first instruction on."""
    join = f"open({str(inside / 'cgroup.procs')!r}, 'w').write('0')\n" if inside else ""
    process = subprocess.Popen([sys.executable, "-c", join + program])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def by_kind(subjects: Iterator[SubjectReading] | tuple[SubjectReading, ...]) -> dict[
    str, list[SubjectReading]
]:  # fmt: skip
    found: dict[str, list[SubjectReading]] = {}
    for one in subjects:
        found.setdefault(one.kind, []).append(one)
    return found


def test_this_host_has_plausible_figures() -> None:
    sources = HostSources()
    began = time.monotonic()
    sources.read([os.getpid()])
    used = time.process_time()
    while time.process_time() < used + 0.3:
        pass
    reading = sources.read([os.getpid()])
    share = 0.3 / (time.monotonic() - began)  # other programs may have had the cores
    found = by_kind(reading.subjects)
    (host,) = found["host"]
    assert host.values["cores"] == os.cpu_count()
    assert 0 < host.values["cpu"] <= 1000
    assert 0 < host.values["mem_available"] < host.values["mem_total"]
    assert ("psi_cpu" in host.values) is not (NO_PRESSURE in reading.notes)
    (own,) = found["rank"]
    assert own.pids == (os.getpid(),)
    assert own.values["cpu"] > 500 * share  # thousandths of a core
    assert {one.name for one in found["disk"]} >= {"/"}
    assert all(0 <= one.values["free"] <= one.values["size"] for one in found["disk"])
    devices = Path("/sys/class/infiniband")
    assert (NO_INFINIBAND in reading.notes) is not (devices.exists() and any(devices.iterdir()))


def test_a_tree_counts_children_also_after_their_end() -> None:
    source = TreeSource(PROC, os.sysconf("SC_CLK_TCK"))
    children = (
        "import subprocess, sys, time\n"
        "p = subprocess.Popen([sys.executable, '-c', 'import time\\n"
        "end = time.process_time() + 0.3\\nwhile time.process_time() < end: pass'])\n"
        "p.wait()\nprint(1, flush=True)\ntime.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", children], stdout=subprocess.PIPE)
    try:
        begin = time.monotonic_ns()
        list(source.read([process.pid], begin))
        assert process.stdout is not None
        process.stdout.readline()
        now = time.monotonic_ns()
        (tree,) = source.read([process.pid], now)
        assert tree.values["cpu"] * (now - begin) / S >= 280  # thousandths of a core, for so long
        assert tree.values["processes"] == 1
        resident = Path(f"/proc/{process.pid}/statm").read_text().split()[1]
        pages = int(resident)  # the kernel sums both up at different times
        assert tree.values["mem"] == pytest.approx(pages * os.sysconf("SC_PAGE_SIZE"), rel=0.2)
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
    assert list(source.read([process.pid], time.monotonic_ns())) == []


@pytest.mark.skipif(not cgroup.possible("cpu"), reason="needs a cgroup of its own")
def test_a_rank_that_is_held_back_by_its_cgroup_is_seen() -> None:
    source = CgroupSource(PROC)
    with cgroup.limited("cpu") as folder, running(BURN, inside=folder) as process:

        def held_back() -> dict[str, int] | None:
            # We may be in the same cgroup of memory: it has another name all the same.
            read = list(source.read([process.pid, os.getpid()], time.monotonic_ns()))
            assert len({one.name for one in read}) == len(read)
            found = [one for one in read if one.pids == (process.pid,)]
            values = dict(found[0].values) if found else {}
            return values if values.get("throttled", 0) > 500 else None

        values = wait_for(held_back, "throttling", pause_s=0.3)
        assert values["cpu_limit"] == 10  # 1 % of a core
        process.kill()
        process.wait()


@pytest.mark.skipif(not cgroup.possible("memory"), reason="needs a cgroup of its own")
def test_a_kill_for_want_of_memory_is_counted_in_the_ranks_cgroup() -> None:
    source = CgroupSource(PROC)
    with cgroup.limited("memory") as folder:
        for name in ("memory.limit_in_bytes", "memory.max"):
            if (folder / name).exists():
                (folder / name).write_text(str(LIMIT))
        with running("import time; time.sleep(600)", inside=folder) as rank:

            def values() -> dict[str, int]:
                found = by_kind(source.read([rank.pid], time.monotonic_ns())).get("cgroup", [])
                return dict(found[0].values) if found else {}

            wait_for(lambda: values().get("mem_limit") == LIMIT, "the limit")
            assert values()["oom_kills"] == 0
            with running(HOG, inside=folder) as hog:
                assert hog.wait() != 0
            assert wait_for(lambda: values().get("oom_kills"), "the kill") == 1


def test_the_tightest_limit_of_all_levels_counts(tmp_path: Path) -> None:
    mounts = f"31 22 0:28 / {tmp_path}/cg rw - cgroup2 cgroup2 rw"
    pod, own = "cg/kubepods/pod7", "cg/kubepods/pod7/main"
    stat = "usage_usec {}\nnr_periods {}\nnr_throttled {}\nthrottled_usec 9"
    files = {
        "proc/self/mountinfo": mounts,
        "proc/77/cgroup": "0::/kubepods/pod7/main",
        **cgroup_v2(own, cpu_max="max 100000", cpu_stat=stat.format(10**6, 0, 0),
                    memory_max="max", memory_current=5 << 30, memory_events="oom 0\noom_kill 0",
                    memory_pressure="some avg10=12.34 avg60=0.00 avg300=0.00 total=5"),
        **cgroup_v2(pod, cpu_max="400000 100000", cpu_stat=stat.format(2 * 10**6, 100, 10),
                    memory_max=16 << 30, memory_current=7 << 30,
                    memory_events="oom 3\noom_kill 3"),
    }  # fmt: skip
    source = CgroupSource(write(tmp_path, files) / "proc")
    list(source.read([77], 1 * S))
    write(tmp_path, {f"{own}/cpu.stat": stat.format(3 * 10**6, 0, 0),
                     f"{pod}/cpu.stat": stat.format(5 * 10**6, 120, 15)})  # fmt: skip
    (found,) = source.read([77], 2 * S)
    assert (found.name, found.pids, found.detail) == ("/kubepods/pod7/main", (77,), "cgroup v2")
    assert found.values == {
        "cpu": 2000, "cpu_limit": 4000, "throttled": 250, "mem_limit": 16 << 30,
        "mem_used": 7 << 30, "oom_kills": 3, "psi_memory": 123,
    }  # fmt: skip


def test_a_cgroup_outside_of_what_is_mounted_here_is_not_guessed() -> None:
    mount = Mount("0:28", "/docker/abc", "/sys/fs/cgroup", "cgroup2", "cgroup2")
    assert place("/docker/xyz", mount, 2) is None
    assert place("/docker/abc/../../other", mount, 2) is None
    inside = place("/docker/abc/x", mount, 2)
    assert inside is not None
    assert [str(one) for one in inside.levels] == ["/sys/fs/cgroup/x", "/sys/fs/cgroup"]


@pytest.mark.skipif(not possible(), reason="needs root and /dev/fuse")
def test_a_file_system_that_hangs_is_named_and_the_others_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hanging, "PATIENCE_S", 0.3)
    point = tmp_path / "data"
    point.mkdir()
    with hung_mount(point):
        # A process that was in the folder before would hang; its link is all that is read.
        rank = write(tmp_path / "proc", {"77/mountinfo": (PROC / "self/mountinfo").read_text()})
        (rank / "77/cwd").symlink_to(point / "shards")
        source = DiskSource(rank, HangingCalls())

        def problem() -> str:
            disks = {one.name: one for one in source.read([77], time.monotonic_ns())}
            assert "free" in disks["/dev/shm"].values
            assert "free" not in disks[str(point)].values
            return disks[str(point)].problem

        assert wait_for(problem, "that it hangs") == "it does not answer"


def test_a_call_that_hangs_is_begun_once_and_reported_when_it_returns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hanging, "PATIENCE_S", 0.05)
    calls = HangingCalls()
    read, write_end = os.pipe()
    for _ in range(3):
        calls.begin("one", lambda: os.read(read, 1))
    wait_for(lambda: calls.newest("one", 0.0)[1] > 0.05, "that it hangs")
    os.write(write_end, b"x")
    wait_for(lambda: calls.newest("one", time.monotonic() + 1) == (b"x", 0.0), "the answer")
    for end in (read, write_end):
        os.close(end)


def test_an_interface_has_rates_errors_and_speed(tmp_path: Path) -> None:
    source = NicSource(write(tmp_path, {
        **nic("eth0", 1000, 2000), **nic("lo", 5, 5), **nic("unused", 0, 0),
        **nic("away", 7, 7, operstate="down"),
    }))  # fmt: skip
    assert [one.values for one in source.read(1 * S)] == [
        {"speed": 3_125_000_000, "errors": 0, "drops": 0}
    ]
    write(tmp_path, nic("eth0", 1000 + 6000, 2000 + 800, **{"statistics/rx_errors": 3}))
    (eth0,) = source.read(3 * S)
    assert (eth0.name, eth0.values) == ("eth0", {
        "speed": 3_125_000_000, "received": 3000, "sent": 400, "errors": 3, "drops": 0,
    })  # fmt: skip
    write(tmp_path, nic("eth0", 100, 2800, speed=-1))  # it was made anew
    (eth0,) = source.read(4 * S)
    assert eth0.values == {"sent": 0, "errors": 0, "drops": 0}


def test_a_port_of_infiniband_has_rates_state_and_errors(tmp_path: Path) -> None:
    source = InfinibandSource(write(tmp_path, infiniband_port(4000, 8000)))
    source.read(1 * S)
    write(tmp_path, infiniband_port(4000 + 8 << 30, 8000, state="1: DOWN", errors=7, downed=1))
    (port,) = source.read(2 * S)
    assert (port.kind, port.name, port.detail) == ("infiniband", "mlx5_0:1", "InfiniBand DOWN")
    assert port.values == {
        "state": 1, "speed": 50_000_000_000, "received": (4000 + 8 << 30) - 4000, "sent": 0,
        "errors": 7, "link_downed": 1, "discards": 0, "waits": 0,
    }  # fmt: skip
    assert InfinibandSource(tmp_path / "none").read(1 * S) == ()


def test_cpu_shares_are_of_the_time_between_two_readings(tmp_path: Path) -> None:
    write(tmp_path, {"stat": "cpu 100 0 50 800 50 0 0 0 0 0\ncpu0 1 2 3", "loadavg": "8.68 1 1"})
    source = CpuSource(tmp_path)
    assert source.read(1 * S) == {"cores": 1, "load": 868}
    write(tmp_path, {"stat": "cpu 160 0 60 810 65 0 0 5 0 0\ncpu0 1 2 3"})
    assert source.read(3 * S) == {"cores": 1, "load": 868, "cpu": 750, "iowait": 150, "steal": 50}


def test_what_tcp_sends_again_is_a_share_of_enough(tmp_path: Path) -> None:
    source = TcpSource(tmp_path)
    for at, sent, again, found in (
        (1, 100, 5, {}),
        (2, 1080, 25, {"retransmits": 20}),
        (3, 1180, 95, {}),  # of too few
        (4, 20, 0, {}),  # counted anew
    ):
        lines = f"Tcp: MaxConn OutSegs RetransSegs\nTcp: -1 {sent} {again}\n"
        write(tmp_path, {"net/snmp": lines})
        assert source.read(at * S) == found
