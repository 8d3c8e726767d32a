"""`frtop-native`: which torches, their headers without the rest, a wheel that installs."""

from __future__ import annotations

import http.server
import io
import re
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import pytest

from frtop_probe.recorder.native import build, library
from release import native

HEADER = "torch/include/torch/csrc/distributed/c10d/Work.hpp"
VERSION = "__version__ = '2.13.0+cu130'\ndebug = False\ngit_version = 'cf30153c4c131c81'\n"


def listed(*names: str, **more: Any) -> list[dict[str, Any]]:
    return [{"filename": name, "url": f"http://index/{name}", "size": 1} | more for name in names]


def test_wheels_of_this_python_and_machine_are_chosen_oldest_first() -> None:
    files = listed(
        "torch-2.12.0-cp312-cp312-manylinux_2_28_x86_64.whl",
        "torch-2.10.1-cp312-cp312-manylinux_2_28_x86_64.whl",
        "torch-2.10.0-cp311-cp311-manylinux_2_28_x86_64.whl",
        "torch-2.10.0-cp312-cp312-manylinux_2_28_aarch64.whl",
        "torch-2.10.0-cp312-none-macosx_11_0_x86_64.whl",
        "torch-2.10.0-cp312-cp312-win_amd64.whl",
        "torch-2.9.1-cp312-cp312-manylinux_2_28_x86_64.whl",
        "torch-2.13.0-cp313-cp313t-manylinux_2_28_x86_64.whl",
        "torch-2.14.0rc1-cp312-cp312-manylinux_2_28_x86_64.whl",
        "torch-2.13.0.tar.gz",
    ) + listed("torch-2.11.0-cp312-cp312-manylinux_2_28_x86_64.whl", yanked="broken")
    assert list(native.releases(files, "cp312", "x86_64")) == ["2.10.1", "2.12.0"]


class Server(http.server.BaseHTTPRequestHandler):
    content: ClassVar[bytes] = b""
    ranges: ClassVar[bool] = True
    sent: ClassVar[list[int]] = []

    def do_GET(self) -> None:
        part = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers["Range"])
        assert part
        data = self.content[int(part[1]) : int(part[2]) + 1] if self.ranges else self.content
        self.send_response(206 if self.ranges else 200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        with suppress(ConnectionError):  # the client has read enough
            self.wfile.write(data)
        self.sent.append(len(data))

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def served() -> Iterator[dict[str, Any]]:
    """A wheel of torch whose libraries are much, as an index lists it."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("torch/lib/libtorch_cpu.so", bytes(40 << 20))
        archive.writestr(HEADER, "class Work;\n")
        archive.writestr("torch/version.py", VERSION)
        archive.writestr("torch/include/../../../evil.h", "")
    Server.content, Server.ranges, Server.sent[:] = content.getvalue(), True, []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/torch.whl"
        yield {"filename": "torch.whl", "url": url, "size": len(Server.content)}
        server.shutdown()


def test_only_the_headers_are_transferred(served: dict[str, Any], tmp_path: Path) -> None:
    made_for = native.headers(served, tmp_path / "to")
    assert made_for == library.described("2.13.0", "cf30153c4c131c81")
    assert made_for.startswith("torch 2.13.0 cf30153c4c13, cpython-3")
    assert (tmp_path / "to" / HEADER).read_text() == "class Work;\n"
    assert sum(Server.sent) < 20 << 20
    assert not list(tmp_path.glob("*.h"))


def test_a_server_without_ranges_is_an_error(served: dict[str, Any], tmp_path: Path) -> None:
    Server.ranges = False
    with pytest.raises(OSError, match="the server sent something else than bytes="):
        native.headers(served, tmp_path)


def test_the_wheel_installs(tmp_path: Path) -> None:
    kernels = tmp_path / "0123.so"
    kernels.write_bytes(b"\x7fELF")
    path = native.write_wheel(tmp_path / "dist", "0.1.0", [kernels])
    site = tmp_path / "site"
    pip = ("-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(site))
    subprocess.run([sys.executable, *pip, str(path)], check=True, timeout=60)
    assert (site / "frtop_native" / "0123.so").read_bytes() == b"\x7fELF"
    assert "Requires-Dist: frtop==0.1.0" in next(site.glob("*.dist-info/METADATA")).read_text()


def test_names_of_libraries_are_enough_to_link(tmp_path: Path) -> None:
    try:
        folder = native.name_only(tmp_path / "libraries")
    except build.BuildError as error:
        pytest.skip(str(error))
    assert {one.name for one in folder.glob("*.so")} == {f"lib{one}.so" for one in build.LIBRARIES}
