"""Whatever a file of the kernel says, a parser gives plausible numbers, or none."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frtop_probe.gauges.host.cgroups import hierarchies, parse_cpu_max, parse_memberships
from frtop_probe.gauges.host.disks import parse_diskstats
from frtop_probe.gauges.host.figures import parse_load, parse_pressure, parse_snmp, parse_stat
from frtop_probe.gauges.host.mounts import mount_of, parse_mounts
from frtop_probe.gauges.host.network import parse_rate, parse_state
from frtop_probe.gauges.host.rates import Rates
from frtop_probe.gauges.readings import HostReading, SubjectReading, host_reading_from, known
from frtop_probe.proc.kernel_files import named_numbers, number

MOUNTS = (
    "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n"
    r"37 36 0:45 / /mnt2/a\040b rw - nfs4 filer:/data rw" "\n"
)  # fmt: skip
SAMPLES: dict[Callable[[str], Any], str] = {
    parse_stat: "cpu  10 2 3 400 5 0 6 7 0 0\ncpu0 1 2 3\ncpu1 1 2 3\nintr 5\n",
    parse_load: "8.68 7.01 5.00 3/999 12345\n",
    parse_pressure: "some avg10=12.34 avg60=1.00 avg300=0.00 total=5\nfull avg10=0.00 avg60=0.0",
    parse_cpu_max: "200000 100000\n",
    parse_memberships: "4:memory:/a\n3:cpu,cpuacct:/b\n0::/c\n",
    parse_mounts: MOUNTS,
    parse_diskstats: " 254 0 vda 13 70 452 154 97 21 297 294 0 400 158 0 0 0 0 0 0\n",
    parse_rate: "400 Gb/sec (4X NDR)\n",
    parse_state: "4: ACTIVE\n",
    parse_snmp: "Tcp: RtoMin OutSegs RetransSegs\nTcp: 200 1999 16\nUdp: InDatagrams\nUdp: 5\n",
    named_numbers: "oom_kill 3\nMemFree:  12 kB\n",
}


def numbers(found: Any) -> list[int]:
    if isinstance(found, bool) or found is None or isinstance(found, str):
        return []
    if isinstance(found, int):
        return [found]
    if isinstance(found, dict):
        return [n for value in found.values() for n in numbers(value)]
    if isinstance(found, list | tuple):
        return [n for value in found for n in numbers(value)]
    return [n for value in asdict(found).values() for n in numbers(value)]


@given(st.sampled_from(list(SAMPLES)), st.data())
def test_damaged_text_gives_no_impossible_number(
    parse: Callable[[str], Any], data: st.DataObject
) -> None:
    text = SAMPLES[parse]
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(text)))
        piece = data.draw(st.text(max_size=4) | st.sampled_from(["-", "9" * 30, "\n", " ", "²"]))
        text = text[:place] + piece + text[place + data.draw(st.integers(0, 9)) :]
    assert all(0 <= value < 10**42 for value in numbers(parse(text)))


@given(st.sampled_from(list(SAMPLES)), st.text())
def test_any_text_gives_no_error(parse: Callable[[str], Any], text: str) -> None:
    parse(text)


@pytest.mark.parametrize(
    ("parse", "found"),
    [
        (parse_stat, ({"user": 10, "nice": 2, "system": 3, "idle": 400, "iowait": 5, "irq": 0,
                       "softirq": 6, "steal": 7}, 2)),
        (parse_load, 868),
        (parse_pressure, {"some": 123, "full": 0}),
        (parse_cpu_max, 2000),
        (parse_memberships, {"memory": "/a", "cpu": "/b", "cpuacct": "/b", "": "/c"}),
        (parse_rate, 50_000_000_000),
        (parse_state, (4, "ACTIVE")),
        (parse_snmp, {"RtoMin": 200, "OutSegs": 1999, "RetransSegs": 16}),
        (named_numbers, {"oom_kill": 3, "MemFree": 12}),
    ],
)  # fmt: skip
def test_samples(parse: Callable[[str], Any], found: object) -> None:
    assert parse(SAMPLES[parse]) == found


def test_the_slowest_port_that_there_is() -> None:
    assert parse_rate("2.5 Gb/sec (1X SDR)") == 312_500_000
    assert parse_cpu_max("max 100000") is None
    assert parse_cpu_max("-1 100000") is None
    assert number("18446744073709551615") is None  # no counter of ours is as large


def test_the_innermost_mount_is_that_of_a_path() -> None:
    mounts = parse_mounts(MOUNTS)
    assert [one.folder for one in mounts] == ["/mnt2", "/mnt2/a b"]
    assert mounts[1].source == "filer:/data"
    deep = mount_of("/mnt2/a b/c", mounts)
    assert deep is not None
    assert (deep.kind, deep.device) == ("nfs4", "0:45")
    assert mount_of("/mnt2/a bc", mounts) == mounts[0]
    assert mount_of("/other", mounts) is None


def test_hierarchies_of_both_versions_are_told_apart() -> None:
    text = (
        "31 23 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
        "32 23 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
    )
    found = hierarchies(parse_mounts(text))
    assert found[""].folder == "/sys/fs/cgroup/unified"
    assert found["cpuacct"].folder == found["cpu"].folder == "/sys/fs/cgroup/cpu"


READING = HostReading(
    7, (SubjectReading("disk", "/tmp", {"free": 1}, "ext4", "", (77,)),), ("no InfiniBand",)
)


def test_a_reading_survives_its_way_through_json() -> None:
    assert host_reading_from(json.loads(json.dumps(asdict(READING)))) == READING


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(st.sampled_from(["at_ns", "subjects", "notes", "kind", "values", "pids", "name"]), JSON)
def test_an_answer_of_another_form_is_refused_or_understood(name: str, value: Any) -> None:
    data = json.loads(json.dumps(asdict(READING)))
    (data if name in data else data["subjects"][0])[name] = value
    try:
        found = host_reading_from(data)
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError):
        return
    assert all(0 <= n < 2**63 for one in found.subjects for n in one.values.values())


def test_a_counter_that_fell_or_went_has_no_rate() -> None:
    rates = Rates()
    second = 10**9
    assert rates.per_second("a", 5, second) is None
    assert rates.per_second("a", 25, 3 * second) == 10
    assert rates.per_second("a", 3, 4 * second) is None
    assert rates.per_second("a", None, 5 * second) is None
    assert rates.per_second("a", 9, 6 * second) is None
    assert rates.permille("b", 0, second) is None
    assert rates.permille("b", 5 * second, 2 * second) == 1000


def test_counters_that_nobody_reads_any_more_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frtop_probe.gauges.host.rates.MOST", 3)
    rates = Rates()
    for key in range(9):
        rates.rise(key, 1, 1)
    assert len(rates._last) == 3


def test_values_that_are_not_plausible_are_left_out() -> None:
    assert known(a=1, b=None, c=-1, d=2**63) == {"a": 1}
