"""Which frames of a stack are shown: frtop's wrappers in a rank are not."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import frtop_probe
from diagnosis.scenes import C10D, COLLECTIVE, RECORDER, frame
from frtop_probe import wire
from frtop_tui.job.stack_frames import (
    _WRAPPERS,
    is_user_code,
    is_wrapper,
    short_file,
    shown_frames,
    user_frame,
    user_frame_index,
)
from screens import scenes

PROBE = Path(frtop_probe.__file__).parent
ORIGINALS = {"after", "before", "execute", "original", "previous", "previous_thread", "redispatch"}
"""What the recorder's modules call the functions that they wrap."""
WAIT = frame(f"{RECORDER}/waits.py:110", "_wrapper.<locals>.wait")
ON_DEVICE = frame(f"{RECORDER}/waits.py:146", "on_device")
KERNEL = frame(f"{RECORDER}/ops/kernel.py:250", "kernel")
MINE = frame("train.py:21", source="handle.wait()")


@pytest.mark.parametrize("frames", [
    (WAIT, MINE),
    (ON_DEVICE, WAIT, MINE),
    (KERNEL, *COLLECTIVE),
    (COLLECTIVE[0], frame(f"{RECORDER}/group_calls.py:82", "_wrapped.<locals>.wrapper"), MINE),
    (frame("a.py:1"), frame(f"{RECORDER}/fetches.py:67", "__next__"), MINE),
    (frame("/src/probe/frtop_probe/recorder/ops/waits.py:110", "wait"), MINE),
    (frame("/archive.pyz/frtop_probe/recorder/ops/waits.py:110", "wait"), MINE),
])  # fmt: skip
def test_wrappers_are_not_shown(frames: tuple[wire.TraceFrame, ...]) -> None:
    shown = shown_frames(frames)
    assert [one for one in frames if one not in shown] == list(filter(is_wrapper, frames)) != []
    assert not any("frtop_probe" in one.file for one in shown)


@pytest.mark.parametrize("frames", [
    (frame(f"{RECORDER}/pending.py:80", "set_wait"), MINE),  # it hangs in frtop itself
    (frame(f"{RECORDER}/recorder.py:90", "_tick"), frame(f"{RECORDER}/thread.py:80", "_run")),
    (KERNEL,),  # called by C++
    (frame(f"{RECORDER}/recorder.py:86", "Recorder.begin"), MINE),  # no wrapper of that module
    (frame("/home/me/waits.py:110", "wait"), MINE),
    (frame("/home/me/recorder/ops/waits.py:110", "wait"), MINE),
    (frame(f"{C10D}:2", "wait"), MINE),
    (),
])  # fmt: skip
def test_all_other_frames_are_shown(frames: tuple[wire.TraceFrame, ...]) -> None:
    assert tuple(shown_frames(frames)) == frames


def test_a_rank_that_hangs_in_the_recorder_shows_it() -> None:
    inside = frame(f"{RECORDER}/pending.py:80", "set_wait")
    assert list(shown_frames((inside, WAIT, MINE))) == [inside, MINE]


def test_without_code_of_the_user_the_innermost_frame_that_is_shown_counts() -> None:
    assert user_frame((WAIT, COLLECTIVE[0])) == COLLECTIVE[0]
    assert user_frame((WAIT, COLLECTIVE[0], MINE)) == MINE


def test_without_code_of_the_user_a_package_counts_before_the_standard_library() -> None:
    opens = frame("/usr/lib/python3.11/pathlib.py:1044", "Path.open")
    assert user_frame((opens, COLLECTIVE[0])) == COLLECTIVE[0]
    assert user_frame((opens,)) == opens


def test_every_wrapper_of_the_recorder_is_known() -> None:
    """A new wrapper, or one with another name, has to be added to the list."""
    found = set()
    for path in [*PROBE.glob("recorder/**/*.py"), *PROBE.glob("features/*/in_rank/**/*.py")]:
        for function in ast.walk(ast.parse(path.read_text())):
            calls = [node for node in _own_nodes(function) if isinstance(node, ast.Call)]
            names = {node.func.id for node in calls if isinstance(node.func, ast.Name)}
            if isinstance(function, ast.FunctionDef) and names & ORIGINALS:
                found.add((path.stem, function.name))
    found.add(("guard", "wrapper"))  # around the recorder's own functions
    assert found <= _WRAPPERS
    gone = {module for module, _ in _WRAPPERS - found}
    assert not [path for path in PROBE.rglob("*.py") if path.stem in gone]  # only with its feature


def _own_nodes(function: ast.AST) -> list[ast.AST]:
    """The nodes of a function without those of functions in it."""
    found, waiting = [], list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        if not isinstance(node, ast.FunctionDef):
            found.append(node)
            waiting += ast.iter_child_nodes(node)
    return found


def test_the_users_frame_is_the_innermost_outside_installed_code() -> None:
    assert user_frame_index(scenes.LOADING) == 6
    assert user_frame_index(scenes.PINNING) is None
    assert not is_user_code(scenes.trace_frame("run", "<frozen importlib>", 1))
    assert not is_user_code(scenes.trace_frame("__init__", "<string>", 1))
    assert is_user_code(scenes.trace_frame("train", "<dynamic-code>", 18))
    assert not is_user_code(scenes.trace_frame("f", "torch/nn/functional.py", 1))


def test_files_are_shortened_below_their_packages() -> None:
    assert short_file("/opt/v/lib/python3.12/site-packages/torch/_tensor.py") == "torch/_tensor.py"
    assert short_file("/usr/lib/python3.12/queue.py") == "queue.py"
    assert short_file("/home/ml/llama/train.py") == "train.py"
