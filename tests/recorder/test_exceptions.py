"""Uncaught exceptions are recorded, and other hooks still run."""

from __future__ import annotations

from pathlib import Path

import pytest

from frtop_probe.ring.layout import StatusCell
from recorder.rank_runner import code, only_ring, run_python


def test_exception_hooks_are_chained_in_both_directions(tmp_path: Path) -> None:
    program = """
        import sys, threading
        old = sys.excepthook
        def earlier(*args):
            print("earlier", args[0].__name__)
            old(*args)
        sys.excepthook = earlier
        threading.excepthook = lambda args: print("thread", args.exc_type.__name__)
        import frtop_probe
        frtop_probe.start()
        ours = sys.excepthook
        def later(*args):
            print("later")
            ours(*args)
        sys.excepthook = later
        thread = threading.Thread(target=lambda: {}["missing"], name="loader")
        thread.start()
        thread.join()
        def inner():
            raise ValueError("no " + "x" * 10_000)
        inner()
    """
    done = run_python(tmp_path / "rings", *code(program))
    assert done.returncode == 1
    assert done.stdout.splitlines() == ["thread KeyError", "later", "earlier ValueError"]
    assert done.stderr.startswith("Traceback")
    ring = only_ring(tmp_path / "rings")
    of_thread, of_main = ring.exceptions
    assert (of_thread["kind"], of_thread["thread"], of_thread["main"]) == (
        "KeyError",
        "loader",
        False,
    )
    assert (of_main["kind"], of_main["main"]) == ("ValueError", True)
    assert len(of_main["text"]) == 4000
    assert [frame[0] for frame in of_main["frames"]] == ["inner", "<module>"]
    assert ring.cell(StatusCell.EXCEPTION_NS) == of_main["at_ns"]


def test_an_exception_is_recorded_at_exit_if_our_hook_was_replaced(tmp_path: Path) -> None:
    program = """
        import sys, frtop_probe
        frtop_probe.start()
        sys.excepthook = lambda *args: print("theirs")
        raise KeyError("gone")
    """
    done = run_python(tmp_path / "rings", *code(program))
    assert (done.returncode, done.stdout, done.stderr) == (1, "theirs\n", "")
    assert only_ring(tmp_path / "rings").exceptions[0]["kind"] == "KeyError"


@pytest.mark.parametrize("ending", ["sys.exit(7)", "os._exit(7)", "raise SystemExit(7)"])
def test_exits_are_not_exceptions(tmp_path: Path, ending: str) -> None:
    program = f"import os, sys, frtop_probe; frtop_probe.start(); {ending}"
    done = run_python(tmp_path / "rings", "-c", program)
    assert (done.returncode, done.stderr) == (7, "")
    assert only_ring(tmp_path / "rings").exceptions == []
