"""Starting the recorder by hand, with `frtop_probe.start()` or `-m frtop_probe`, without torch."""

from __future__ import annotations

from pathlib import Path

from frtop_probe.ring.layout import State, StatusCell
from frtop_probe.ring.reader import Ring
from recorder.rank_runner import PROBE, code, only_ring, run_python


def test_the_package_imports_nothing_and_the_recorder_only_the_standard_library(
    tmp_path: Path,
) -> None:
    program = """
        import sys
        sys.path.insert(0, sys.argv[1])
        before = set(sys.modules)
        import frtop_probe
        print(sorted(set(sys.modules) - before - {"__future__"}))
        frtop_probe.start()
        frtop_probe.step()
        frtop_probe.annotate("here")
        ours = {name.partition(".")[0] for name in set(sys.modules) - before}
        print(sorted(ours - set(sys.stdlib_module_names)))
        frtop_probe.stop()
    """
    done = run_python(tmp_path / "rings", "-I", *code(program), str(PROBE))
    assert done.stdout.splitlines() == ["['frtop_probe']", "['frtop_probe']"], done.stderr
    ring = only_ring(tmp_path / "rings")
    assert ring.cell(StatusCell.STATE) == State.STOPPED
    assert ring.cell(StatusCell.STEP) == 1
    assert list(ring.notes.values()) == ["here"]


def test_a_forked_child_does_not_write_to_the_ring_and_may_have_its_own(tmp_path: Path) -> None:
    program = """
        import os, sys, frtop_probe
        frtop_probe.start()
        if os.fork() == 0:
            frtop_probe.annotate("from the child")
            if sys.argv[1] == "raise":
                raise ValueError("in the child")
            if sys.argv[1] == "start":
                frtop_probe.start()
                frtop_probe.annotate("mine")
            sys.exit(0)
        os.wait()
        frtop_probe.annotate("from the parent")
    """
    for how, rings in (("raise", 1), ("start", 2)):
        folder = tmp_path / how
        assert run_python(folder, *code(program), how).returncode == 0
        found = [Ring(path) for path in folder.glob("*.ring")]
        assert len(found) == rings
        notes = sorted(note for ring in found for note in ring.notes.values())
        assert notes == (["from the parent"] if rings == 1 else ["from the parent", "mine"])
        assert not any(ring.exceptions for ring in found)


def test_running_through_the_module_is_like_running_the_program(tmp_path: Path) -> None:
    (tmp_path / "neighbour.py").write_text("NAME = 'neighbour'\n")
    program = tmp_path / "train.py"
    program.write_text(
        "import sys, neighbour\nprint(__name__, sys.argv[1:], neighbour.NAME, __file__)\n"
        "assert 0, 'as it would'\n"
    )
    done = run_python(
        tmp_path / "rings", "-m", "frtop_probe", str(program), "--lr", "1", cwd=tmp_path
    )
    assert done.stdout.split() == ["__main__", "['--lr',", "'1']", "neighbour", str(program)]
    assert done.returncode == 1
    ring = only_ring(tmp_path / "rings")
    assert ring.rank_identity["job"]["name"] == "train.py"
    assert ring.exceptions[0]["text"] == "as it would"
    assert [frame[0] for frame in ring.exceptions[0]["frames"]] == ["<module>"]
    done = run_python(tmp_path / "again", "-m", "frtop_probe", "-m", "neighbour", "x", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert run_python(tmp_path / "none", "-m", "frtop_probe").returncode == 1
