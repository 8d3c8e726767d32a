"""What pystack prints, and what it might."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frtop_probe.stacks import pystack_output
from frtop_probe.stacks.pystack_output import NotPystackError, parse

# As pystack 1.7.2 printed them for a stuck gloo rank, cut.
RANK = """\
Traceback for thread 12809 (python) [Has the GIL,Garbage collecting] (most recent call last):
    (C) File "Python/pythonrun.c", line 1710, in run_eval_code_obj (inlined) (/lib/libpython3.11.so)
    (Python) File "/srv/train.py", line 20, in <module>
        dist.all_reduce(t)
    (Python) File "/opt/torch/distributed/distributed_c10d.py", line 3252, in all_reduce
        work.wait()
    (C) File "???", line 0, in c10d::Work::wait(std::chrono::duration<long>) (/opt/libtorch_cpu.so)

Traceback for thread 12966 (pt_gloo_runloop) [] (most recent call last):
    (C) File "???", line 0, in gloo::(anonymous namespace)::ring(int) (/opt/libtorch_cpu.so)

Traceback for thread 12967 [] (most recent call last):
* - Unable to merge native stack due to insufficient native information - *
    (Python) File "/srv/train.py", line 7, in load
"""


def test_threads_with_and_without_python_are_read() -> None:
    main, gloo, loader = parse(RANK)
    assert (main.tid, main.name, main.owns_gil) == (12809, "python", True)
    assert [(f.function, f.file, f.line, f.native) for f in main.frames] == [
        ("c10d::Work::wait", "/opt/libtorch_cpu.so", 0, True),
        ("all_reduce", "/opt/torch/distributed/distributed_c10d.py", 3252, False),
        ("<module>", "/srv/train.py", 20, False),
        ("run_eval_code_obj", "/lib/libpython3.11.so", 0, True),
    ]
    assert (gloo.tid, gloo.name, gloo.owns_gil) == (12966, "pt_gloo_runloop", False)
    assert [frame.function for frame in gloo.frames] == ["gloo::ring"]
    assert (loader.tid, loader.name) == (12967, "")
    assert [frame.function for frame in loader.frames] == ["load"]


def test_threads_and_frames_are_bounded() -> None:
    frame = '    (Python) File "a.py", line 1, in f\n'
    head = "Traceback for thread 7 (x) [] (most recent call last):\n"
    threads = parse((head + frame * 1000) + head * 1000)
    assert len(threads) == pystack_output.MAX_THREADS
    assert len(threads[0].frames) == pystack_output.MAX_FRAMES


def test_text_without_threads_is_refused() -> None:
    assert parse("\n") == ()
    with pytest.raises(NotPystackError, match="what"):
        parse("what is that")


@given(st.text(max_size=300))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    for tried in (text, RANK + text, text + RANK):
        try:
            parse(tried)
        except NotPystackError:
            continue
