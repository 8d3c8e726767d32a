"""How the recorder gets into a program, and what it leaves as it found it. No torch here."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from frtop_probe.recorder.arrival import when_imported
from frtop_probe.ring.layout import Cell, State
from frtop_probe.ring.reader import Ring
from recorder.world import ZERO, environment

PROBE = ZERO.parents[2]


def python(
    folder: Path, *arguments: str, cwd: Path | None = None, prepared: bool = False, **more: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env=environment(folder, prepared=prepared, **{"RANK": "0"} | more),
        capture_output=True,
        text=True,
        timeout=30,
        cwd=cwd,
        check=False,
    )


def code(text: str) -> tuple[str, str]:
    return "-c", textwrap.dedent(text)


def the_ring(folder: Path) -> Ring:
    (path,) = folder.glob("*.ring")
    return Ring(path)


def test_the_postcard_imports_nothing_and_the_recorder_only_the_standard_library(
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
    done = python(tmp_path / "rings", "-I", *code(program), str(PROBE))
    assert done.stdout.splitlines() == ["['frtop_probe']", "['frtop_probe']"], done.stderr
    ring = the_ring(tmp_path / "rings")
    assert ring.cell(Cell.STATE) == State.STOPPED
    assert ring.cell(Cell.STEP) == 1
    assert list(ring.notes.values()) == ["here"]


def test_hooks_for_exceptions_are_chained_both_ways(tmp_path: Path) -> None:
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
    done = python(tmp_path / "rings", *code(program))
    assert done.returncode == 1
    assert done.stdout.splitlines() == ["thread KeyError", "later", "earlier ValueError"]
    assert done.stderr.startswith("Traceback")
    ring = the_ring(tmp_path / "rings")
    of_thread, of_main = ring.exceptions
    assert (of_thread["kind"], of_thread["thread"], of_thread["main"]) == (
        "KeyError",
        "loader",
        False,
    )
    assert (of_main["kind"], of_main["main"]) == ("ValueError", True)
    assert len(of_main["text"]) == 4000
    assert [frame[0] for frame in of_main["frames"]] == ["inner", "<module>"]
    assert ring.cell(Cell.EXCEPTION_NS) == of_main["at_ns"]


def test_a_hook_that_replaced_ours_without_chaining_is_made_up_for(tmp_path: Path) -> None:
    program = """
        import sys, frtop_probe
        frtop_probe.start()
        sys.excepthook = lambda *args: print("theirs")
        raise KeyError("gone")
    """
    done = python(tmp_path / "rings", *code(program))
    assert (done.returncode, done.stdout, done.stderr) == (1, "theirs\n", "")
    assert the_ring(tmp_path / "rings").exceptions[0]["kind"] == "KeyError"


@pytest.mark.parametrize("ending", ["sys.exit(7)", "os._exit(7)", "raise SystemExit(7)"])
def test_exits_are_no_exceptions(tmp_path: Path, ending: str) -> None:
    program = f"import os, sys, frtop_probe; frtop_probe.start(); {ending}"
    done = python(tmp_path / "rings", "-c", program)
    assert (done.returncode, done.stderr) == (7, "")
    assert the_ring(tmp_path / "rings").exceptions == []


def test_a_forked_child_leaves_the_ring_alone_and_may_have_its_own(tmp_path: Path) -> None:
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
    for how, rings in (("nothing", 1), ("raise", 1), ("start", 2)):
        folder = tmp_path / how
        assert python(folder, *code(program), how).returncode == 0
        found = [Ring(path) for path in folder.glob("*.ring")]
        assert len(found) == rings
        notes = sorted(note for ring in found for note in ring.notes.values())
        assert notes == (["from the parent"] if rings == 1 else ["from the parent", "mine"])
        assert not any(ring.exceptions for ring in found)


def test_sitecustomize_chains_to_the_jobs_own(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "sitecustomize.py").write_text("import sys; sys.theirs = __file__\n")
    program = """
        import sys
        print(sys.theirs, sys.modules["sitecustomize"].__file__)
        print([name for name in sys.modules if "frtop" in name])
        before = list(sys.path)
        import frtop_probe.ring.layout
        print(sys.path == before, frtop_probe.__file__)
    """
    path = os.pathsep.join([str(ZERO), str(theirs)])
    done = python(tmp_path / "rings", "-S", "-c", "", PYTHONPATH=path)
    assert done.returncode == 0
    done = python(tmp_path / "rings", *code(program), PYTHONPATH=path)
    file = str(theirs / "sitecustomize.py")
    package = str(PROBE / "frtop_probe" / "__init__.py")
    assert done.stdout.splitlines() == [f"{file} {file}", "[]", f"True {package}"], done.stderr


def test_a_broken_sitecustomize_of_the_job_breaks_as_it_would_alone(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "sitecustomize.py").write_text("raise RuntimeError('theirs')\n")
    alone = python(tmp_path / "rings", "-c", "print(1)", PYTHONPATH=str(theirs))
    path = os.pathsep.join([str(ZERO), str(theirs)])
    chained = python(tmp_path / "rings", "-c", "print(1)", PYTHONPATH=path)
    assert (chained.returncode, chained.stdout) == (alone.returncode, alone.stdout)
    assert "theirs" in chained.stderr


def test_a_module_is_announced_after_its_import_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "frtop_arriving.py").write_text("VALUE = 5\n")
    monkeypatch.syspath_prepend(tmp_path)
    arrived: list[int] = []
    finders = list(sys.meta_path)
    when_imported("frtop_arriving", lambda module: arrived.append(module.VALUE))
    assert arrived == []
    import frtop_arriving  # type: ignore[import-not-found]  # noqa: PLC0415

    assert arrived == [5]
    assert sys.meta_path == finders
    assert type(frtop_arriving.__loader__).__name__ == "SourceFileLoader"
    when_imported("frtop_arriving", lambda module: arrived.append(module.VALUE))
    assert arrived == [5, 5]
    del sys.modules["frtop_arriving"]


def test_running_through_the_module_looks_like_running_the_program(tmp_path: Path) -> None:
    (tmp_path / "neighbour.py").write_text("NAME = 'neighbour'\n")
    program = tmp_path / "train.py"
    program.write_text(
        "import sys, neighbour\nprint(__name__, sys.argv[1:], neighbour.NAME, __file__)\n"
        "assert 0, 'as it would'\n"
    )
    done = python(tmp_path / "rings", "-m", "frtop_probe", str(program), "--lr", "1", cwd=tmp_path)
    assert done.stdout.split() == ["__main__", "['--lr',", "'1']", "neighbour", str(program)]
    assert done.returncode == 1
    ring = the_ring(tmp_path / "rings")
    assert ring.who["job"]["name"] == "train.py"
    assert ring.exceptions[0]["text"] == "as it would"
    assert [frame[0] for frame in ring.exceptions[0]["frames"]] == ["<module>"]
    done = python(tmp_path / "again", "-m", "frtop_probe", "-m", "neighbour", "x", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert python(tmp_path / "none", "-m", "frtop_probe").returncode == 1


def test_settings_of_torch_and_transports_are_told_and_no_secret(tmp_path: Path) -> None:
    program = """
        import sys
        sys.path.insert(0, sys.argv[1])
        import frtop_probe
        frtop_probe.start()
        frtop_probe.stop()
    """
    hush = {
        "TORCH_API_TOKEN": "hush",
        "WANDB_API_KEY": "hush",
        "SLURM_JWT": "hush",
        "TORCHINDUCTOR_REDIS_URL": "redis://me:hush@cache:6379",
        "FRTOP_RECORD": "~nobody-of-that-name/boxes",
    }
    told = {"NCCL_ALGO": "Ring"}
    python(tmp_path / "rings", *code(program), str(PROBE), prepared=False, cwd=None, **told, **hush)
    ring = the_ring(tmp_path / "rings")
    assert dict(ring.who["settings"]).items() >= told.items()
    assert "hush" not in str(ring.who)
