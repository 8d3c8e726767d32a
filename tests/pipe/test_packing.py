"""The archive: what is in it, how large it is, and that the same sources make the same bytes."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import frtop_probe
from frtop_probe.pipe.packing import AGENT, archive, collect, pack

MAX_BYTES = 400_000
PACKAGE = Path(frtop_probe.__path__[0])


def test_only_what_the_agent_needs_is_in_it() -> None:
    with zipfile.ZipFile(io.BytesIO(archive())) as content:
        names = content.namelist()
        assert content.testzip() is None
        assert content.read("frtop_probe/wire/ops.py") == (PACKAGE / "wire" / "ops.py").read_bytes()
        assert content.read("frtop_probe/pipe/VERSION")
    assert len(archive()) <= MAX_BYTES
    rooms = {name.split("/")[1] for name in names if name.startswith("frtop_probe/")}
    assert {"unprepared", "ring", "agent", "proc", "stacks", "pipe"} <= rooms
    assert not rooms & {"recorder", "keys", "archive.py", "atomic_file.py"}
    for left_out in ("sockets", "lifecycle", "black_boxes", "announcement", "key_rights"):
        assert f"frtop_probe/agent/{left_out}.py" not in names
    assert {name.split("/")[0] for name in names} == {"frtop_probe", "msgpack", "msgspec"}
    assert all(name.endswith((".py", "VERSION")) for name in names)


def test_the_same_sources_make_the_same_bytes() -> None:
    files = collect(PACKAGE, [f"frtop_probe.{AGENT}"])
    assert pack(files) == pack(dict(reversed(files.items())))
    assert pack(files) != pack({**files, "more": b""})


def test_imports_are_followed_where_a_module_is_loaded(tmp_path: Path) -> None:
    """Those in functions and for type checkers are left out, as are packages of others."""
    sources = {
        "__init__": "",
        "a": "import os, zmq\nfrom frtop_probe import b\ntry:\n    import frtop_probe.c.d\n"
        "except ImportError:\n    from frtop_probe import e\n",
        "b": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from frtop_probe import f\n"
        "def later():\n    from frtop_probe import f\n",
        "c/__init__": "",
        "c/d": "from frtop_probe.b import later\n",
        "e": "",
        "f": "",
    }
    for name, source in sources.items():
        path = tmp_path / "frtop_probe" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    found = collect(tmp_path / "frtop_probe", ["frtop_probe.a"])
    assert set(found) == {f"frtop_probe/{name}.py" for name in sources if name != "f"}
