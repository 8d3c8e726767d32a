"""Ranks are told from launchers, workers and helpers, and grouped by world, on any table."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frtop_probe.unprepared.discovery.facts import ProcessFacts
from frtop_probe.unprepared.discovery.jobs import find_jobs
from unprepared.discovery.hosts import (
    GLOO,
    NCCL,
    PYTHON,
    SPAWN,
    TORCHRUN,
    elastic,
    helpers,
    job,
    jobs,
    numbers,
    process,
    shell,
    spawned,
    torchrun_host,
    without_threads,
    worker,
)


def test_torchrun() -> None:
    found = job(torchrun_host())
    assert numbers(found) == [(110, 0, 2, 0), (120, 1, 2, 1)]
    assert (found.name, found.launcher, found.launcher_pid) == ("train.py", "torchrun", 100)
    assert helpers(found) == {
        100: "launcher", 111: "data_worker", 112: "data_worker",
        113: "compile_worker", 121: "data_worker", 122: "data_worker",
    }  # fmt: skip
    assert not found.prepared


def test_ranks_of_torchrun_are_found_before_they_import_torch() -> None:
    table = [without_threads(facts) for facts in torchrun_host()]
    assert numbers(job(table)) == [(110, 0, 2, 0), (120, 1, 2, 1)]


def test_a_launcher_with_fewer_ranks_than_it_started_tells_that_the_others_have_ended() -> None:
    table = torchrun_host()
    left = [facts for facts in table if facts.pid < 120]
    assert [[one.ended for one in job(some).ranks] for some in (table, left)] == [[0, 0], [1]]
    alone = [facts for facts in left if facts.pid != 100]
    assert [one.ended for one in job(alone).ranks] == [0]  # nobody waits for it: it may be all


def test_of_a_world_of_several_hosts_the_others_may_live_elsewhere() -> None:
    agent = process(100, 1, TORCHRUN, comm="pt_elastic")
    environ = {**elastic(0, size=4), "LOCAL_WORLD_SIZE": "2"}
    rank = process(110, 100, environ=environ, threads=GLOO)
    assert [one.ended for one in job([agent, rank]).ranks] == [0]


def test_two_hosts_agree_on_the_identity() -> None:
    ours, theirs = elastic(0, run_id="j7"), elastic(9, run_id="j7")
    for variables in (ours, theirs):
        variables.update(MASTER_ADDR="node0", MASTER_PORT="4711")
    here = process(10, 1, environ=ours, threads=NCCL)
    there = replace(process(77, 1, environ=theirs, threads=NCCL), net_namespace=1)
    assert job([here]).identity == job([there]).identity == "run j7 node0:4711"


def test_loopback_stores_of_two_network_namespaces_are_two_jobs() -> None:
    one = process(10, 1, environ=elastic(0, 1), threads=NCCL)
    other = replace(process(11, 1, environ=elastic(0, 1), threads=NCCL), net_namespace=1)
    assert len(jobs([one, other])) == 2


def test_accelerate() -> None:
    argv = (PYTHON, "/opt/conda/bin/accelerate", "launch", "--multi_gpu", "train.py")
    table = [
        process(100, 50, argv, comm="pt_elastic"),
        *(process(110 + n, 100, environ=elastic(n), threads=NCCL) for n in (0, 1)),
    ]
    found = job(table)
    assert (found.launcher, found.launcher_pid, len(found.ranks)) == ("accelerate", 100, 2)


@pytest.mark.parametrize("threads", [NCCL, ()])
def test_deepspeed(threads: tuple[str, ...]) -> None:
    runner = process(90, 50, (PYTHON, "/opt/conda/bin/deepspeed", "train.py"))
    launch = process(
        100, 90,
        (PYTHON, "-u", "-m", "deepspeed.launcher.launch", "--world_info=e30=", "train.py"),
    )  # fmt: skip
    ranks = []
    for n in (0, 1):
        variables = {
            "RANK": str(n), "LOCAL_RANK": str(n), "WORLD_SIZE": "2", "LOCAL_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "CROSS_RANK": "0",
        }  # fmt: skip
        argv = (PYTHON, "-u", "train.py", f"--local_rank={n}", "--deepspeed")
        ranks.append(process(110 + n, 100, argv, variables, threads=threads))
    found = job([runner, launch, *ranks])
    assert numbers(found) == [(110, 0, 2, 0), (111, 1, 2, 1)]
    assert (found.name, found.launcher, found.launcher_pid) == ("train.py", "deepspeed", 100)


def slurm(rank: int, size: int = 2, step: str = "3") -> dict[str, str]:
    return {
        "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank), "SLURM_NTASKS": str(size),
        "SLURM_STEP_NUM_TASKS": str(size), "SLURM_JOB_ID": "812", "SLURM_STEP_ID": step,
    }  # fmt: skip


def slurm_host(step: str = "3", first: int = 500, size: int = 2) -> list[ProcessFacts]:
    """srun's tasks: slurmstepd of root, a shell per task, and Python in it."""
    stepd = process(first, 1, (), comm="slurmstepd", program="")
    table = [replace(stepd, uid=0)]
    for n in range(size):
        table.append(shell(first + 10 + n, first, slurm(n, size, step)))
        rank = process(first + 20 + n, first + 10 + n, environ=slurm(n, size, step), torch=True)
        table.append(rank)
    return table


def test_srun() -> None:
    found = job(slurm_host())
    assert numbers(found) == [(520, 0, 2, 0), (521, 1, 2, 1)]
    assert (found.identity, found.launcher) == ("slurm 812.3", "srun")


def test_steps_of_one_slurm_job_are_jobs_of_their_own() -> None:
    found = jobs(slurm_host("3"), slurm_host("4", first=600))
    assert [one.identity for one in found] == ["slurm 812.3", "slurm 812.4"]


def test_a_task_that_still_imports_torch_belongs_to_the_step() -> None:
    table = slurm_host()
    table[-1] = replace(table[-1], torch=False)
    assert len(job(table).ranks) == 2


def test_torchrun_in_srun_takes_ranks_from_torchrun() -> None:
    """SLURM_PROCID is the number of the node there."""
    step = process(500, 1, (), comm="slurmstepd", program="")
    agent = process(100, 500, TORCHRUN, slurm(1), comm="pt_elastic")
    ranks = [
        process(110 + n, 100, environ={**slurm(1), **elastic(n + 8, 16)}, threads=NCCL)
        for n in range(2)
    ]
    found = job([step, agent, *ranks])
    assert [candidate.rank for candidate in found.ranks] == [8, 9]
    assert found.launcher == "torchrun"


def test_mp_spawn_in_srun_does_not_take_the_number_of_the_node_for_a_rank() -> None:
    step = process(500, 1, (), comm="slurmstepd", program="")
    parent = process(200, 500, environ=slurm(1), torch=True)
    ranks = [process(210 + n, 200, SPAWN, slurm(1), threads=NCCL) for n in range(2)]
    found = job([step, parent, *ranks])
    assert numbers(found) == [(210, None, None, None), (211, None, None, None)]
    assert (found.identity, found.launcher, found.launcher_pid) == ("slurm 812.3", "mp.spawn", 200)


def test_open_mpi_within_a_slurm_job() -> None:
    """mpirun's children on its own host inherit SLURM_PROCID=0 from the batch script."""
    launcher = process(300, 50, ("mpirun", "-np", "2", "python"), comm="mpirun", program="prterun")
    ranks = []
    for n in range(2):
        variables = {
            **slurm(0), "OMPI_COMM_WORLD_RANK": str(n), "OMPI_COMM_WORLD_SIZE": "2",
            "OMPI_COMM_WORLD_LOCAL_RANK": str(n), "PMIX_NAMESPACE": "prterun-node0-300@1",
        }  # fmt: skip
        ranks.append(process(310 + n, 300, environ=variables, torch=True))
    found = job([launcher, *ranks])
    assert numbers(found) == [(310, 0, 2, 0), (311, 1, 2, 1)]
    assert (found.identity, found.launcher) == ("mpi prterun-node0-300@1", "mpirun")


def test_hydra() -> None:
    proxy = process(300, 50, (), comm="hydra_pmi_proxy", program="hydra_pmi_proxy")
    ranks = [
        process(
            310 + n, 300, environ={"PMI_RANK": str(n), "PMI_SIZE": "2", "MPI_LOCALRANKID": str(n)},
            torch=True,
        )
        for n in range(2)
    ]  # fmt: skip
    found = job([proxy, *ranks])
    assert numbers(found) == [(310, 0, 2, 0), (311, 1, 2, 1)]
    assert found.identity == "launcher 300@1300"


def test_mp_spawn() -> None:
    found = job(spawned())
    assert numbers(found) == [(210, None, None, None), (211, None, None, None)]
    assert (found.name, found.launcher, found.launcher_pid) == ("pkg.main", "mp.spawn", 200)
    assert helpers(found) == {200: "launcher", 201: "resource_tracker"}


def test_mp_spawn_before_the_default_group_is_found_by_the_store() -> None:
    """Rank 0 serves the store; the others have nothing but libtorch yet."""
    table = spawned(threads=())
    assert jobs(table) == ()
    table[3] = replace(table[3], thread_names=frozenset(("python", "pt_tcpstore_uv")))
    assert [candidate.pid for candidate in job(table).ranks] == [210, 211]


def test_forked_ranks() -> None:
    parent = process(200, 50, torch=True)
    ranks = [process(210 + n, 200, threads=GLOO) for n in range(3)]
    found = job([shell(50), parent, *ranks])
    assert (len(found.ranks), found.launcher_pid) == (3, 200)


def test_forked_ranks_that_have_no_thread_yet_are_told_by_their_own_numbers() -> None:
    hosted = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511", "WORLD_SIZE": "3"}
    table = [process(100, 50, torch=True)]
    table += [
        process(200 + rank, 100, environ={**hosted, "RANK": str(rank)}, torch=True)
        for rank in range(3)
    ]
    (job,) = find_jobs({facts.pid: facts for facts in table})
    assert [candidate.rank for candidate in job.ranks] == [0, 1, 2]


def test_ranks_of_a_fork_server() -> None:
    server = process(205, 200, (PYTHON, "-c", "from multiprocessing.forkserver import main; m()"))
    ranks = [process(210 + n, 205, server.argv, threads=GLOO) for n in range(2)]
    found = job([process(200, 50), server, *ranks])
    # Its children show its command line, and only the threads tell them apart.
    assert [candidate.pid for candidate in found.ranks] == [210, 211]
    assert (found.identity, found.launcher_pid) == ("started by 200@1200", 200)


def test_forked_children_of_a_rank_are_workers_although_they_inherit_rank() -> None:
    rank = process(110, 100, environ=elastic(0), threads=GLOO)
    fork = process(111, 110, environ=elastic(0), torch=True)
    tool = process(112, 110, (PYTHON, "-m", "wandb"), elastic(0))
    spawn = process(113, 110, SPAWN, elastic(0), torch=True)
    found = job([rank, fork, tool, spawn])
    assert [candidate.pid for candidate in found.ranks] == [110]
    assert helpers(found) == {111: "data_worker", 113: "data_worker"}


def test_a_worker_that_has_lost_its_rank_is_no_second_rank() -> None:
    agent = process(100, 50, TORCHRUN, comm="pt_elastic")
    rank = process(110, 100, environ=elastic(0), threads=GLOO)
    orphan = process(99, 1, environ=elastic(0), torch=True)
    found = job([agent, rank, orphan])
    assert [candidate.pid for candidate in found.ranks] == [110]
    assert helpers(found) == {100: "launcher", 99: "data_worker"}


def test_a_wrapper_in_python_is_not_the_rank() -> None:
    agent = process(100, 50, TORCHRUN, comm="pt_elastic")
    wrapper = process(110, 100, (PYTHON, "wrap.py"), elastic(0, 1), torch=False)
    rank = process(111, 110, (PYTHON, "train.py"), elastic(0, 1), threads=NCCL)
    found = job([agent, wrapper, rank])
    assert (numbers(found), found.name) == ([(111, 0, 1, 0)], "train.py")


def test_torchrun_with_a_shell_between() -> None:
    agent = process(100, 50, TORCHRUN, comm="pt_elastic")
    between = shell(110, 100, elastic(0, 1))
    rank = process(111, 110, environ=elastic(0, 1), torch=False)
    found = job([agent, between, rank])
    assert (numbers(found), found.launcher_pid) == ([(111, 0, 1, 0)], 100)


def test_variables_set_by_hand() -> None:
    table = [shell(50)]
    for n in range(2):
        variables = {
            "RANK": str(n), "WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29400",
        }  # fmt: skip
        table.append(process(60 + n, 50, environ=variables, torch=True))
    found = job(table)
    assert numbers(found) == [(60, 0, 2, None), (61, 1, 2, None)]
    assert (found.identity, found.launcher, found.launcher_pid) == ("10.0.0.1:29400", "", None)


def test_no_launcher_at_all() -> None:
    """Two programs of one shell, and a third with another script."""
    same = [process(60 + n, 50, (PYTHON, "a.py", str(n)), threads=GLOO) for n in range(2)]
    other = process(70, 50, (PYTHON, "b.py"), threads=GLOO)
    found = jobs([shell(50), *same, other])
    assert [(one.name, len(one.ranks)) for one in found] == [("a.py", 2), ("b.py", 1)]


def test_what_was_set_at_run_time_counts() -> None:
    set_late = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "h", "MASTER_PORT": "1"}
    facts = process(60, 50, threads=GLOO)
    assert numbers(job([replace(facts, run_time_environ=set_late)])) == [(60, 1, 2, None)]


def test_lightning_starts_its_other_ranks_itself() -> None:
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "44001", "NODE_RANK": "0"}
    first = process(60, 50, threads=NCCL)
    first = replace(first, run_time_environ={**where, "WORLD_SIZE": "2", "LOCAL_RANK": "0"})
    second = process(61, 60, environ={**where, "WORLD_SIZE": "2", "LOCAL_RANK": "1"}, threads=NCCL)
    found = job([first, second])
    assert numbers(found) == [(60, 0, 2, 0), (61, 1, 2, 1)]
    assert found.launcher == "lightning"


def test_an_earlier_run_at_the_same_address_is_another_job() -> None:
    tables = []
    for pid in (100, 200):
        tables.append(process(pid, 50, TORCHRUN, comm="pt_elastic"))
        tables += [process(pid + n, pid, environ=elastic(n - 1), threads=GLOO) for n in (1, 2)]
    found = jobs(tables)
    assert [numbers(one)[0][0] for one in found] == [101, 201]
    assert len({one.identity for one in found}) == 2


def test_two_agents_of_one_world_are_one_job() -> None:
    first = process(100, 50, TORCHRUN, comm="pt_elastic")
    second = process(200, 50, TORCHRUN, comm="pt_elastic")
    ranks = [process(p + 1, p, environ=elastic(n), threads=GLOO) for n, p in enumerate((100, 200))]
    assert len(job([first, second, *ranks]).ranks) == 2


# -- engines, and several worlds side by side


def titled(pid: int, parent: int, title: str, **more: object) -> ProcessFacts:
    facts = process(pid, parent, (title,), comm=title[:15], torch=True)
    return replace(facts, **more)  # type: ignore[arg-type]


def test_vllm() -> None:
    server = process(400, 50, (PYTHON, "/opt/conda/bin/vllm", "serve", "m"), torch=True)
    engine = titled(410, 400, "VLLM::EngineCore")
    workers = [titled(420 + n, 410, f"VLLM::Worker_TP{n}") for n in range(2)]
    found = job([server, engine, *workers])
    assert [(c.pid, c.rank) for c in found.ranks] == [(420, 0), (421, 1)]
    assert (found.name, found.launcher, found.launcher_pid) == ("vLLM", "vLLM", 410)


def test_an_engine_core_with_a_group_of_its_own_is_a_rank() -> None:
    engine = titled(410, 400, "VLLM::EngineCore", thread_names=GLOO)
    assert [c.pid for c in job([engine]).ranks] == [410]


@pytest.mark.parametrize(
    ("title", "rank"),
    [
        ("VLLM::Worker", None),
        ("VLLM::Worker_TP1_EP1", 1),
        ("VLLM::Worker_PP1_TP0", None),
        ("VLLM::Worker_DP1_TP0", None),
        ("sglang::scheduler_TP3", 3),
        ("sglang::scheduler_PP1_TP3", None),
    ],
)
def test_a_title_says_the_rank_only_with_tensor_parallelism_alone(
    title: str, rank: int | None
) -> None:
    assert [c.rank for c in job([titled(420, 410, title)]).ranks] == [rank]


def test_replicas_of_an_engine_are_worlds_of_their_own() -> None:
    ranks = [
        titled(420 + 2 * d + t, 410, f"VLLM::Worker_DP{d}_TP{t}") for d in (0, 1) for t in (0, 1)
    ]
    engines = [titled(410, 400, "VLLM::EngineCore")]
    assert len(job([*engines, *ranks]).ranks) == 4  # no rank is known twice: left to the c10d state


def test_a_ray_worker_with_a_group_takes_its_rank_from_run_time() -> None:
    late = {"RANK": "3", "WORLD_SIZE": "8", "MASTER_ADDR": "h", "MASTER_PORT": "9"}
    facts = titled(430, 1, "ray::RayTrainWorker._RayTrainWorker__execute", thread_names=NCCL)
    found = job([replace(facts, run_time_environ=late)])
    assert (numbers(found), found.name) == ([(430, 3, 8, None)], "RayTrainWorker")
    idle = titled(430, 1, "ray::IDLE", thread_names=NCCL)
    assert job([replace(idle, run_time_environ=late)]).name == "Ray"


def test_a_worker_s_method_does_not_tell_worlds_apart() -> None:
    titles = ("ray::Trainer", "ray::Trainer.fit")
    ranks = [titled(430 + n, 1, title, thread_names=NCCL) for n, title in enumerate(titles)]
    assert job(ranks).name == "Trainer"


def test_trainer_and_rollout_are_two_jobs() -> None:
    """The engine's worker has inherited the trainer's environment and does not use it."""
    agent = process(100, 50, TORCHRUN, comm="pt_elastic")
    trainers = [process(110 + n, 100, environ=elastic(n), threads=NCCL) for n in range(2)]
    rollout = replace(titled(120, 110, "VLLM::Worker_TP0", thread_names=NCCL), environ=elastic(0))
    found = jobs([agent, *trainers, rollout])
    assert [[c.pid for c in one.ranks] for one in found] == [[110, 111], [120]]


def test_a_child_of_a_rank_with_its_own_group_has_its_own_world() -> None:
    rank = process(110, 100, environ=elastic(0, 1), threads=NCCL)
    child = process(111, 110, SPAWN, elastic(0, 1), threads=GLOO)
    outer, inner = jobs([rank, child])
    assert (numbers(outer), numbers(inner)) == ([(110, 0, 1, 0)], [(111, None, None, None)])
    assert inner.identity == "inside 110@1110"


def test_a_child_of_a_rank_with_its_own_address_has_its_own_world() -> None:
    rank = process(110, 100, environ=elastic(0, 1), threads=NCCL)
    other = elastic(0, 1, port=40000)
    child = process(111, 110, SPAWN, other, threads=GLOO)
    assert [len(one.ranks) for one in jobs([rank, child])] == [1, 1]


# -- prepared, odd and hostile tables


def test_a_job_is_prepared_if_all_its_ranks_are() -> None:
    path = "/opt/frtop/frtop_probe/recorder/zero:/home/me/lib"
    ranks = [
        process(110 + n, 1, environ={**elastic(n), "PYTHONPATH": path}, threads=GLOO)
        for n in range(2)
    ]
    assert job(ranks).prepared
    off = {**elastic(1), "PYTHONPATH": path, "FRTOP_OFF": "1"}
    half = [ranks[0], replace(ranks[1], environ=off)]
    assert [c.prepared for c in job(half).ranks] == [True, False]
    assert not job(half).prepared
    (recorded,) = find_jobs({f.pid: f for f in half}, recorded={(111, 1111)})
    assert recorded.prepared


def test_reasons_go_with_the_candidate() -> None:
    facts = process(110, 1, environ=elastic(0), threads=GLOO)
    (candidate,) = job([replace(facts, unread=("maps: no rights",))]).ranks
    assert candidate.reasons == ("maps: no rights",)


# Operators of Kubernetes set these for every process of a pod.
OF_POD = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "pod-0", "MASTER_PORT": "23456"}
OF_BATCH_SCRIPT = {name: value for name, value in slurm(0).items() if name != "SLURM_STEP_ID"}


@pytest.mark.parametrize("table", [
    [process(100, 50, (PYTHON, "/opt/conda/bin/accelerate", "config"))],
    [replace(facts, torch=False) for facts in slurm_host()],
    [process(10, 1, environ=OF_BATCH_SCRIPT, torch=True)],
    [process(60, 1, (PYTHON, "-m", "jupyter"), OF_POD, torch=False)],
    spawned(threads=["pt_autograd_0"]),  # a pool of processes with torch
    [worker(111, 110)],
    *([titled(420, 410, title)] for title in (
        "VLLM::APIServer_0", "VLLM::EngineCore", "VLLM::DPCoordinator", "sglang::detokenizer",
        "sglang::data_parallel_controller", "ray::IDLE", "ray::Actor.run",
    )),
    *([process(110, 1, environ={**elastic(0), "RANK": rank, "LOCAL_RANK": ""})]
      for rank in ("-1", "", "x", "9" * 12, "²")),
])  # fmt: skip
def test_what_is_no_job(table: list[ProcessFacts]) -> None:
    assert jobs(table) == ()


facts_of_any_kind = st.builds(
    process,
    pid=st.integers(1, 6),
    parent=st.integers(0, 6),
    argv=st.sampled_from([(), (PYTHON, "a.py"), SPAWN, TORCHRUN, ("VLLM::Worker_TP1",)]),
    environ=st.sampled_from([{}, elastic(0), elastic(1), slurm(0)]),
    comm=st.sampled_from(["python", "pt_elastic", "pt_data_worker", "bash", "VLLM::x"]),
    threads=st.sampled_from([(), GLOO, ("pt_tcpstore_uv",)]),
    program=st.sampled_from(["python3", "bash", ""]),
    torch=st.sampled_from([None, True, False]),
)


@given(st.lists(facts_of_any_kind, max_size=6))
def test_any_table_gives_every_process_one_place(table: list[ProcessFacts]) -> None:
    found = jobs(table)
    pids = [candidate.pid for one in found for candidate in one.ranks]
    assert len(pids) == len(set(pids))
    assert not set(pids) & {
        f.pid for f in {f.pid: f for f in table}.values() if f.comm == "pt_data_worker"
    }
