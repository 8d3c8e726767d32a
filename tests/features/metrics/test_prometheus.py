"""The real Prometheus scrapes a real job: alerts fire at a hang, and the dashboard has data."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import pytest

from e2e.conftest import Launch, family
from free_port import free_port
from waiting import wait_for

pytest.importorskip("prometheus_client")

from features.metrics.test_command import DOCS, PANELS
from frtop_tui.features.metrics.command import _server
from frtop_tui.features.metrics.families import JobCollector
from screens.gauge_scenes import measured

pytestmark = [
    pytest.mark.job,
    pytest.mark.long,
    pytest.mark.timeout(400),
    pytest.mark.skipif(not shutil.which("prometheus"), reason="there is no Prometheus"),
]
RULES = DOCS / "frtop-alerts.yml"
ONLY_OF_HANGS = {
    "frtop_verdicts", "frtop_timeout_left_seconds", "rate(frtop_waiting_seconds_total[1m])",
}  # fmt: skip
CONFIG = """\
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs:
  - job_name: frtop
    static_configs: [{{targets: ["{job}"]}}]
  - job_name: gpus
    static_configs: [{{targets: ["{gpus}"]}}]
    metric_relabel_configs:
      - {{source_labels: [__name__], regex: frtop_(gpu_.*|host_facts), action: keep}}
"""


class Prometheus:
    def __init__(self, address: str) -> None:
        self.address = address

    def ask(self, path: str, **words: str) -> Any:
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(words)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]

    def is_up(self) -> bool:
        try:
            return bool(self.ask("query", query="up == 1")["result"])
        except OSError:
            return False

    def firing(self) -> set[str]:
        alerts = self.ask("alerts")["alerts"]
        return {one["labels"]["alertname"] for one in alerts if one["state"] == "firing"}

    def without_data(self) -> set[str]:
        queries = {target["expr"] for panel in PANELS for target in panel["targets"]}
        return {one for one in queries if not self.ask("query", query=one)["result"]}


@contextmanager
def prometheus(folder: Path, **targets: str) -> Iterator[Prometheus]:
    rules = folder / "rules.yml"  # with shorter waits, to spare the test two minutes
    rules.write_text(re.sub(r"for: \w+", "for: 2s", RULES.read_text()))
    (folder / "prometheus.yml").write_text(CONFIG.format(rules=rules, **targets))
    address = f"127.0.0.1:{free_port()}"
    command = [
        "prometheus", f"--config.file={folder / 'prometheus.yml'}", "--log.level=error",
        f"--web.listen-address={address}", f"--storage.tsdb.path={folder / 'data'}",
    ]  # fmt: skip
    with subprocess.Popen(command) as process:
        try:
            server = Prometheus(address)
            wait_for(server.is_up, "Prometheus", 60, 0.3)
            yield server
        finally:
            process.terminate()


@pytest.fixture
def gpus() -> Iterator[str]:
    """What no real job here has: metrics of a scripted frame with GPUs, one of them slow."""
    collector = JobCollector()
    collector.update(measured(1), [], 0)
    server = _server(("127.0.0.1", 0), collector)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_rules_are_rules() -> None:
    subprocess.run(["promtool", "check", "rules", RULES], check=True, capture_output=True)


def test_alerts_fire_at_a_hang_and_every_panel_has_data(
    tmp_path: Path, home: Path, torchrun: Launch, gpus: str
) -> None:
    torchrun("trains.py", str(tmp_path))
    command = [sys.executable, "-m", "frtop_tui", "metrics", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            where = cast("IO[str]", server.stderr).readline()
            job = re.sub(r".*//(.*)/metrics\n", r"\1", where)
            with prometheus(tmp_path, job=job, gpus=gpus) as there:
                wait_for(
                    lambda: there.without_data() <= ONLY_OF_HANGS,
                    lambda: f"no data: {there.without_data()}", 90, 1,
                )  # fmt: skip
                assert there.firing() == set()
                ranks = [one for one in family(home) if one.environ().get("RANK") == "1"]
                os.kill(ranks[0].pid, signal.SIGSTOP)
                wait_for(
                    lambda: there.firing() == {"JobHangs"}, lambda: str(there.firing()), 90, 0.5
                )
                wait_for(lambda: not there.without_data(), lambda: str(there.without_data()), 30, 1)
                os.kill(ranks[0].pid, signal.SIGCONT)
                wait_for(lambda: there.firing() == set(), "no alert", 60, 0.5)
                server.kill()
                wait_for(
                    lambda: there.firing() == {"NobodySeesTheJob"},
                    lambda: str(there.firing()),
                    60,
                    0.5,
                )
        finally:
            server.kill()
