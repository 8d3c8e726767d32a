"""Logs of vLLM and SGLang, whose processes have names instead of ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from files.frames import notes
from files.logs.eras import after, joined
from frtop_tui.diagnosis.model import Frame
from frtop_tui.files.loader import open_paths

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has ..."
RAISED = ["Traceback (most recent call last):", '  File "/opt/model.py", line 20, in forward',
          "    x = torch.empty(n)", OOM]  # fmt: skip
SIGQUIT = "[2026-11-29 10:11:12] Received sigquit from a child process. It usually means ..."


def vllm(name: str, *lines: str) -> list[str]:
    return after(f"({name} pid=123) ERROR 11-29 10:11:12 [multiproc_executor.py:710] ", lines)


def sglang(name: str, lines: list[str] = RAISED) -> list[str]:
    """A scheduler's last words, of which only the first line says who wrote it."""
    return [f"[2026-11-29 10:11:12 {name}] Scheduler hit an exception: {lines[0]}", *lines[1:], ""]


def judged(folder: Path, *parts: list[str]) -> Frame:
    (folder / "server.log").write_text(joined(*parts))
    return open_paths([folder / "server.log"])


@pytest.mark.parametrize(
    ("name", "culprits"), [("TP3", [(3,)]), ("TP3 EP3", [(3,)]), ("DP1 TP3", [])]
)
def test_an_exception_ends_a_scheduler_of_sglang(
    tmp_path: Path, name: str, culprits: list[tuple[int, ...]]
) -> None:
    frame = judged(tmp_path, sglang(name), [SIGQUIT])
    assert [one.culprits for one in frame.verdicts] == culprits
    assert ("OutOfMemoryError" in notes(frame)) == (not culprits)


def test_two_schedulers_of_one_name_are_nobody(tmp_path: Path) -> None:
    first, second = (after(f"[pod/p{n}/a] ", sglang("TP3")[:1]) for n in (0, 1))
    assert judged(tmp_path, first, RAISED[1:], second, RAISED[1:]).verdicts == ()


def test_a_worker_of_vllm_goes_on_after_an_exception(tmp_path: Path) -> None:
    frame = judged(tmp_path, vllm("Worker_TP3", "WorkerProc hit an exception.", *RAISED))
    assert frame.verdicts == ()
    assert "rank 3 logged, and may have handled: server.log:5: OutOfMemoryError" in notes(frame)
    assert "some lines have ranks of groups" in notes(frame)


def test_an_exception_of_an_unknown_process_is_a_note(tmp_path: Path) -> None:
    frame = judged(tmp_path, vllm("EngineCore_DP0", *RAISED))
    assert frame.verdicts == ()
    assert "server.log:4: OutOfMemoryError: CUDA out of memory." in notes(frame)
