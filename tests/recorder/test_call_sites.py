"""The line of the program that issued an op, found at each op in the same short time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from frtop_probe.recorder.ops import call_sites
from frtop_probe.recorder.ops.call_sites import CallSites
from frtop_probe.recorder.own_ring import OwnRing, create
from frtop_probe.ring.reader import Ring

Find = Callable[[FrameType | None], int]


@pytest.fixture
def writer(tmp_path: Path) -> OwnRing:
    tmp_path.chmod(0o700)
    return create([tmp_path])


@pytest.fixture
def sites(writer: OwnRing) -> CallSites:
    return CallSites(writer, "/opt/torch")


def program(text: str, find: Find, file: str = "/home/user/train.py") -> dict[str, Any]:
    """Runs a program in which `here()` is the number of the line that calls it."""

    def here() -> int:
        return find(sys._getframe(1))

    names: dict[str, Any] = {"here": here}
    exec(compile(text, file, "exec"), names)
    return names


def test_a_line_has_one_number_from_all_its_instructions(sites: CallSites, writer: OwnRing) -> None:
    text = "def step():\n return here(), here()\ndef other():\n return here()\n"
    names = program(text, sites.finder())
    first, second = names["step"]()
    assert first == second == names["step"]()[0] > 0
    assert names["other"]() not in (0, first)
    assert {tuple(one[:2]) for one in Ring(writer.path).sites.values()} == {
        ("/home/user/train.py", 2), ("/home/user/train.py", 4),
    }  # fmt: skip


def test_frames_of_torch_are_passed_over(sites: CallSites, writer: OwnRing) -> None:
    inner = program("def issue():\n return here()\n", sites.finder(), "/opt/torch/c10d.py")
    outer = program("def step():\n return issue()\n", sites.finder())
    outer["issue"] = inner["issue"]
    number = outer["step"]()
    assert Ring(writer.path).sites[number][:2] == ("/home/user/train.py", 2)
    assert sites.finder()(None) == 0


def test_new_code_at_the_address_of_old_code_is_not_taken_for_it(
    sites: CallSites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also not once the old one's entry was dropped, and its address is given away again."""
    monkeypatch.setattr(call_sites, "MAX_PLACES", 3)
    find = sites.finder()
    found = [
        program("\n" * line + "def step():\n return here()\n", find)["step"]() for line in range(40)
    ]
    assert len(set(found)) == 40
    assert 0 not in found
    assert len(sites._places) <= 3


def test_a_long_function_is_not_searched_at_each_op(sites: CallSites) -> None:
    """Finding the line of a frame takes longer the longer its function is."""

    class Frame:
        """A frame that counts how often its line is asked for."""

        asked = 0
        f_lasti = 700
        f_back = None
        f_code = compile("here()", "/home/user/train.py", "exec")

        @property
        def f_lineno(self) -> int:
            self.asked += 1
            return 300

    frame: Any = Frame()
    find = sites.finder()
    assert len({find(frame) for _ in range(100)}) == 1
    assert frame.asked <= 2
