"""Stack dumps of py-spy: verdicts on real hangs, and limits on hostile files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frtop_probe import wire
from frtop_probe.ring.rank_ranges import fold
from frtop_tui.diagnosis.model import Frame, Verdict
from frtop_tui.errors import Unreadable
from frtop_tui.files.pyspy import Taken, frame_of, is_pyspy, split, stacks_of
from frtop_tui.text.exit_status import exit_status
from frtop_tui.text.plain import text
from waiting import wait_for

PROGRAM = Path(__file__).parents[1] / "jobs" / "unrecorded.py"
SPY = Path(sys.executable).with_name("py-spy")
RANKS = range(3)
HANGS = [
    "sleeping", "loading", "holding", "computing", "leaving", "crossing", "backward", "late",
    "grouping", "saving",
]  # fmt: skip
APART_S = 2.2

Set = dict[str, Mapping[int, Taken]]


class Jobs:
    """Stack dumps of all hangs of the program, taken twice; the second time with variables."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.first: Set = {}  # by hang
        self.second: Set = {}
        self.native: Mapping[int, Taken] = {}
        self.healthy: list[Mapping[int, Taken]] = []

    def take(self) -> None:
        processes = len(RANKS) * (len(HANGS) + 1)
        output = self.folder / "output"
        wait_for(lambda: len(self._ready()) >= processes, output.read_text, 150, pause_s=0.1)
        self.healthy = [self._dump("healthy", f"healthy-{n}") for n in range(2)]
        for rank in RANKS:
            os.kill(self._pid("healthy", rank), signal.SIGKILL)
        changing = list(HANGS)
        wait_for(
            lambda: not self._dump_twice(changing), lambda: f"still {changing}", 150, pause_s=0
        )
        self.native = self._dump("backward", "native", "--native")

    def _dump_twice(self, changing: list[str]) -> list[str]:
        """Dumps stacks twice; keeps in `changing` the hangs whose stacks changed in between."""
        self.first.update({hang: self._dump(hang, f"{hang}-first") for hang in changing})
        time.sleep(APART_S)
        for hang in list(changing):
            self.second[hang] = self._dump(hang, f"{hang}-second", "--locals")
            if self._settled(hang):
                changing.remove(hang)
        return changing

    def judged(self, hang: str) -> Frame:
        return frame_of(self.folder / hang, self.first[hang])

    def judged_with_variables(self, hang: str) -> Frame:
        return frame_of(self.folder / hang, self.second[hang])

    def judged_twice(self, hang: str) -> Frame:
        found = [*self.first[hang].items(), *self.second[hang].items()]
        newest, earlier = split(found)
        return frame_of(self.folder / hang, newest, (), earlier)

    def _ready(self) -> list[Path]:
        return [path for path in self.folder.glob("*.[0-2]") if path.is_file()]

    def _pid(self, hang: str, rank: int) -> int:
        return int((self.folder / f"{hang}.{rank}").read_text())

    def _dump(self, hang: str, into: str, *options: str) -> dict[int, Taken]:
        folder = self.folder / into
        folder.mkdir(exist_ok=True)

        def one(rank: int) -> Taken:
            how = () if "--native" in options else ("--nonblocking",)
            command = [str(SPY), "dump", "--json", *how, *options]
            path = folder / f"rank_{rank}.pyspy.json"
            command += ["--pid", str(self._pid(hang, rank))]
            failures = []

            def taken() -> bytes:
                done = subprocess.run(command, capture_output=True, check=False)
                failures.append(done.stderr.decode())
                return done.stdout if done.returncode == 0 else b""

            # The process runs on, so that its stack may change while py-spy reads it.
            path.write_bytes(wait_for(taken, lambda: failures[-1]))
            assert is_pyspy(path)
            return "node0", stacks_of(path), path.stat().st_mtime_ns

        with ThreadPoolExecutor(len(RANKS)) as threads:
            return dict(zip(RANKS, threads.map(one, RANKS), strict=True))

    def _settled(self, hang: str) -> bool:
        return all(
            _lines(self.first[hang][rank]) == _lines(self.second[hang][rank])
            for rank in RANKS
            if (hang, rank) != ("computing", 2)
        )


def _lines(taken: Taken) -> list[tuple[str, int]]:
    (main,) = (thread for thread in taken[1] if thread.name == "MainThread")
    return [(frame.function, frame.line) for frame in main.frames]


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Jobs:
    folder = tmp_path_factory.mktemp("unrecorded")
    with (folder / "output").open("wb") as output:
        program = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(folder)],
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"},
        )
    try:
        taken = Jobs(folder)
        taken.take()
    finally:
        os.killpg(program.pid, signal.SIGKILL)
        program.wait()
    return taken


def only(found: Frame) -> Verdict:
    assert len(found.verdicts) == 1, text(found)
    assert found.verdicts[0].confidence == "suspect"
    return found.verdicts[0]


@pytest.mark.torch
@pytest.mark.parametrize(("hang", "culprit", "cause", "op"), [
    ("sleeping", 2, "sleeping", "all_reduce"),
    pytest.param("loading", 0, "dataloader", "all_gather_object", marks=pytest.mark.long),
    ("holding", 1, "gil", "barrier"),
    pytest.param("backward", 2, "sleeping", "the backward pass", marks=pytest.mark.long),
    pytest.param("late", 0, "sleeping", "a wait for an op", marks=pytest.mark.long),
    pytest.param("grouping", 2, "sleeping", "new_group", marks=pytest.mark.long),
    pytest.param("saving", 1, "sleeping", "all_reduce", marks=pytest.mark.long),
])  # fmt: skip
def test_the_rank_outside_the_op_is_named_with_its_cause(
    jobs: Jobs, hang: str, culprit: int, cause: str, op: str
) -> None:
    for found in (jobs.judged(hang), jobs.judged_with_variables(hang)):
        verdict = only(found)
        assert (verdict.kind, verdict.culprits) == ("not_entered", (culprit,)), text(found)
        assert verdict.why.cause == cause, verdict.why
        assert verdict.op is not None
        assert verdict.op.kind == op
        assert f"unrecorded.py:{line_of(hang, culprit)}" in verdict.why.text
        assert exit_status(found) == 5
    assert only(jobs.judged_twice(hang)).progress == "none"


def line_of(hang: str, culprit: int) -> int:
    """The line after the one that singles the culprit out."""
    lines = PROGRAM.read_text().splitlines()
    begin = next(n for n, line in enumerate(lines) if line.startswith(f"def {hang}("))
    return next(n for n in range(begin, len(lines)) if f"rank == {culprit}" in lines[n]) + 2


@pytest.mark.torch
def test_a_rank_that_runs_is_shown_first_whether_it_is_seen_in_python_or_in_c(jobs: Jobs) -> None:
    for found in (jobs.judged("computing"), jobs.judged_twice("computing")):
        verdict = only(found)
        assert verdict.culprits in ((2,), ()), text(found)
        assert verdict.headline.startswith("rank 2 "), text(found)


@pytest.mark.torch
def test_frames_of_c_change_no_verdict(jobs: Jobs) -> None:
    plain = only(jobs.judged("backward"))
    found = frame_of(jobs.folder / "backward", jobs.native)
    native = only(found)
    assert (native.kind, native.culprits, native.why, native.headline) == (
        plain.kind, plain.culprits, plain.why, plain.headline,
    ), text(found)  # fmt: skip
    shown = found.ranks[0].native
    assert shown is not None
    assert any(frame.native for thread in shown.dump.threads for frame in thread.frames)


@pytest.mark.torch
def test_a_rank_that_left_the_loop_is_not_blamed(jobs: Jobs) -> None:
    found = jobs.judged("leaving")
    verdict = only(found)
    assert (verdict.kind, verdict.culprits) == ("undecided", ())
    assert verdict.parties == ((0, 1), (2,))
    assert "rank 2 is further on" in verdict.headline
    assert exit_status(found) == 4


@pytest.mark.torch
def test_all_ranks_in_the_same_call_are_undecided(jobs: Jobs) -> None:
    verdict = only(jobs.judged("crossing"))
    assert (verdict.kind, verdict.culprits, fold(verdict.victims)) == ("undecided", (), "0-2")


@pytest.mark.torch
def test_receives_from_known_peers_are_a_deadlock(jobs: Jobs) -> None:
    assert {v.kind for v in jobs.judged_with_variables("crossing").verdicts} == {"undecided"}
    found = jobs.judged_twice("crossing")
    assert [(v.kind, v.parties) for v in found.verdicts] == [("deadlock", ((0,), (1,), (2,)))]


@pytest.mark.torch
def test_a_healthy_job_is_not_blamed(jobs: Jobs) -> None:
    first, second = jobs.healthy
    found = frame_of(jobs.folder, second, (), first)
    assert not any(verdict.culprits for verdict in found.verdicts), text(found)
    assert found.health == "undecided"
    assert exit_status(found) == 4


@pytest.mark.torch
def test_variables_name_the_default_group(jobs: Jobs) -> None:
    report = "\n".join(text(jobs.judged_with_variables("sleeping")))
    assert "all_reduce of default_pg" in report
    assert "the group" not in report


# invented files


def thread(**changes: object) -> dict[str, object]:
    frame = {"name": "main", "filename": "/job/train.py", "line": 3, "module": None}
    known: dict[str, object] = {
        "pid": 7, "thread_id": 140, "thread_name": "MainThread", "os_thread_id": 7,
        "active": False, "owns_gil": False, "frames": [frame], "process_info": None,
    }  # fmt: skip
    return {**known, **changes}


def write_stacks(folder: Path, value: object, name: str = "rank_0.pyspy.json") -> Path:
    path = folder / name
    path.write_bytes(value if isinstance(value, bytes) else json.dumps(value).encode())
    return path


@pytest.mark.parametrize(("name", "content", "known"), [
    ("rank_0.pyspy.json", b"", True),
    ("stacks.json", json.dumps([thread()]).encode(), True),
    ("stacks.json", b'{"entries": []}', False),
    ("stacks.json", b"[1, 2]", False),
    ("stacks.json", b"", False),
    ("nccl_trace_rank_0", b"\x80\x04.", False),
])  # fmt: skip
def test_files_are_known_by_name_or_content(
    tmp_path: Path, name: str, content: bytes, known: bool
) -> None:
    assert is_pyspy(write_stacks(tmp_path, content, name)) is known


@pytest.mark.parametrize("content", [
    b"", b" ", b"[]", b"[", b"{}", b"null", b"[1]", b"[" * 100_000, b"\x80\x04.",
    [thread(frames=[])], [thread(frames=None)], [thread(thread_id="x")], [thread(pid=2**80)],
    [{"frames": []}],
])  # fmt: skip
def test_a_file_that_is_no_stack_dump_is_refused(tmp_path: Path, content: object) -> None:
    with pytest.raises(Unreadable, match=r"rank_0\.pyspy\.json") as caught:
        stacks_of(write_stacks(tmp_path, content))
    assert caught.value.next_step


def test_a_fifo_does_not_block(tmp_path: Path) -> None:
    path = tmp_path / "rank_0.pyspy.json"
    os.mkfifo(path)
    with pytest.raises(Unreadable, match="not a regular file"):
        stacks_of(path)
    assert not is_pyspy(path.rename(tmp_path / "stacks.json"))


def test_sizes_are_bounded(tmp_path: Path) -> None:
    frame = {"name": "f" * 9999, "filename": "/a", "line": 1, "locals": None}
    variable = {"name": "x", "addr": 1, "arg": True, "repr": "y" * 9999}
    full = {**frame, "locals": [variable] * 300}
    many = [thread(frames=[full, *[frame] * 300]), *[thread()] * 600]
    stacks = stacks_of(write_stacks(tmp_path, many))
    assert (len(stacks), len(stacks[0].frames)) == (512, 256)
    assert len(stacks[0].frames[0].variables) == 64
    assert len(stacks[0].frames[0].variables[0][1]) == 400
    path = tmp_path / "rank_1.pyspy.json"
    path.write_bytes(b"[")
    os.truncate(path, 17 * 1024 * 1024)
    with pytest.raises(Unreadable, match="larger"):
        stacks_of(path)


def c(name: str, library: str = "/usr/lib/libc.so.6", source: str = "") -> dict[str, object]:
    return {"name": name, "filename": source or library, "module": library, "line": 0}


def test_frames_of_c_are_kept_apart_and_push_none_of_python_out(tmp_path: Path) -> None:
    python = {"name": "f", "filename": "/a.py", "line": 1}
    deep = [c("wait", source="/src/wait.cpp"), python] * 200
    path = write_stacks(tmp_path, [thread(frames=deep)])
    rank = frame_of(tmp_path, {0: ("", stacks_of(path), 1)}).ranks[0]
    main, native = rank.main_stack, rank.native
    assert main is not None
    assert native is not None
    assert [frame.file for frame in main.frames] == ["/a.py"] * 200
    assert native.dump.threads[0].frames[0] == wire.TraceFrame(
        "wait", "/usr/lib/libc.so.6", 0, native=True
    )


CALL = {
    "name": "all_reduce", "filename": "/v/site-packages/torch/distributed/distributed_c10d.py",
    "line": 9,
}  # fmt: skip


@pytest.mark.parametrize(("inner", "culprits", "said"), [
    ([c("clock_nanosleep"), c("time_sleep")], (1,), "sleeps at train.py:3"),
    ([c("__futex"), c("_queue_SimpleQueue_get")], (1,), "another thread"),
    ([c("__futex"), c("c10d::ProcessGroupGloo::AsyncWork::wait")], (), "a wait for an op"),
    ([c("cuStreamSynchronize", "/usr/lib/libcuda.so.1"), c("item")], (), "waits for its device"),
    ([c("__futex")], (), "a C call"),
])  # fmt: skip
def test_frames_of_c_tell_what_a_c_call_waits_for(
    tmp_path: Path, inner: list[object], culprits: tuple[int, ...], said: str
) -> None:
    line = {"name": "main", "filename": "/job/train.py", "line": 3}
    inside = write_stacks(tmp_path, [thread(frames=[CALL, {**line, "line": 5}])])
    away = write_stacks(tmp_path, [thread(frames=[*inner, line])], "rank_1.pyspy.json")
    stacks = {0: inside, 1: away, 2: inside}
    verdict = only(
        frame_of(tmp_path, {rank: ("", stacks_of(path), 1) for rank, path in stacks.items()})
    )
    assert verdict.culprits == culprits
    assert said in f"{verdict.headline} {verdict.why.text}"


def test_without_native_ids_only_the_holder_of_the_gil_is_active(tmp_path: Path) -> None:
    threads = [
        thread(os_thread_id=None, active=True),
        thread(os_thread_id=None, active=True, owns_gil=True, thread_name="other"),
    ]
    main, other = stacks_of(write_stacks(tmp_path, threads))
    assert (main.tid, main.active) == (7, False)
    assert (other.tid, other.active) == (0, True)


def test_the_main_thread_is_known_without_its_name(tmp_path: Path) -> None:
    threads = [thread(thread_name=None, os_thread_id=8), thread(thread_name=None)]
    other, main = stacks_of(write_stacks(tmp_path, threads))
    assert (main.name, main.tid) == ("MainThread", 7)
    assert (other.name, other.tid) == ("", 8)


def test_a_source_line_is_added_only_if_its_file_is_older_than_the_stacks(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text("import time\n\ntime.sleep(60)\n")
    leaf = wire.TraceFrame("<module>", str(program), 3)
    stack = wire.ThreadStack(1, 7, "MainThread", False, False, (leaf,))
    at = program.stat().st_mtime_ns

    def text_at(written_ns: int) -> str:
        frame = frame_of(tmp_path, {0: ("", (stack,), written_ns)})
        main = frame.ranks[0].main_stack
        assert main is not None
        return main.frames[0].source

    assert text_at(at) == "time.sleep(60)"
    program.write_text(
        "import time\n# a page ends here: \f and here: \u2028 it does not\ntime.sleep(9)\n"
    )
    os.utime(program, ns=(at, at))
    assert text_at(at) == "time.sleep(9)"
    assert text_at(at - 1) == ""
    program.unlink()
    os.mkfifo(program)
    assert text_at(time.time_ns()) == ""


def test_ranks_without_a_file_are_unreachable(tmp_path: Path) -> None:
    variables = (("rank", "0"), ("world_size", "4"))
    joins = wire.TraceFrame(
        "_store_based_barrier",
        "/v/site-packages/torch/distributed/distributed_c10d.py",
        9,
        variables=variables,
    )
    stack = wire.ThreadStack(1, 7, "MainThread", False, False, (joins,))
    frame = frame_of(tmp_path, dict.fromkeys((0, 1), ("", (stack,), 1)))
    assert frame.coverage.unreachable == (2, 3)
    assert only(frame).kind == "undecided"
    assert "ranks 2-3" in only(frame).next


def test_the_newest_and_the_oldest_are_compared() -> None:
    taken = [(0, ("", (), at)) for at in (5, 9, 1)] + [(1, ("", (), 4))]
    newest, oldest = split(taken)
    assert {rank: one[2] for rank, one in newest.items()} == {0: 9, 1: 4}
    assert {rank: one[2] for rank, one in oldest.items()} == {0: 1}


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)
FRAMES = st.lists(
    st.fixed_dictionaries(
        {"name": st.text(max_size=4) | ANYTHING},
        optional={
            "filename": st.text(max_size=9), "line": st.integers(), "module": ANYTHING,
            "locals": ANYTHING | st.lists(
                st.fixed_dictionaries({"name": st.text(max_size=3)}, optional={"repr": ANYTHING})
            ),
        },
    ),
    max_size=3,
)  # fmt: skip
FIELDS = {"frames": FRAMES | ANYTHING, "thread_id": st.integers() | ANYTHING, "active": ANYTHING}


@given(st.lists(st.fixed_dictionaries({}, optional=FIELDS).map(lambda f: thread(**f)), max_size=3))
def test_any_json_is_read_or_refused(tmp_path: Path, threads: list[object]) -> None:
    path = write_stacks(tmp_path, threads)
    try:
        stacks = stacks_of(path)
    except Unreadable:
        return
    assert text(frame_of(tmp_path, {0: ("", stacks, 1)}))


C10D = "/v/site-packages/torch/distributed/distributed_c10d.py"
NAMES = st.sampled_from(["all_reduce", "recv", "send", "barrier", "new_group", "wait", "f"])
FILES = st.sampled_from([C10D, "/job/train.py", "/usr/lib/python3.11/threading.py", ""])
VARIABLES = st.lists(
    st.tuples(
        st.sampled_from(["group", "src", "dst", "kwargs", "args", "world_size"]),
        st.text("(){}<>,.'\"01N \n", max_size=8),
    ),
    max_size=4,
).map(tuple)
STACKS = st.builds(
    wire.ThreadStack,
    st.integers(0, 3),
    st.integers(0, 3),
    st.sampled_from(["MainThread", "t"]),
    st.booleans(),
    st.booleans(),
    st.lists(
        st.builds(
            wire.TraceFrame, NAMES, FILES, st.integers(-5, 50), st.just(""), st.just(""), VARIABLES
        ),
        max_size=4,
    ).map(tuple),
)
JOB = st.dictionaries(
    st.integers(-1, 5),
    st.tuples(st.just("h"), st.lists(STACKS, max_size=3).map(tuple), st.integers(0, 10**10)),
    max_size=5,
)


@given(JOB, JOB)
def test_any_stacks_are_judged(ranks: dict[int, Taken], earlier: dict[int, Taken]) -> None:
    found = frame_of(Path("/dumps"), ranks, (), earlier)
    assert text(found)
    for verdict in found.verdicts:
        assert verdict.confidence == "suspect"
        assert set(verdict.culprits) <= set(found.ranks)
        assert verdict.kind == "not_entered" or not verdict.culprits
