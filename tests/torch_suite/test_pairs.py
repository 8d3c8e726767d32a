"""A small test file of torch's kind, run without and with the recorder for real."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from torch_suite.pairs import Pairs, Setting

pytestmark = [pytest.mark.torch, pytest.mark.job, pytest.mark.long]

CASES = """
import os, sys, time, unittest
import torch
import torch.distributed as dist
from torch.testing._internal.common_distributed import MultiProcessTestCase


class SmallTest(MultiProcessTestCase):
    world_size = 2

    def setUp(self):
        super().setUp()
        self._spawn_processes()

    def _reduce(self):
        store = dist.FileStore(self.file_name, 2)
        dist.init_process_group("gloo", store=store, rank=self.rank, world_size=2)
        dist.all_reduce(torch.ones(3))

    def test_passes(self):
        self._reduce()

    def test_fails(self):
        self._reduce()
        raise ValueError("as it should")

    def test_talks(self):
        self._reduce()
        print("frtop: recorder switched itself off", file=sys.stderr)


class AloneTest(unittest.TestCase):
    def test_skips(self):
        self.skipTest("no such device")

    def test_knows_the_recorder(self):
        self.assertNotIn("frtop_probe", sys.modules)

    def test_hangs(self):
        time.sleep(60)

    def test_crashes(self):
        os.abort()
"""


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> object:
    pytest.importorskip("expecttest", reason="torch's own test cases import it")
    file = tmp_path_factory.mktemp("suite") / "test_small.py"
    file.write_text(CASES)
    with Pairs(Setting(str(file), Path(sys.executable), "fork", 10.0)) as pairs:
        yield pairs


def test_tests_are_listed_by_class_and_name(pairs: Pairs) -> None:
    assert "test_small.SmallTest.test_passes" in pairs.tests
    assert "test_small.AloneTest.test_skips" in pairs.tests


def test_ops_are_counted_where_the_recorder_ran(pairs: Pairs) -> None:
    result = pairs.run("test_small.SmallTest.test_passes")
    assert result.judgement == "equal"
    recorder = result.pairs[0].recorder
    assert (recorder.rings, recorder.ops, recorder.lines) == (2, 2, ())


def test_a_test_that_fails_either_way_is_equal(pairs: Pairs) -> None:
    result = pairs.run("test_small.SmallTest.test_fails")
    assert (result.judgement, result.pairs[0].without.state) == ("equal", "failed")


def test_a_line_of_frtop_is_a_finding(pairs: Pairs) -> None:
    assert pairs.run("test_small.SmallTest.test_talks").judgement == "finding"


def test_a_skip_has_its_reason(pairs: Pairs) -> None:
    ended = pairs.run("test_small.AloneTest.test_skips").pairs[0].recorded
    assert (ended.state, ended.detail) == ("skipped", "no such device")


def test_a_difference_is_run_again(pairs: Pairs) -> None:
    result = pairs.run("test_small.AloneTest.test_knows_the_recorder")
    assert (result.judgement, len(result.pairs)) == ("different", 5)


def test_a_hang_and_a_crash_end_one_test_only(pairs: Pairs) -> None:
    assert pairs.run("test_small.AloneTest.test_hangs").pairs[0].without.state == "timeout"
    assert pairs.run("test_small.AloneTest.test_crashes").pairs[0].without.state == "crashed"
    assert pairs.run("test_small.AloneTest.test_skips").judgement == "equal"
