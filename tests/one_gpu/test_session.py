"""The kit itself: deadlines that hold, results after every check, nothing left behind."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from frtop_probe.proc.pid_stat import Stat
from gpu_kit import facts, pack, processes, session, status
from gpu_kit.points import Check

PROGRAM = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"],
                         start_new_session=True)
print(child.pid, flush=True)
time.sleep(600)
"""


def test_a_check_that_hangs_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    """In a process of its own: what is killed are all descendants of the caller."""
    driver = (
        "import sys; from pathlib import Path; from gpu_kit import processes\n"
        "processes.adopt_orphans()\n"
        "one = processes.start([sys.executable, '-c', sys.argv[1]], {}, Path(sys.argv[2]))\n"
        "assert processes.wait(one, 1.5) is None\n"
        "assert processes.end_all() == []\n"
    )
    log = tmp_path / "log"
    environment = {"PYTHONPATH": str(Path(__file__).parents[2])}
    outer = processes.start(
        [sys.executable, "-c", driver, PROGRAM, str(log)], environment, tmp_path / "outer"
    )
    assert processes.wait(outer, 30) == 0, (tmp_path / "outer").read_text()
    assert not Path(f"/proc/{int(log.read_text())}").exists()


def made(pid: int, name: str, state: str, parent: int) -> Stat:
    return Stat(pid, name, state, parent, 0, 0, 0, 0, 1, 0, 0, 0)


def test_descendants_are_found_through_their_parents() -> None:
    stats = [made(2, "a", "S", 1), made(3, "b", "S", 2),
             made(4, "c", "Z", 2), made(5, "d", "S", 9)]  # fmt: skip
    assert [stat.pid for stat in processes.descendants(1, stats)] == [2, 3]


def test_facts_that_were_cut_off_are_left_out(tmp_path: Path) -> None:
    file = tmp_path / "facts"
    file.write_text('{"fact": "a", "rank": 1}\n7\n{"fact": "b", "ra')
    assert facts.of(facts.read(file), "a", rank=1) == [{"fact": "a", "rank": 1}]
    assert facts.read(tmp_path / "none") == []


def test_results_are_written_although_no_check_had_time(tmp_path: Path) -> None:
    check = Check("surroundings", 60, {"machine": "what is here"})
    one = session.Session(tmp_path, tmp_path / "out", dry=True, until=0.0, work=tmp_path / "work")
    one.findings += one._one(check)
    (tmp_path / "out").mkdir()
    one.write()
    (point,) = json.loads((tmp_path / "out" / "results.json").read_text())["points"]
    assert (point["state"], point["text"]) == ("not run here", "no time was left")
    assert "what is here" in (tmp_path / "out" / "report.txt").read_text()


def test_an_unknown_check_is_said_with_those_that_exist() -> None:
    with pytest.raises(LookupError, match="surroundings"):
        session.chosen(["steeps"])


def test_status_of_a_recorded_dump() -> None:
    numbers = {"last_completed": "5", "last_enqueued": "6", "last_started": "-1"}
    group = {f"{name}_collective": number for name, number in numbers.items()}
    dump = json.dumps({"pg_status": {"0": group}, "version": "2.10"}).encode()
    assert status.parse(dump) == {"0": status.GroupStatus(6, -1, 5)}
    for broken in (b"{}", b'{"pg_status": {"0": {}}}', b"not JSON"):
        with pytest.raises(ValueError):  # noqa: PT011 - whatever it says
            status.parse(broken)


def test_the_kit_brings_what_frtop_depends_on_and_not_torch() -> None:
    root = Path(__file__).parents[2]
    names = " ".join(pack.needed(root / "pyproject.toml"))
    for name in ("ClusterShell", "msgpack", "msgspec", "py-spy", "pyzmq", "textual"):
        assert name in names
    assert "torch" not in names


def test_the_packed_kit_starts_by_itself(tmp_path: Path) -> None:
    wheels, target = tmp_path / "wheels", tmp_path / "gpu-kit"
    wheels.mkdir()
    pack.copy(Path(__file__).parents[2], target, wheels)
    done = processes.start(
        [sys.executable, str(target), "--help"], {"PATH": os.environ["PATH"]}, tmp_path / "log"
    )
    assert processes.wait(done, 30) == 0
    assert "--dry" in (tmp_path / "log").read_text()
    assert (target / "tests" / "jobs" / "not_entered" / "sleeping.py").exists()
