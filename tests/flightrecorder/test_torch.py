"""What the torch that is installed writes itself, of a real job."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from frtop_tui.export.flightrecorder.reading import values_of
from frtop_tui.export.opening import open_paths
from frtop_tui.report.text import text

pytestmark = pytest.mark.torch
PROGRAM = Path(__file__).parents[1] / "jobs" / "dumping.py"


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = ran(PROGRAM, tmp_path_factory.mktemp("dumps"))
    for path in folder.glob("*rank*"):
        age(path)
    return folder


def ran(program: Path, folder: Path) -> Path:
    """Three ranks of it to their end."""
    ranks = [
        subprocess.Popen(
            [sys.executable, str(program), str(folder)],
            env={**os.environ, "GLOO_SOCKET_IFNAME": "lo", "RANK": str(rank)},
        )
        for rank in range(3)
    ]
    try:
        assert [rank.wait(150) for rank in ranks] == [0, 0, 0]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    return folder


def age(path: Path) -> None:
    """What is pending counts as a wait from 3 s on, however fast torch dumps."""
    written = time.time() + 10
    os.utime(path, (written, written))


@pytest.mark.parametrize("name", ["nccl_trace_rank_", "comm_lib_trace_rank_", "fr_trace_json."])
def test_the_rank_that_has_not_come_is_named(dumps: Path, name: str) -> None:
    frame = open_paths(sorted(dumps.glob(f"{name}*")))
    (verdict,) = frame.verdicts
    assert (verdict.kind, verdict.culprits) == ("not_entered", (1,))
    said = "\n".join(text(frame))
    assert "all_reduce #5 of default_pg" in said
    assert ("dumping.py:" in said) == (name == "nccl_trace_rank_")


def test_both_of_a_rank_in_one_folder(dumps: Path) -> None:
    frame = open_paths([dumps])
    assert [verdict.culprits for verdict in frame.verdicts] == [(1,)]
    look = frame.ranks[0].snapshot
    assert look is not None
    assert len({op.sequence for op in look.ops}) == len(look.ops)


def test_the_page_of_its_debug_server(dumps: Path, tmp_path: Path) -> None:
    jinja2 = pytest.importorskip("jinja2")
    frontend = pytest.importorskip("torch.distributed.debug._frontend")
    pages = {"base.html": frontend.BASE_TEMPLATE, "page": frontend.JSON_RESP_TEMPLATE}
    env = jinja2.Environment(loader=jinja2.DictLoader(pages), autoescape=False)
    answers = [SimpleNamespace(status_code=200, text=path.read_text())
               for path in sorted(dumps.glob("fr_trace_json.*"))]  # fmt: skip
    page = env.get_template("page").render(
        title="FlightRecorder",
        addrs=[f"http://node{rank}:1/handler/fr_trace_json?" for rank in range(3)],
        resps=answers,
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


def test_a_healthy_job_of_gloo(tmp_path: Path) -> None:
    """Its last op is `scheduled` for ever; that it is through, `retired` says, some µs later."""
    ran(PROGRAM.with_name("through.py"), tmp_path)
    for path in tmp_path.glob("*/*rank*"):
        age(path)
    frame = open_paths([tmp_path / "later"])
    assert (frame.health, frame.verdicts) == ("healthy", ())
    assert {entry["state"] for entry in told(tmp_path / "later")} == {"scheduled"}
    frame = open_paths([tmp_path / "at_once"])
    assert [verdict.culprits for verdict in frame.verdicts] in ([], [()])
    is_through = all(entry["retired"] for entry in told(tmp_path / "at_once"))
    assert frame.health == ("healthy" if is_through else "undecided")


def told(folder: Path) -> list[dict[str, Any]]:
    return [entry for path in folder.iterdir() for entry in values_of(path)["entries"]]
