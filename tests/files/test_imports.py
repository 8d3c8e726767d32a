"""Opening a file imports no sockets, no screens and no torch: it works on any laptop."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from frtop_tui.files import capture
from screens.scenes import hung

HEAVY = ("zmq", "textual", "rich", "torch", "psutil", "ClusterShell")


def test_diagnose_of_a_file_imports_neither_sockets_nor_screens_nor_torch(tmp_path: Path) -> None:
    path = tmp_path / "x.cap"
    capture.write(path, hung(), {}, ())
    program = (
        "import sys\n"
        "from frtop_tui.cli import main\n"
        f"status = main(['diagnose', {str(path)!r}])\n"
        f"found = {{name.partition('.')[0] for name in sys.modules}} & set({HEAVY!r})\n"
        "print('imported:', sorted(found), 'status:', status)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "imported: [] status: 3"
    assert "rank 37 (node4) has not entered all_reduce #8812" in done.stdout
