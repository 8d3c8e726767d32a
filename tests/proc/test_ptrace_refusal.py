"""The setting that forbids tracing is named, from made-up /proc trees."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from frtop_probe.proc import process_rights, ptrace_refusal

OURS = os.getuid()
ALL = 0x1FFFFFFFFFF


def host(root: Path, *, theirs: int = OURS, capabilities: int = 0, scope: str = "") -> Path:
    for name, uid, held in (("77", theirs, 0), ("self", OURS, capabilities)):
        (root / "proc" / name).mkdir(parents=True)
        (root / "proc" / name / "status").write_text(
            f"Name:\tpython\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nCapEff:\t{held:016x}\n"
        )
    if scope:
        setting = root / process_rights.YAMA
        setting.parent.mkdir(parents=True)
        setting.write_text(scope + "\n")
    return root


YAMA = "/proc/sys/kernel/yama/ptrace_scope is"
TO_ALLOW = "sysctl kernel.yama.ptrace_scope=0"


@pytest.mark.parametrize(("setup", "says"), [
    ({"theirs": 4242}, ("belongs to uid 4242",
                        "frtop --user 4242" if OURS == 0 else "sudo -u '#4242' frtop")),
    ({"scope": "1"}, (f"{YAMA} 1", "parents", TO_ALLOW)),
    ({"scope": "2"}, (f"{YAMA} 2", "administrators", TO_ALLOW)),
    ({"scope": "3", "capabilities": ALL}, ("nobody",)),
    ({}, ("--cap-add=SYS_PTRACE",)),
    ({"scope": "0"}, ("--cap-add=SYS_PTRACE",)),
    ({"scope": "1", "capabilities": ALL}, ("seccomp",)),
])  # fmt: skip
def test_what_forbids_tracing_is_named(
    tmp_path: Path, setup: dict[str, Any], says: tuple[str, ...]
) -> None:
    text = ptrace_refusal.explain(77, host(tmp_path, **setup), OURS)
    assert [part for part in says if part not in text] == [], text


def test_a_process_that_is_not_dumpable(tmp_path: Path) -> None:
    """Its folder in /proc belongs to root, while its status names its user."""
    user = OURS + 1000
    for name in ("77", "self"):
        (tmp_path / "proc" / name).mkdir(parents=True)
        (tmp_path / "proc" / name / "status").write_text(f"Uid:\t{user}\nCapEff:\t0\n")
    text = ptrace_refusal.explain(77, tmp_path, user)
    assert "dumpable" in text
