"""Which processes have a GPU open, and which GPU is whose: never a guess."""

from __future__ import annotations

from pathlib import Path

import pytest

from frtop_probe.gauges.devices import (
    NO_LIST,
    NOT_LISTED,
    OTHER_PIDS,
    gpus_by_pid,
    has_driver,
    opens_device,
    sees_all_pids,
)
from gauges.standin import rank_with


def test_a_process_with_a_device_open_is_told_from_one_without(tmp_path: Path) -> None:
    assert not has_driver(tmp_path)
    with rank_with(tmp_path, "null") as without, rank_with(tmp_path, "nvidiactl") as with_one:
        assert has_driver(tmp_path)
        assert opens_device(without.pid, devices=tmp_path) is False
        assert opens_device(with_one.pid, devices=tmp_path) is True
    assert opens_device(with_one.pid, devices=tmp_path) is False  # it has ended


def test_whose_pids_ours_are_is_told_by_the_namespace(tmp_path: Path) -> None:
    folder = tmp_path / "self/ns"
    folder.mkdir(parents=True)
    assert not sees_all_pids(tmp_path)
    (folder / "pid").symlink_to("pid:[4026531836]")
    assert sees_all_pids(tmp_path)
    (folder / "pid").unlink()
    (folder / "pid").symlink_to("pid:[4026532219]")
    assert not sees_all_pids(tmp_path)


@pytest.mark.parametrize("all_pids", [True, False])
def test_a_rank_that_is_listed_has_its_gpus(all_pids: bool) -> None:
    found, reasons = gpus_by_pid(
        {0: (77, 78), 1: (77,), 2: None}, (77, 78), all_pids=all_pids, opens=lambda _: True
    )
    assert found == {77: (0, 1), 78: (0,)}
    assert reasons == {}


def test_a_rank_that_is_not_listed_is_undecided() -> None:
    found, reasons = gpus_by_pid({0: (78,), 1: ()}, (77,), all_pids=True, opens=lambda _: True)
    assert (found, reasons) == ({}, {77: NOT_LISTED})
    _, reasons = gpus_by_pid({0: None}, (77,), all_pids=True, opens=lambda _: True)
    assert reasons == {77: NO_LIST}


@pytest.mark.parametrize("listed", [(77, 90_001), ()])
def test_in_a_container_equal_numbers_prove_nothing(listed: tuple[int, ...]) -> None:
    """The machine's pid 77 may be anybody: 90001, which is not here, shows whose pids they are."""
    found, reasons = gpus_by_pid(
        {0: listed}, (77,), all_pids=False, opens=lambda pid: pid == 77 or None
    )
    assert (found, reasons) == ({}, {77: OTHER_PIDS})
