"""`frtop metrics` beside a real job that trains, hangs and ends, read by Prometheus' own parser."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import IO, Any, cast

import pytest

from features.warm_job import told_to_hang
from waiting import wait_for

pytestmark = pytest.mark.job
Scraped = dict[tuple[str, ...], float]


def test_metrics_are_served_while_the_job_hangs_and_while_it_ends(tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client")
    from prometheus_client.openmetrics import parser  # noqa: PLC0415 - an extra

    command = [sys.executable, "-m", "frtop_tui", "metrics", "--listen", "127.0.0.1:0"]
    with (
        told_to_hang(tmp_path) as ranks,
        subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as server,
    ):
        try:
            where = cast("IO[str]", server.stderr).readline()
            url = where.removeprefix("frtop: metrics at ").strip()
            accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
            parse: Any = parser.text_string_to_metric_families

            def scrape_with(*sample: str, value: float = 1, more: bool = False) -> Scraped | None:
                """What is served, once it has this sample: with the value, or with more."""
                request = urllib.request.Request(url, headers=accept)
                with urllib.request.urlopen(request, timeout=10) as response:
                    assert response.headers["Content-Type"].startswith(
                        "application/openmetrics-text"
                    )
                    text = response.read().decode()
                found = {
                    (sample.name, *sample.labels.values()): sample.value
                    for family in parse(text)
                    for sample in family.samples
                }
                there = found.get(sample, 0.0)
                return found if there == value or (more and there > value) else None

            ops = ("frtop_ops_total", "default_pg", "0-1")
            wait_for(lambda: scrape_with(*ops, value=21, more=True), "some training", 60, 0.3)
            (tmp_path / "hang").touch()
            hung = wait_for(lambda: scrape_with("frtop_health", "hung"), "a hang", 60, 0.3)
            assert hung["frtop_culprits",] == 1
            assert hung["frtop_ranks", "blocked"] == 1
            assert hung[ops] > 20
            for rank in ranks:
                rank.kill()
            over = wait_for(lambda: scrape_with("frtop_ranks", "dead", value=2), "the end", 60, 0.1)
            for name in ("frtop_ops_total", "frtop_waiting_seconds_total"):
                counter = (name, "default_pg", "0-1")
                assert over[counter] >= hung[counter] > 0
            server.send_signal(signal.SIGINT)
            assert server.wait(timeout=30) == 130
            assert cast("IO[str]", server.stderr).read() == ""
        finally:
            server.kill()
