"""Which knob it is that keeps us from looking, told from made-up /proc trees."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from frtop_probe.eyes import refusal

OURS = os.getuid()
ALL = 0x1FFFFFFFFFF


def host(root: Path, *, theirs: int = OURS, capabilities: int = 0, scope: str = "") -> Path:
    for name, uid, held in (("77", theirs, 0), ("self", OURS, capabilities)):
        (root / "proc" / name).mkdir(parents=True)
        (root / "proc" / name / "status").write_text(
            f"Name:\tpython\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nCapEff:\t{held:016x}\n"
        )
    if scope:
        knob = root / refusal.YAMA
        knob.parent.mkdir(parents=True)
        knob.write_text(scope + "\n")
    return root


def test_another_users_process(tmp_path: Path) -> None:
    said = refusal.explain(77, host(tmp_path, theirs=4242), OURS)
    assert "belongs to uid 4242" in said
    assert "frtop agent" in said


def test_a_process_that_is_not_dumpable(tmp_path: Path) -> None:
    """Its folder in /proc belongs to root then, its status still names its user."""
    user = OURS + 1000
    for name in ("77", "self"):
        (tmp_path / "proc" / name).mkdir(parents=True)
        (tmp_path / "proc" / name / "status").write_text(f"Uid:\t{user}\nCapEff:\t0\n")
    said = refusal.explain(77, tmp_path, user)
    assert "dumpable" in said


@pytest.mark.parametrize(("scope", "who"), [("1", "parents"), ("2", "administrators")])
def test_yama(tmp_path: Path, scope: str, who: str) -> None:
    said = refusal.explain(77, host(tmp_path, scope=scope), OURS)
    assert f"/proc/sys/kernel/yama/ptrace_scope is {scope}" in said
    assert who in said
    assert "sysctl kernel.yama.ptrace_scope=0" in said


def test_yama_for_nobody(tmp_path: Path) -> None:
    said = refusal.explain(77, host(tmp_path, scope="3", capabilities=ALL), OURS)
    assert "nobody" in said


def test_a_container_without_the_capability(tmp_path: Path) -> None:
    assert "--cap-add=SYS_PTRACE" in refusal.explain(77, host(tmp_path), OURS)
    fresh = host(tmp_path / "second", scope="0")
    assert "--cap-add=SYS_PTRACE" in refusal.explain(77, fresh, OURS)


def test_refused_in_spite_of_the_capability(tmp_path: Path) -> None:
    said = refusal.explain(77, host(tmp_path, scope="1", capabilities=ALL), OURS)
    assert "seccomp" in said
