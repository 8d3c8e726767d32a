"""Names of programs, launchers and helpers are taken from command lines as they are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frtop_probe.unprepared.discovery import command_line
from frtop_probe.unprepared.discovery.proc_reader import parse_cmdline, parse_environ

PY = "/usr/bin/python3"


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        ((PY, "/home/me/train.py", "--x"), "train.py"),
        ((PY, "-u", "-m", "pkg.train", "--x"), "pkg.train"),
        ((PY, "-um", "pkg.train"), "pkg.train"),
        ((PY, "-X", "faulthandler", "-W", "ignore", "-Wonce", "train.py"), "train.py"),
        ((PY, "/srv/pkg/__main__.py"), "pkg"),
        ((PY, "-m", "pkg.train"), "pkg.train"),
        # A script of an installed package is called as the module that it is.
        ((PY, "/v/lib/python3.12/site-packages/recipes/full_finetune.py"),
         "recipes.full_finetune"),
        ((PY, "/usr/lib/python3/dist-packages/engine/work/__main__.py"), "engine.work"),
        ((PY, "/home/me/site-packages.py"), "site-packages.py"),
        ((PY, "-c", "import x"), ""),
        ((PY, "-"), "-"),
        ((PY,), ""),
        (("./train",), "train"),
        ((), ""),
    ],
)  # fmt: skip
def test_program_name(argv: tuple[str, ...], name: str) -> None:
    assert command_line.program_name(argv) == name


@pytest.mark.parametrize(
    ("argv", "kind"),
    [
        ((PY, "/venv/bin/torchrun", "train.py"), "torchrun"),
        ((PY, "-m", "torch.distributed.run", "train.py"), "torchrun"),
        ((PY, "-m", "torch.distributed.launch", "train.py"), "torchrun"),
        ((PY, "/venv/lib/torch/distributed/run.py", "train.py"), "torchrun"),
        ((PY, "/venv/bin/accelerate", "launch", "train.py"), "accelerate"),
        ((PY, "-m", "accelerate.commands.launch", "train.py"), "accelerate"),
        ((PY, "/venv/bin/deepspeed", "train.py"), "deepspeed"),
        (("srun", "-N2", "python", "train.py"), "srun"),
        ((PY, "torchrun_tools.py"), ""),
        ((PY, "train.py", "torchrun"), ""),
    ],
)
def test_launchers(argv: tuple[str, ...], kind: str) -> None:
    found = command_line.launcher(argv)
    assert (found.kind if found else "") == kind


@pytest.mark.parametrize(
    ("argv", "role"),
    [
        ((PY, "-c", "from multiprocessing.resource_tracker import main;main(5)"),
         "resource_tracker"),
        ((PY, "-Bc", "from multiprocessing.forkserver import main; main(3, 4)"), "fork_server"),
        ((PY, "/v/torch/_inductor/compile_worker/__main__.py", "--kind=fork"), "compile_worker"),
        ((PY, "-m", "torch._inductor.compile_worker", "--kind=fork"), "compile_worker"),
        ((PY, "train.py"), None),
    ],
)  # fmt: skip
def test_helpers(argv: tuple[str, ...], role: str | None) -> None:
    assert command_line.helper_role(argv) == role


def test_a_title_that_the_kernel_has_cut_gives_no_rank() -> None:
    title = command_line.read_title((), "VLLM::Worker_TP")
    assert title is not None
    assert (title.is_rank, title.rank) == (True, None)
    title = command_line.read_title((), "VLLM::Wk_TP12345")
    assert title is not None
    assert title.rank is None


@pytest.mark.parametrize(
    ("title", "work"),
    [
        ("ray::RayTrainWorker", "RayTrainWorker"),
        ("ray::RayTrainWorker.execute.train_loop", "RayTrainWorker"),
        ("ray::_RayTrainWorker__execute.get_next", "RayTrainWorker"),
        ("ray::train_func()", "train_func"),
        ("ray::execute._setup_torch_process_group", ""),  # a call that was given a name
        ("ray::IDLE", ""),
        ("ray::", ""),
        ("VLLM::Worker_TP1", ""),
    ],
)
def test_what_a_framework_s_worker_works_for(title: str, work: str) -> None:
    found = command_line.read_title((title,), title[:15])
    assert found is not None
    assert found.work == work


@given(st.lists(st.text(max_size=12), max_size=5), st.text(max_size=15))
def test_any_command_line(argv: list[str], comm: str) -> None:
    command_line.program_name(argv)
    command_line.launcher(argv)
    command_line.helper_role(argv)
    command_line.read_title(argv, comm)
    command_line.option(argv, "--local_rank")


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    parse_cmdline(data)
    parse_environ(data)


def test_an_environment_keeps_only_the_names_that_matter() -> None:
    data = b"RANK=3\0HF_TOKEN=secret\0RANK=4\0MASTER_PORT=1\0"
    assert parse_environ(data) == {"RANK": "3", "MASTER_PORT": "1"}


def test_a_title_is_one_word_whatever_follows() -> None:
    assert parse_cmdline(b"VLLM::Worker_TP0\0\0\0\0") == ("VLLM::Worker_TP0",)
    assert parse_cmdline(b"") == ()
