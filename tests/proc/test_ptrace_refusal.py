"""The setting that forbids tracing is named, from made-up /proc trees."""

from __future__ import annotations

import os
from pathlib import Path

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


def test_a_process_of_another_user(tmp_path: Path) -> None:
    text = ptrace_refusal.explain(77, host(tmp_path, theirs=4242), OURS)
    assert "belongs to uid 4242" in text
    assert ("frtop --user 4242" if OURS == 0 else "sudo -u '#4242' frtop") in text


def test_a_process_that_is_not_dumpable(tmp_path: Path) -> None:
    """Its folder in /proc belongs to root, while its status names its user."""
    user = OURS + 1000
    for name in ("77", "self"):
        (tmp_path / "proc" / name).mkdir(parents=True)
        (tmp_path / "proc" / name / "status").write_text(f"Uid:\t{user}\nCapEff:\t0\n")
    text = ptrace_refusal.explain(77, tmp_path, user)
    assert "dumpable" in text


@pytest.mark.parametrize(("scope", "who"), [("1", "parents"), ("2", "administrators")])
def test_yama_restricts_tracing(tmp_path: Path, scope: str, who: str) -> None:
    text = ptrace_refusal.explain(77, host(tmp_path, scope=scope), OURS)
    assert f"/proc/sys/kernel/yama/ptrace_scope is {scope}" in text
    assert who in text
    assert "sysctl kernel.yama.ptrace_scope=0" in text


def test_yama_forbids_all_tracing(tmp_path: Path) -> None:
    text = ptrace_refusal.explain(77, host(tmp_path, scope="3", capabilities=ALL), OURS)
    assert "nobody" in text


def test_a_container_without_the_capability(tmp_path: Path) -> None:
    assert "--cap-add=SYS_PTRACE" in ptrace_refusal.explain(77, host(tmp_path), OURS)
    fresh = host(tmp_path / "second", scope="0")
    assert "--cap-add=SYS_PTRACE" in ptrace_refusal.explain(77, fresh, OURS)


def test_a_refusal_despite_the_capability_suggests_seccomp(tmp_path: Path) -> None:
    text = ptrace_refusal.explain(77, host(tmp_path, scope="1", capabilities=ALL), OURS)
    assert "seccomp" in text
