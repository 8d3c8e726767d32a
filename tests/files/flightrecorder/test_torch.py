"""Dumps that the installed torch writes of a real job."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from frtop_tui.files.flightrecorder.dump_file import read_dumps
from frtop_tui.files.loader import open_paths
from frtop_tui.text.plain import text

pytestmark = [pytest.mark.torch, pytest.mark.long]  # recorded dumps are read by others
PROGRAM = Path(__file__).parents[2] / "jobs" / "dumping.py"
FORKS = """
import os, runpy, sys, torch.distributed
for rank in range(3):
    if not os.fork():
        os.environ["RANK"] = str(rank)
        runpy.run_path(sys.argv[2], run_name="__main__")
        os._exit(0)
sys.exit(any([os.wait()[1] for _ in range(3)]))
"""


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = run(PROGRAM, tmp_path_factory.mktemp("dumps"))
    for path in folder.glob("*rank*"):
        age(path)
    return folder


def run(program: Path, folder: Path) -> Path:
    """Runs three ranks of the program to their end; torch is imported once for all."""
    ranks = subprocess.Popen(
        [sys.executable, "-c", FORKS, str(folder), str(program)],
        env={**os.environ, "GLOO_SOCKET_IFNAME": "lo"},
        start_new_session=True,
    )
    try:
        assert ranks.wait(150) == 0
    finally:
        with suppress(ProcessLookupError):
            os.killpg(ranks.pid, signal.SIGKILL)
        ranks.wait()
    return folder


def age(path: Path) -> None:
    """Dates a file 10 s ahead: pending ops count as a wait only from 3 s on."""
    written = time.time() + 10
    os.utime(path, (written, written))


@pytest.mark.parametrize("name", ["nccl_trace_rank_", "comm_lib_trace_rank_", "fr_trace_json."])
def test_the_rank_that_has_not_entered_the_op_is_named(dumps: Path, name: str) -> None:
    frame = open_paths(sorted(dumps.glob(f"{name}*")))
    (verdict,) = frame.verdicts
    assert (verdict.kind, verdict.culprits) == ("not_entered", (1,))
    report = "\n".join(text(frame))
    assert "all_reduce #5 of default_pg" in report
    assert ("dumping.py:" in report) == (name == "nccl_trace_rank_")


def test_two_dump_formats_of_one_rank_are_merged(dumps: Path) -> None:
    frame = open_paths([dumps])
    assert [verdict.culprits for verdict in frame.verdicts] == [(1,)]
    snapshot = frame.ranks[0].snapshot
    assert snapshot is not None
    assert len({op.sequence for op in snapshot.ops}) == len(snapshot.ops)


def test_the_page_of_torchs_debug_server_is_read(dumps: Path, tmp_path: Path) -> None:
    jinja2 = pytest.importorskip("jinja2")
    frontend = pytest.importorskip("torch.distributed.debug._frontend")
    pages = {"base.html": frontend.BASE_TEMPLATE, "page": frontend.JSON_RESP_TEMPLATE}
    env = jinja2.Environment(loader=jinja2.DictLoader(pages), autoescape=False)
    responses = [SimpleNamespace(status_code=200, text=path.read_text())
               for path in sorted(dumps.glob("fr_trace_json.*"))]  # fmt: skip
    page = env.get_template("page").render(
        title="FlightRecorder",
        addrs=[f"http://node{rank}:1/handler/fr_trace_json?" for rank in range(3)],
        resps=responses,
        zip=zip,
        enumerate=enumerate,
        format_json=frontend.format_json,
        nav_links="",
    )
    (tmp_path / "fr_trace_json.html").write_text(page)
    age(tmp_path / "fr_trace_json.html")
    frame = open_paths([tmp_path])
    assert [verdict.culprits for verdict in frame.verdicts] == [(1,)]
    assert frame.ranks[2].host == "node2"


def test_a_healthy_gloo_job_is_healthy_as_of_just_after_its_ops(tmp_path: Path) -> None:
    """Its ops stay `scheduled` for ever; only `retired` shows completion, some µs later."""
    run(PROGRAM.with_name("through.py"), tmp_path)
    for rank, view in open_paths([tmp_path / "later"]).ranks.items():
        written = view.reported_ns + 1_000_000_000
        os.utime(tmp_path / "later" / f"nccl_trace_rank_{rank}", ns=(written, written))
    frame = open_paths([tmp_path / "later"])
    assert (frame.health, frame.verdicts) == ("healthy", ())
    for path in tmp_path.glob("*/*rank*"):
        age(path)
    frame = open_paths([tmp_path / "later"])
    assert (frame.health, frame.verdicts) == ("undecided", ())
    assert {entry["state"] for entry in entries(tmp_path / "later")} == {"scheduled"}
    frame = open_paths([tmp_path / "at_once"])
    assert [verdict.culprits for verdict in frame.verdicts] in ([], [()])
    is_retired = all(entry["retired"] for entry in entries(tmp_path / "at_once"))
    assert bool(frame.verdicts) is not is_retired


def entries(folder: Path) -> list[dict[str, Any]]:
    dumps = (next(read_dumps(path)).values for path in folder.iterdir())
    return [entry for dump in dumps for entry in dump["entries"]]
