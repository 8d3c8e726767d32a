"""Findings from made-up facts: which obstacle is named, which line opens it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from features.doctor.sample_facts import HOST, OURS, RANK, SHM, SPACES, SPY, THEIRS, TORCH
from frtop_probe.features.doctor.examination import Examination, examine
from frtop_probe.features.doctor.facts import (
    HostFacts,
    OtherRanks,
    PlaceFacts,
    ProcFacts,
    RankFacts,
    Result,
    RingFacts,
    SearchFacts,
    ServiceFacts,
    ToolFacts,
    TorchFiles,
    Trial,
)
from frtop_probe.features.doctor.tier import Mark, Tier
from frtop_probe.proc.memory import NO_RIGHT, WAITS_FOR_MEMORY
from frtop_probe.proc.ptrace_refusal import ProgramFlaw, why_refused
from frtop_probe.unprepared.c10d_state import NO_GROUPS
from frtop_probe.unprepared.cpython import FREE_THREADED
from frtop_probe.unprepared.flight_ring import NO_RING
from frtop_probe.unprepared.flight_settings import OFF
from frtop_probe.unprepared.static_symbols import CHANGED, STRIPPED
from frtop_probe.unprepared.torch_layout import STRIPPED as NO_CLASSES
from frtop_tui.features.doctor.words import WIDTH, doctor_document, doctor_lines
from json_schemas import read_document

SERVICE = ServiceFacts(key_path="/k", version="1", port=7677, free_port=7677)


def beside(*ranks: RankFacts, host: HostFacts = HOST, **fields: object) -> Examination:
    return examine(host, replace(SearchFacts(ranks, job="train.py"), **fields), SERVICE)  # type: ignore[arg-type]


def before(host: HostFacts = HOST) -> Examination:
    return examine(host, SearchFacts(), SERVICE)


def tier(found: Examination, code: str) -> Tier:
    return next(one for one in found.tiers if one.code == code)


def lines(found: Examination, code: str, where: str = "") -> list[str]:
    changes = [one for obstacle in tier(found, code).obstacles for one in obstacle.changes]
    return [change.line for change in changes if where in ("", change.where)]


def test_where_all_is_open_the_exit_status_is_0() -> None:
    for found in (beside(RANK), before()):
        assert [one.code for one in found.tiers if one.mark != "ok"] == ["devices"]  # never tried
        assert found.exit_status == 0
        assert doctor_lines(found)[-1] == (
            "all that was tried is open; not tried: ops on devices (exit status 0)"
        )
    taken = examine(HOST, SearchFacts((RANK,)), replace(SERVICE, free_port=7679))
    assert tier(taken, "ports").mark == "closed"
    assert taken.exit_status == 0  # it costs no evidence
    document = read_document(json.dumps(doctor_document(beside(RANK))), "frtop-doctor-1")
    assert document["exit_status"] == 0
    assert document["search"]["ranks"][0]["rings"][0]["capacity"] == 2000


@pytest.mark.parametrize(
    ("ours", "theirs", "yama", "code", "line"),
    [
        ({}, {"uid": 5}, "1", "user", "sudo -u '#5' frtop"),
        ({}, {"gid": 5}, "1", "group", "sudo -g '#5' frtop"),
        ({}, {"owner": 0}, "1", "dumpable", "import ctypes; ctypes.CDLL(None).prctl(4, 1)"),
        ({}, {"permitted": 1 << 21}, "1", "capabilities", "--cap-add=SYS_PTRACE"),
        ({}, {}, "1", "yama", "sudo sysctl kernel.yama.ptrace_scope=0"),
        ({}, {}, "2", "yama", "sudo sysctl kernel.yama.ptrace_scope=0"),
        ({"effective": 1 << 19}, {}, "3", "yama", "echo kernel.yama.ptrace_scope=0 | sudo tee"),
        ({}, {}, "", "no capability", "--cap-add=SYS_PTRACE"),
        ({"effective": 1 << 19}, {}, "1", "module", "--security-opt apparmor=unconfined"),
        ({"effective": 1 << 19, "seccomp": 2}, {}, "1", "module",
         "--security-opt seccomp=unconfined"),
        ({"effective": 1 << 19}, {"namespaces": SPACES | {"user": 9}}, "", "user namespace",
         "frtop    # outside the container"),
        ({"namespaces": SPACES | {"user": 9}}, {"namespaces": {}}, "", "user namespace",
         "frtop    # outside the container"),
        ({}, {"uid": 5, "namespaces": SPACES | {"user": 9}}, "", "user",
         "nsenter -t 77 -U -m -p -n frtop"),
    ],
)  # fmt: skip
def test_a_refusal_is_explained_in_the_order_of_the_kernel(
    ours: dict[str, object], theirs: dict[str, object], yama: str, code: str, line: str
) -> None:
    found = why_refused(
        replace(OURS, **ours),  # type: ignore[arg-type]
        replace(THEIRS, **theirs),  # type: ignore[arg-type]
        yama,
    )
    assert found.code == code
    assert found.changes[0].line.startswith(line)


@pytest.mark.parametrize(
    ("flaw", "line"),
    [
        ("unreadable", "sudo chmod a+r /j/bin/python3.11"),
        ("capabilities", "sudo setcap -r /j/bin/python3.11"),
    ],
)
def test_the_file_of_a_program_may_be_why_it_is_not_dumpable(flaw: ProgramFlaw, line: str) -> None:
    rank = replace(
        RANK, memory=NO_RIGHT, c10d=NO_RIGHT, groups=0, rings=(), program_flaw=flaw,
        rights=replace(THEIRS, owner=0),
    )  # fmt: skip
    assert lines(beside(rank), "c10d") == [line]


def test_a_refused_rank_closes_all_that_is_read_and_names_only_that_rank() -> None:
    refused = replace(RANK, pid=78, rank=1, memory=NO_RIGHT, c10d=NO_RIGHT, groups=0, rings=())
    found = beside(RANK, refused, host=replace(HOST, yama="1"))
    for code in ("stacks", "c10d", "history", "native"):
        (obstacle,) = tier(found, code).obstacles
        assert (obstacle.code, obstacle.of) == ("yama", ("rank 1",))
    assert found.exit_status == 1


def test_prepared_ranks_let_the_agent_read_them_where_yama_leaves_that_to_them() -> None:
    ranks = [
        replace(RANK, pid=78 + n, rank=n, memory=NO_RIGHT, c10d=NO_RIGHT, groups=0, rings=(),
                prepared=True)
        for n in range(2)
    ]  # fmt: skip
    refused = Trial("refused", "EACCES")
    host = replace(HOST, yama="1", read_memory=refused, vm_readv=refused, ptrace=refused)
    found = beside(*ranks, host=host)
    for code in ("stacks", "c10d", "native"):
        assert tier(found, code).obstacles == ()
        assert tier(found, code).mark == "not tried"
        assert tier(found, code).notes[0].startswith("ranks 0-1: prepared, and kernel.yama")
    for scope in ("2", "3"):  # which no process can open for another
        found = beside(*ranks, host=replace(host, yama=scope))
        assert tier(found, "c10d").obstacles[0].code == "yama"
    mixed = beside(ranks[0], replace(ranks[1], prepared=False), host=host)
    (obstacle,) = tier(mixed, "c10d").obstacles
    assert (obstacle.code, obstacle.of) == ("yama", ("rank 1",))
    assert any(one.line.startswith("frtop run") for one in obstacle.changes)


def test_the_same_reason_of_several_ranks_is_said_once() -> None:
    ranks = [
        replace(
            RANK, pid=pid, rank=None, memory=NO_RIGHT, c10d=NO_RIGHT, groups=0, rings=(),
            rights=replace(THEIRS, pid=pid, gid=0),
        )
        for pid in (81, 82, 83)
    ]  # fmt: skip
    (obstacle,) = tier(beside(*ranks), "c10d").obstacles
    assert obstacle.text == "it runs with group 0, frtop with group 1000"
    assert obstacle.of == ("pid 81", "pid 82", "pid 83")


def test_on_a_host_no_option_of_a_container_opens_what_yama_closes() -> None:
    typed = why_refused(OURS, THEIRS, "1").changes
    assert {change.where for change in typed} == {"type"}
    assert "setpriv --reuid=1000 --regid=1000" in typed[1].line
    inside = replace(THEIRS, namespaces=SPACES | {"pid": 8})
    assert "docker run" in {change.where for change in why_refused(OURS, inside, "1").changes}
    line = why_refused(replace(OURS, namespaces=inside.namespaces), inside, "1").changes[0].line
    assert line.endswith("kernel.yama.ptrace_scope=0    # on the host, outside the container")


def test_native_stacks_need_the_pid_namespace_of_the_rank() -> None:
    inside = replace(RANK, rights=replace(THEIRS, namespaces=SPACES | {"pid": 8}))
    found = beside(inside)
    assert [one.code for one in found.tiers if one.mark == "closed"] == ["native"]
    (line,) = lines(found, "native")
    assert line.startswith("frtop stacks --native --rank N --ssh CONTAINER --via")


@pytest.mark.parametrize(
    ("result", "mark", "tool"), [("refused", "ok", "py-spy"), ("killed", "closed", "py-spy")]
)
def test_py_spy_does_without_process_vm_readv_unless_the_call_ends_it(
    result: Result, mark: Mark, tool: str
) -> None:
    host = replace(HOST, vm_readv=Trial(result, "EPERM"), rights=replace(OURS, seccomp=2))
    found = beside(RANK, host=host)
    assert tier(found, "stacks").mark == mark
    assert tier(found, "native").basis.startswith(tool)


def test_a_container_without_shared_memory_is_started_with_it() -> None:
    inside = replace(OURS, namespaces=SPACES | {"pid": 8})
    nowhere = PlaceFacts("/dev/shm", error="No such file or directory")
    found = before(replace(HOST, rights=inside, shared_memory=nowhere))
    assert lines(found, "recorder", "docker run") == ["--ipc=private    # instead of --ipc=none"]
    assert lines(found, "recorder", "type") == []


def test_ranks_are_folded_and_counted() -> None:
    refused = [
        replace(RANK, pid=80 + number, rank=number, memory=NO_RIGHT, c10d=NO_RIGHT, groups=0)
        for number in range(4)
    ]
    found = beside(replace(RANK, rank=4), *refused, host=replace(HOST, yama="1"))
    assert tier(found, "c10d").basis == "yama: 4 of 5 ranks"
    assert "(ranks 0-3)" in "\n".join(doctor_lines(found))


def test_sudo_that_cannot_work_is_said() -> None:
    host = replace(HOST, rights=replace(OURS, no_new_privileges=True))
    assert "sudo has no effect here" in tier(before(host), "processes").notes[0]


def test_tiers_with_the_same_obstacle_are_shown_together() -> None:
    refused = replace(RANK, memory=NO_RIGHT, c10d=NO_RIGHT, groups=0, rings=())
    text = "\n".join(doctor_lines(beside(refused, host=replace(HOST, yama="1"))))
    assert text.count("sudo sysctl kernel.yama.ptrace_scope=0") == 1
    assert "Python stacks, c10d state, torch's history, native stacks" in text


@pytest.mark.parametrize(
    ("version", "settings", "mark", "line"),
    [
        ("2.13.0", {}, "ok", ""),
        ("2.13.0", {"TORCH_FR_BUFFER_SIZE": "0"}, "closed", "export TORCH_FR_BUFFER_SIZE=2000"),
        ("2.10.0", {}, "closed", "export TORCH_FR_BUFFER_SIZE=2000"),
        ("2.10.0", {"TORCH_NCCL_TRACE_BUFFER_SIZE": "500"}, "ok", ""),
        ("2.10.0", {"TORCH_FR_BUFFER_SIZE": "0", "TORCH_NCCL_TRACE_BUFFER_SIZE": "9"}, "closed",
         "export TORCH_FR_BUFFER_SIZE=2000"),
        ("2.8.0", {}, "closed", "export TORCH_NCCL_TRACE_BUFFER_SIZE=2000"),
        ("2.8.0", {"TORCH_FR_BUFFER_SIZE": "9"}, "closed",
         "export TORCH_NCCL_TRACE_BUFFER_SIZE=2000"),
        ("a0+git", {}, "not tried", ""),
    ],
)  # fmt: skip
def test_the_flight_recorder_of_the_next_job(
    version: str, settings: dict[str, str], mark: str, line: str
) -> None:
    torch = replace(TORCH, version=version)
    found = before(replace(HOST, job_torch=torch, settings=settings))
    assert tier(found, "history").mark == mark
    assert lines(found, "history", "job script") == ([line] if line else [])


@pytest.mark.parametrize(
    ("ring", "version", "mark", "line"),
    [
        (RingFacts("gloo", reason=OFF), "2.9.1", "closed", "export TORCH_FR_BUFFER_SIZE=2000"),
        (RingFacts("gloo", reason=NO_RING), "2.9.1", "closed", "export TORCH_FR_BUFFER_SIZE=2000"),
        (RingFacts("gloo", reason=NO_RING), "2.13.0", "not tried", ""),
        (RingFacts("gloo", reason=STRIPPED), "2.13.0", "closed",
         "pip install --force-reinstall --no-deps 'torch==2.13.0'"),
        (RingFacts("gloo", reason=CHANGED), "2.13.0", "closed", "scancel JOB"),
    ],
)  # fmt: skip
def test_the_flight_recorder_of_a_running_rank(
    ring: RingFacts, version: str, mark: str, line: str
) -> None:
    found = beside(replace(RANK, torch=replace(TORCH, version=version), rings=(ring,)))
    assert tier(found, "history").mark == mark
    assert [one for one in lines(found, "history") if one.startswith(line)] or not line


@pytest.mark.parametrize(
    ("settings", "mark", "line"),
    [
        ({}, "ok", ""),
        ({"TORCH_NCCL_DUMP_ON_TIMEOUT": "false"}, "closed", "export TORCH_NCCL_DUMP_ON_TIMEOUT=1"),
        ({"TORCH_NCCL_BLOCKING_WAIT": "1"}, "closed", "export TORCH_NCCL_BLOCKING_WAIT=0"),
        ({"TORCH_FR_BUFFER_SIZE": "0"}, "closed", "export TORCH_FR_BUFFER_SIZE=2000"),
    ],
)
def test_dumps_at_a_timeout(settings: dict[str, str], mark: str, line: str) -> None:
    found = beside(replace(RANK, settings=settings))
    assert tier(found, "dumps").mark == mark
    assert lines(found, "dumps", "job script") == ([line] if line else [])


def test_whether_an_older_torch_dumps_by_itself_is_not_claimed() -> None:
    old = replace(TORCH, version="2.9.0")
    settings = {"TORCH_FR_BUFFER_SIZE": "2000"}
    found = tier(beside(replace(RANK, torch=old, settings=settings)), "dumps")
    assert found.mark == "not tried"
    assert "export TORCH_NCCL_DUMP_ON_TIMEOUT=1" in found.notes[0]
    settings |= {"TORCH_NCCL_DUMP_ON_TIMEOUT": "1"}
    assert tier(beside(replace(RANK, torch=old, settings=settings)), "dumps").mark == "ok"


BLIND = {"TORCH_NCCL_BLOCKING_WAIT": "1", "TORCH_FR_BUFFER_SIZE": "0"}
FOR_CPUS = replace(TORCH, version="2.13.0+cpu")


@pytest.mark.parametrize(
    ("found", "code", "basis"),
    [
        (before(replace(HOST, job_torch=None)), "dumps", "no torch was found"),
        (beside(replace(RANK, backends=("gloo",))), "dumps", "gloo writes none"),
        (before(replace(HOST, settings=BLIND, job_torch=FOR_CPUS)), "devices",
         "a torch without NCCL"),
        (beside(replace(RANK, backends=("gloo",), settings=BLIND)), "devices", "no NCCL group"),
        (beside(RankFacts(78, 1, rights=THEIRS, no_return=True)), "c10d",
         "no rank could be read in time"),
        (beside(RankFacts(78, 1, rights=THEIRS, no_return=True)), "history",
         "no rank could be read in time"),
    ],
)  # fmt: skip
def test_nothing_is_claimed_of_what_is_not_there(found: Examination, code: str, basis: str) -> None:
    one = tier(found, code)
    assert (one.mark, one.basis, one.notes, one.obstacles) == ("not tried", basis, (), ())


def test_a_job_that_is_yet_to_start_is_judged_whatever_runs_here() -> None:
    found = examine(HOST, SearchFacts(searched=False), SERVICE)
    head = " ".join(" ".join(doctor_lines(found)[:2]).split())
    assert "no rank runs here" not in head
    assert "for a job that has not started (torch 2.13.0" in head


@pytest.mark.parametrize(
    ("torch", "code"),
    [
        (replace(TORCH, version="2.7.1"), "torch"),
        (replace(TORCH, exports=False), "stripped"),
    ],
)
def test_a_torch_whose_c10d_state_cannot_be_read(torch: TorchFiles, code: str) -> None:
    (obstacle,) = tier(before(replace(HOST, job_torch=torch)), "c10d").obstacles
    assert obstacle.code == code
    assert obstacle.changes[0].line.startswith("pip install ")


def test_a_torch_that_is_newer_than_all_that_were_tried_is_said() -> None:
    found = tier(before(replace(HOST, job_torch=replace(TORCH, version="2.16.0"))), "c10d")
    assert found.mark == "ok"
    assert "torch 2.16.0 is newer" in found.notes[0]


@pytest.mark.parametrize(("c10d", "mark"), [
    (NO_GROUPS, "not tried"), (NO_CLASSES, "closed"), (FREE_THREADED, "closed"),
])  # fmt: skip
def test_books_that_are_not_read(c10d: str, mark: str) -> None:
    found = tier(beside(replace(RANK, c10d=c10d, groups=0)), "c10d")
    assert found.mark == mark
    if mark == "closed":
        assert found.obstacles[0].text == c10d
        assert found.obstacles[0].changes


@pytest.mark.parametrize(
    ("tool", "code", "line"),
    [
        (ToolFacts("py-spy"), "no py-spy", "/v/bin/python -m pip install --force-reinstall py-spy"),
        (replace(SPY, machine=183), "architecture",
         "/v/bin/python -m pip install --force-reinstall py-spy"),
        (replace(SPY, noexec=True), "noexec", "sudo mount -o remount,bind,exec /v"),
        (replace(SPY, executable=False), "not executable", "chmod a+x /v/bin/py-spy"),
    ],
)  # fmt: skip
def test_a_tool_that_does_not_run(tool: ToolFacts, code: str, line: str) -> None:
    found = beside(RANK, host=replace(HOST, tools=(tool,)))
    for name in ("stacks", "native"):
        assert tier(found, name).obstacles[0].code == code
        assert lines(found, name)[0] == line
    assert tier(found, "c10d").mark == "ok"


def test_what_a_tool_says_of_its_failure_is_quoted() -> None:
    broken = replace(SPY, trial=Trial("failed", "GLIBC_2.99 not found"))
    found = tier(beside(RANK, host=replace(HOST, tools=(broken,))), "stacks")
    assert "GLIBC_2.99 not found" in found.obstacles[0].text


def test_a_rank_that_is_stopped_or_traced_gives_no_native_stacks() -> None:
    stopped = replace(RANK, rights=replace(THEIRS, state="T"))
    assert lines(beside(stopped), "native") == ["kill -CONT 77"]
    traced = replace(RANK, rights=replace(THEIRS, tracer=55))
    assert lines(beside(traced), "native")[0].startswith("kill 55 ")
    assert tier(beside(traced), "stacks").mark == "ok"


def test_a_read_that_does_not_return_is_said_and_the_other_ranks_are_judged() -> None:
    waits = replace(RANK, memory=WAITS_FOR_MEMORY, c10d=WAITS_FOR_MEMORY, groups=0, rank=1)
    (obstacle,) = tier(beside(RANK, waits), "c10d").obstacles
    assert (obstacle.text, obstacle.of) == (WAITS_FOR_MEMORY, ("rank 1",))
    stuck = RankFacts(78, 1, rights=THEIRS, no_return=True)
    found = beside(RANK, stuck)
    (obstacle,) = tier(found, "processes").obstacles
    assert (obstacle.code, obstacle.of) == ("no return", ("rank 1",))
    assert tier(found, "c10d").mark == "ok"
    assert found.exit_status == 1


def test_ranks_of_others_are_counted() -> None:
    others = (OtherRanks("bob", 1001, 4),)
    found = beside(others=others)
    assert tier(found, "processes").mark == "closed"
    assert lines(found, "processes") == ["sudo -u '#1001' frtop"]
    as_root = replace(HOST, rights=replace(HOST.rights, uid=0))
    assert lines(beside(host=as_root, others=others), "processes") == ["frtop --user bob"]
    found = beside(RANK, others=others)
    assert tier(found, "processes").mark == "ok"
    assert "4 more belong to user bob: not looked at" in tier(found, "processes").notes


@pytest.mark.parametrize(
    ("proc", "code"),
    [
        (ProcFacts(mounted=False), "no /proc"),
        (ProcFacts(own=False), "other /proc"),
        (ProcFacts(own=True, hidepid="ptraceable"), "hidepid"),
    ],
)
def test_a_proc_that_hides_processes(proc: ProcFacts, code: str) -> None:
    assert tier(before(replace(HOST, proc=proc)), "processes").obstacles[0].code == code


@pytest.mark.parametrize(
    ("place", "code"),
    [
        (PlaceFacts("/dev/shm", error="No such file or directory"), "no shm"),
        (replace(SHM, writable=False), "shm"),
        (replace(SHM, free=1 << 20), "shm full"),
    ],
)
def test_shared_memory_without_room(place: PlaceFacts, code: str) -> None:
    found = tier(before(replace(HOST, shared_memory=place)), "recorder")
    assert found.obstacles[0].code == code
    assert any("emptyDir" in change.line for change in found.obstacles[0].changes)


def test_the_lines_fit_a_terminal_but_for_those_that_are_copied() -> None:
    refused = replace(RANK, memory=NO_RIGHT, c10d=NO_RIGHT, groups=0, rings=())
    host = replace(HOST, yama="2", shared_memory=replace(SHM, free=0), tools=(ToolFacts("py-spy"),))
    found = beside(refused, replace(refused, rank=1, pid=78), host=host)
    shown = doctor_lines(found)
    copied = {change.line for one in found.tiers for o in one.obstacles for change in o.changes}
    for line in shown:
        assert len(line) <= WIDTH or any(line.endswith(change) for change in copied), line
    assert {change for change in copied if not any(change in line for line in shown)} == set()


def test_gpu_gauges_are_a_tier_only_where_the_driver_is() -> None:
    def with_nvml(result: Result, detail: str = "") -> Examination:
        return before(replace(HOST, nvml=Trial(result, detail)))

    assert "gauges" not in [one.code for one in before().tiers]
    fine = tier(with_nvml("ok", "8"), "gauges")
    assert (fine.mark, fine.basis) == ("ok", "NVML reports 8 GPUs")
    lacking = with_nvml("missing")
    assert lacking.exit_status == 0  # nothing that a verdict needs
    (obstacle,) = tier(lacking, "gauges").obstacles
    assert obstacle.changes[0].line.endswith("-m pip install 'nvidia-ml-py>=12.535'")
    assert tier(with_nvml("killed"), "gauges").basis == "NVML hangs"
    failed = tier(with_nvml("failed", "NVML: Driver Not Loaded"), "gauges")
    assert failed.obstacles[0].text == "NVML: Driver Not Loaded"


def test_settings_that_hide_ops_on_devices_are_named_with_the_ranks_that_have_them() -> None:
    blocking = replace(RANK, settings={"TORCH_NCCL_BLOCKING_WAIT": "1"})
    other = replace(RANK, pid=78, rank=1)
    found = tier(beside(blocking, other), "devices")
    (obstacle,) = found.obstacles
    assert (obstacle.code, obstacle.of) == ("blocking wait", ("rank 0",))
    assert [one.line for one in obstacle.changes if one.where == "job script"] == [
        "export TORCH_NCCL_BLOCKING_WAIT=0"
    ]
    (timing,) = found.notes
    assert timing.startswith("no dump shows when an NCCL op began")  # of both


def test_a_ring_that_was_seen_counts_more_than_the_settings() -> None:
    old = replace(TORCH, version="2.9.1")
    off = tier(beside(replace(RANK, torch=old, rings=())), "devices")
    assert [one.code for one in off.obstacles] == ["recorder off"]
    assert tier(beside(replace(RANK, torch=old)), "devices").obstacles == ()
    (obstacle,) = tier(before(replace(HOST, job_torch=old)), "devices").obstacles
    assert obstacle.text == "the Flight Recorder is off: torch 2.9.1 has it off by default"
