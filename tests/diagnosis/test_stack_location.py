"""What a thread does, by its stack and by what the kernel shows."""

from __future__ import annotations

import sys

import pytest

from diagnosis.scenes import BACKWARD, C10D, COLLECTIVE, DATALOADER, LOCK, RECORDER, frame
from frtop_probe import wire
from frtop_tui.diagnosis.causes import LocationKind
from frtop_tui.diagnosis.engine import FORGET_NS, Engine
from frtop_tui.diagnosis.evidence.c10d_call import call_of
from frtop_tui.diagnosis.evidence.stack_location import (
    is_asleep_on_lock,
    locate,
    system_call,
)
from frtop_tui.job.model import ObservedFrame

LIB = "/usr/lib/python3.11"
TORCH = "/venv/lib/python3.11/site-packages/torch"


def stack(*frames: wire.TraceFrame, active: bool = False) -> wire.ThreadStack:
    return wire.ThreadStack(1, 1, "MainThread", active, False, frames)


def kernel(state: str = "S", syscall: str = "", wchan: str = "", file: str = "") -> wire.Process:
    return wire.Process(1, state, "python", wchan, syscall, file)


@pytest.mark.parametrize(("frames", "kind"), [
    (COLLECTIVE, "collective"),
    (BACKWARD, "backward"),
    ((frame("hooks.py:9", "hook", "time.sleep(5)"), *BACKWARD), "sleeping"),
    ((frame("hooks.py:9", "hook", "future.wait()"), *BACKWARD), "collective"),
    ((frame("hooks.py:9", "hook"), *BACKWARD), "unknown"),
    ((frame(f"{TORCH}/autograd/function.py:307", "apply"), *BACKWARD), "backward"),
    ((*BACKWARD, frame("train.py:9"), *BACKWARD), "backward"),  # one inside another
    (DATALOADER, "dataloader"),
    (LOCK, "lock"),
    ((frame(f"{C10D}:2", "_store_based_barrier"), frame(f"{C10D}:1", "new_group")), "store"),
    ((frame(f"{TORCH}/distributed/rendezvous.py:1", "_create_store"),), "store"),
    ((frame(f"{TORCH}/distributed/_functional_collectives.py:9", "wait_tensor"),), "collective"),
    ((frame(f"{TORCH}/cuda/__init__.py:1085", "synchronize"),), "device"),
    ((frame("train.py:3", source="torch.cuda.synchronize()"),), "device"),
    ((frame("train.py:3", source="time.sleep(5)"),), "sleeping"),
    ((frame("train.py:3", source="work.wait()"),), "collective"),
    ((frame("train.py:3", source="for handle in handles: handle.wait()"),), "collective"),
    ((frame("train.py:3", source="[req.wait() for req in requests]"),), "collective"),
    ((frame("train.py:3", source="while not work.is_completed(): sleep(0.01)"),), "collective"),
    ((frame("train.py:3", source="total += loss.item()"),), "device"),
    ((frame("/usr/lib/python3.11/threading.py:622", "wait"), frame("train.py:3")), "lock"),
    ((frame("train.py:3", source="with self.lock:"),), "lock"),
    ((frame("train.py:3", source="thread.join()"),), "lock"),
    ((frame("train.py:3", source="future.result()"),), "lock"),
    ((frame("train.py:3", source="data = handle.read()"),), "file_io"),
    ((frame("train.py:3", source="torch.save(state, path)"),), "file_io"),
    ((frame("train.py:3", source="with open(path) as f:"),), "file_io"),
    ((frame("/usr/lib/python3.11/socket.py:700", "recv_into"),), "socket"),
    ((frame(f"{TORCH}/_dynamo/convert_frame.py:1", "compile"),), "compiling"),
    ((*[frame(f"{TORCH}/_subclasses/fake_tensor.py:{n}", "dispatch") for n in range(9)],
      frame(f"{TORCH}/_dynamo/output_graph.py:1", "call_user_compiler"),
      frame("train.py:5")), "compiling"),
    ((*[frame(f"model.py:{n}", "forward") for n in range(9)],
      frame(f"{TORCH}/_dynamo/eval_frame.py:1", "_fn"), frame("train.py:5")), "unknown"),
    ((frame("<frozen importlib._bootstrap>:1", "_find_and_load"),), "importing"),
    ((frame("data.py:9", "__getitem__"), frame(f"{TORCH}/utils/data/_utils/fetch.py:5")),
     "dataloader"),
    ((frame(f"{LIB}/selectors.py:415", "select"), frame(f"{LIB}/subprocess.py:2115", "_wait")),
     "child"),
    ((frame(f"{LIB}/multiprocessing/popen_fork.py:27", "poll"), frame("train.py:3")), "child"),
    ((frame("train.py:3", source="os.waitpid(pid, 0)"),), "child"),
    ((frame(f"{LIB}/subprocess.py:2047", "_wait"), frame(f"{TORCH}/_inductor/cpp_builder.py:3")),
     "compiling"),
    ((frame("train.py:3", source='answer = input("go on? ")'),), "input"),
    ((frame(f"{LIB}/cmd.py:126", "cmdloop"), frame(f"{LIB}/pdb.py:360", "interaction"),
      frame("train.py:3")), "input"),
    ((frame("pdb.py:8", source="x = input_of(7)"),), "unknown"),
    ((frame("train.py:3", source='store.get("seed")'),), "key"),
    ((frame("train.py:3", source='self._store.wait(["ready"])'),), "key"),
])  # fmt: skip
def test_a_stack_shows_what_a_thread_does(
    frames: tuple[wire.TraceFrame, ...], kind: LocationKind
) -> None:
    assert locate(stack(*frames), kernel()).kind == kind


@pytest.mark.parametrize(("process", "kind"), [
    (kernel("D"), "file_io"),
    (kernel("D", "read", "", "/data/x"), "file_io"),
    (kernel("S", "read", "", "/data/x"), "file_io"),
    (kernel("S", "read", "", "pipe:[5]"), "pipe"),
    (kernel("R", "read", "", "pipe:[5]"), "computing"),
    (kernel("S", "write", "anon_pipe_write", "pipe:[5]"), "pipe"),
    (kernel("S", "read", "wait_woken", "/dev/pts/0"), "input"),
    (kernel("S", "wait4", "do_wait"), "child"),
    (kernel("S", "", "do_wait"), "child"),
    (kernel("S", "openat"), "file_io"),
    (kernel("S", "clock_nanosleep"), "sleeping"),
    (kernel("S", "", "hrtimer_nanosleep"), "sleeping"),
    (kernel("S", "recvfrom"), "socket"),
    (kernel("S", "read", "", "socket:[5]"), "socket"),
    (kernel("S", "futex"), "lock"),
    (kernel("S", "", "futex_wait_queue"), "lock"),
    (kernel("R"), "computing"),
    (kernel("S"), "unknown"),
    (None, "unknown"),
])  # fmt: skip
def test_without_a_stack_the_kernel_shows_what_a_thread_does(
    process: wire.Process | None, kind: LocationKind
) -> None:
    location = locate(None, process)
    assert location.kind == kind
    assert not location.sure


@pytest.mark.parametrize(("source", "process", "kind"), [
    ("handle.write(line)", kernel("S", "write", "anon_pipe_write", "pipe:[5]"), "pipe"),
    ("print(line)", kernel("S", "write", "anon_pipe_write", "pipe:[5]"), "pipe"),
    ("for line in sys.stdin:", kernel("S", "read", "anon_pipe_read", "pipe:[5]"), "input"),
    ("ready.wait([name])", kernel("S", "poll", "poll_schedule_timeout"), "key"),
    ("work.wait()", kernel("S", "futex", "futex_wait_queue"), "collective"),
    ("tool.wait()", kernel("S", "wait4", "do_wait"), "child"),
    ("handle.read()", kernel("S", "read", "", "/data/x"), "file_io"),
    ("batch = ready.get()", kernel("S", "futex", "futex_wait_queue"), "lock"),
    ("y = f(options.get(1))", kernel("R"), "computing"),
    ("return self._sock.recv(size)", kernel("S", "poll", "poll_schedule_timeout"), "socket"),
    ("return answers[index]", kernel("S", "poll", "poll_schedule_timeout"), "unknown"),
])  # fmt: skip
def test_the_kernel_corrects_what_a_line_suggests(
    source: str, process: wire.Process, kind: LocationKind
) -> None:
    assert locate(stack(frame("train.py:3", source=source)), process).kind == kind


def test_a_running_thread_in_user_code_computes() -> None:
    assert locate(stack(frame("train.py:3"), active=True), kernel("R")).kind == "computing"


def test_for_a_sleeping_thread_in_user_code_the_kernel_decides() -> None:
    location = locate(stack(frame("train.py:3")), kernel("S", "futex"))
    assert (location.kind, location.sure, location.line) == ("lock", False, "train.py:3 (train)")


def test_the_line_shown_is_the_users_and_not_the_librarys() -> None:
    assert locate(stack(*LOCK), None).line == "train.py:40 (train)"


@pytest.mark.parametrize(("text", "name"), [
    ("read", "read"), ("futex 0x7f 0x0", "futex"), ("", ""), ("#999", "#999"),
])  # fmt: skip
def test_the_name_of_a_system_call(text: str, name: str) -> None:
    assert system_call(kernel(syscall=text)) == name


@pytest.mark.parametrize(("process", "asleep"), [
    (kernel("S", "futex"), True), (kernel("R", "futex"), False), (kernel("S", "poll"), False),
    (None, False),
])  # fmt: skip
def test_only_a_sleeper_in_a_futex_is_asleep_on_a_lock(
    process: wire.Process | None, asleep: bool
) -> None:
    assert is_asleep_on_lock(process) is asleep


@pytest.mark.parametrize("wrappers", [
    (),
    (frame(f"{RECORDER}/ops/waits.py:110", "_wrapper.<locals>.wait"),),
    (frame(f"{RECORDER}/ops/waits.py:146", "on_device"), frame(f"{RECORDER}/waits.py:93", "wait")),
])  # fmt: skip
@pytest.mark.parametrize("frames", [
    COLLECTIVE,
    (frame("train.py:21", source="handle.wait()"),),
    (frame(f"{TORCH}/distributed/_functional_collectives.py:9", "wait"), frame("train.py:3")),
])  # fmt: skip
def test_a_wait_is_the_same_with_and_without_our_wrapper(
    wrappers: tuple[wire.TraceFrame, ...], frames: tuple[wire.TraceFrame, ...]
) -> None:
    wrapped, plain = stack(*wrappers, *frames), stack(*frames)
    asleep = kernel(syscall="futex")
    assert locate(wrapped, asleep) == locate(plain, asleep)
    found, expected = call_of(wrapped), call_of(plain)
    assert found is not None
    assert expected is not None
    assert (found.text, found.role) == (expected.text, expected.role)


def test_a_call_is_the_same_with_and_without_our_kernel() -> None:
    wrapped = stack(frame(f"{RECORDER}/ops/kernel.py:250", "_kernel.<locals>.kernel"), *COLLECTIVE)
    assert locate(wrapped, kernel()) == locate(stack(*COLLECTIVE), kernel())
    found, expected = call_of(wrapped), call_of(stack(*COLLECTIVE))
    assert found is not None
    assert expected is not None
    assert found.text == expected.text


def test_stacks_that_are_gone_are_not_kept() -> None:
    one, engine = stack(frame("train.py:9")), Engine()
    engine.judge(ObservedFrame(10**12, 0))
    before = sys.getrefcount(one)
    locate(one)
    assert sys.getrefcount(one) > before
    engine.judge(ObservedFrame(10**12 + FORGET_NS, 0))
    assert sys.getrefcount(one) == before
