"""`frtop metrics`: a job's state as OpenMetrics over HTTP, for Prometheus and the like."""

from __future__ import annotations

import argparse
import ipaddress
import socket
import socketserver
import sys
import threading
import time
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from frtop_probe.garbage import Collector
from frtop_probe.proc import daemon_thread
from frtop_tui.cli.file_options import open_files
from frtop_tui.cli.live import AppearanceTimer, connected, require_job
from frtop_tui.cli.output import show_progress
from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import FrtopError, Missing, UsageError
from frtop_tui.statistics.wanted import StatisticsWanted

if TYPE_CHECKING:
    from frtop_tui.connect.live import LiveSource
    from frtop_tui.features.metrics.families import JobCollector

PAUSE_S: Final = 0.1
ONCE_S: Final = 1.0
"""How long `--once` watches a job that has appeared: enough to judge its health."""
MOST_CLIENTS: Final = 8
CLIENT_S: Final = 5.0
"""How long a client may take, from its connection to its last byte."""
ROOM_S: Final = 0.5
"""How long to wait for the thread of a disconnected client."""


def run(options: argparse.Namespace) -> int:
    """Returns 0 after `--once`; otherwise serves until it is interrupted."""
    collector = _collector(options)
    if options.paths:
        return _recorded(options, collector)
    serving = nullcontext() if options.once else _server(options.listen, collector)
    with serving as server, connected(options) as source:
        source.follow_ops(options.bytes_of)
        source.want_statistics(StatisticsWanted(calls=options.calls), whom="metrics")
        if server is None:
            _look_once(source, collector, options.wait)
            return 0
        daemon_thread.start(server.serve_forever, "frtop metrics")
        _say_where(server)
        garbage = Collector()
        while True:
            garbage.tick()
            frame = _take(source, collector)
            if frame.problem is not None and frame.problem.internal:
                raise FrtopError(frame.problem.text, frame.problem.next)
            time.sleep(PAUSE_S)


def _collector(options: argparse.Namespace) -> JobCollector:
    try:
        from frtop_tui.features.metrics.families import JobCollector  # noqa: PLC0415 - may be missing
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "prometheus_client":
            raise
        raise Missing(
            "metrics need the package prometheus-client", "pip install 'frtop[metrics]'"
        ) from error
    return JobCollector(options.per_rank)


def _recorded(options: argparse.Namespace, collector: JobCollector) -> int:
    if not options.once:
        raise UsageError("metrics of files are written once", "frtop metrics --once FILE")
    collector.update(open_files(options), [], 0)
    _print(collector)
    return 0


def _look_once(source: LiveSource, collector: JobCollector, wait_s: float) -> None:
    """Prints the metrics of a job one second after it was found.

    Raises:
        FrtopError: no job appeared within `wait_s`; says why.
    """
    timer, found_at = AppearanceTimer(), 0.0
    while not found_at or time.monotonic() - found_at < ONCE_S:
        frame = _take(source, collector)
        if frame.ranks:
            found_at = found_at or time.monotonic()
        else:
            timer.require_visible(frame)
            if timer.waited_s > wait_s:
                require_job(frame)
                break  # print unreachable hosts too
            show_progress("waiting for a job")
        time.sleep(PAUSE_S)
    show_progress("")
    _print(collector)


def _take(source: LiveSource, collector: JobCollector) -> Frame:
    frame = source.frame()
    followed, unfit = source.take_ops()
    collector.update(frame, followed, unfit)
    return frame


def _print(collector: JobCollector) -> None:
    from prometheus_client.openmetrics.exposition import generate_latest  # noqa: PLC0415

    encode: Any = generate_latest  # the package has no types
    sys.stdout.write(encode(_registry(collector)).decode())


def _registry(collector: JobCollector) -> Any:
    """A separate registry: the default one describes this process, not the job."""
    from prometheus_client import CollectorRegistry  # noqa: PLC0415

    registry = CollectorRegistry()
    registry.register(collector)
    return registry


class _Handler(WSGIRequestHandler):
    def log_message(self, format: str, *_: object) -> None:  # noqa: A002 - its name in the base
        """Does not log scrapes."""


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    """Serves few clients at a time, each in a thread: a slow one does not hold up others.

    If there are too many, the oldest is cut off: a scrape takes milliseconds, so clients that keep
    connections open lose them first.
    """

    daemon_threads = True
    request_queue_size = MOST_CLIENTS

    def __init__(self, address: tuple[str, int], family: int) -> None:
        self.address_family = family
        self._free = threading.Semaphore(MOST_CLIENTS)
        self._deadlines: dict[socket.socket, float] = {}
        """Clients, the oldest first."""
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Binds without a name lookup, which may hang."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]
        self.setup_environ()

    def service_actions(self) -> None:
        """Cuts off clients that took too long, including those that send byte by byte."""
        now = time.monotonic()
        for client, deadline in list(self._deadlines.items()):
            if now > deadline:
                _cut_off(client)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            if oldest := next(iter(list(self._deadlines)), None):
                _cut_off(oldest)
            if not self._free.acquire(timeout=ROOM_S):
                self.shutdown_request(request)
                return
        self._deadlines[request] = time.monotonic() + CLIENT_S
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._deadlines.pop(request, None)
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Does not log clients that leave in the middle."""


def _cut_off(client: socket.socket) -> None:
    """Ends the wait of the client's thread."""
    with suppress(OSError):  # it has left
        client.shutdown(socket.SHUT_RDWR)


def _server(listen: tuple[str, int], collector: JobCollector) -> _Server:
    from prometheus_client import make_wsgi_app  # noqa: PLC0415 - may be missing

    host, port = listen
    try:
        family, *_, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        server = _Server((str(address[0]), port), family)
    except OSError as error:
        raise FrtopError(
            f"cannot listen on {host}:{port}: {error.strerror}", "choose another: --listen :9401"
        ) from error
    server.set_app(make_wsgi_app(_registry(collector)))
    return server


def _say_where(server: _Server) -> None:
    host, port = str(server.server_address[0]), server.server_port
    shown = f"[{host}]" if ":" in host else host
    print(f"frtop: metrics at http://{shown}:{port}/metrics", file=sys.stderr)
    if not ipaddress.ip_address(host.partition("%")[0]).is_loopback:
        print(
            "frtop: anyone who reaches that address can read them: names of the job, its groups and"
            " hosts; there is no key and no encryption",
            file=sys.stderr,
        )
    sys.stderr.flush()
