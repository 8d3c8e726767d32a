"""The native kernels see the frames of each CPython as it sees them itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from frtop_probe.recorder.native import build

PROGRAM: Final = """
import asyncio, ctypes, sys, threading
from frtop_probe.recorder.native import check

lib = ctypes.PyDLL(sys.argv[1])
table = (ctypes.c_void_p * 8192)()
lib.frtop_place_codes(table)

class Kernels:
    frtop_check_stack = lib.frtop_stack

class Frame(ctypes.Structure):
    _fields_ = [("code", ctypes.c_void_p), ("instruction", ctypes.c_int), ("waits", ctypes.c_int)]

seen = 0
def look():
    global seen
    codes, lines, frames = check._stacks(Kernels)
    assert codes == [id(code) for code, _ in frames], frames
    assert lines == [line for _, line in frames], (lines, frames)
    assert len(frames) >= 3
    found = Frame()
    def classify(code):
        return USER if code == id(user.__code__) else SKIPPED
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(classify)
    has_user = lib.frtop_find_frame(ctypes.byref(found), kind)
    if has_user:
        frame = sys._getframe()
        while frame.f_code is not user.__code__:
            frame = frame.f_back
        assert found.code == id(frame.f_code)
        assert check._line(frame.f_code, found.instruction) == frame.f_lineno
    seen += 1  # last: nobody sees what a thread or a destructor raises
    return bool(has_user)

USER, SKIPPED = 1, 2
def user(function):
    assert look()
    return function() is not False and \\
        look()

def recursive(depth):
    return recursive(depth - 1) if depth else look()

def generated():
    yield look()
    try:
        yield (
            look()
        )
    finally:
        look()

async def awaited():
    await asyncio.sleep(0)
    async def inner():
        assert user(look)
    await asyncio.gather(inner(), inner())
    return look()

class Manager:
    def __enter__(self):
        look()
    def __exit__(self, *error):
        look()
    def __del__(self):
        look()
    @property
    def value(self):
        return look()

look()
user(look)
user(lambda: [look() for _ in range(2)])
user(lambda: list(generated()))
user(lambda: sorted([2, 1], key=lambda one: look() or one))
user(lambda: recursive(40))
user(lambda: next(one for one in (look() for _ in range(2))) or True)
def body():
    class Body:
        at = look()
    return exec("look()\\n\\nlook()", globals()) or True
user(body)
def managed():
    with Manager() as manager:
        Manager().value
        try:
            raise ValueError
        except ValueError:
            look()
    return True
user(managed)
user(lambda: asyncio.run(awaited()) or True)
thread = threading.Thread(target=lambda: user(look))
thread.start()
thread.join()
lib.frtop_forget_codes()
user(look)
print(seen)
"""
LOOKS: Final = 51


def pythons() -> list[str]:
    """This Python, and others that are installed for this user."""
    found = [sys.executable]
    for minor in (10, 12, 13, 14):
        others = sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python3"))
        found += [str(one) for one in others[-1:]]
    return found


@pytest.mark.parametrize("python", pythons(), ids=lambda path: Path(path).parts[-3])
def test_frames_are_those_of_python(python: str, tmp_path: Path) -> None:
    def run(*words: str) -> str:
        done = subprocess.run(
            words, capture_output=True, text=True, check=False, timeout=60,
            env={**os.environ, "PYTHONPATH": str(Path(build.__file__).parents[3])},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    headers = run(python, "-c", "import sysconfig; print(sysconfig.get_path('include'))")
    compiler = shutil.which("gcc")
    if compiler is None or not Path(headers, "Python.h").exists():
        pytest.skip("no compiler, or no headers of this Python")
    kernels = str(tmp_path / "frames.so")
    run(compiler, *build.COMMON[:-1], f"-I{headers}", "-Wall", "-Werror", "-shared",
        str(build.HERE / "frames.c"), "-o", kernels)  # fmt: skip
    assert int(run(python, "-c", PROGRAM, kernels)) == LOOKS
