"""Sources of jobs that come and go, and a watcher that goes on whatever fails in one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import structs
from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import NoAgent
from frtop_tui.job.model import JobActivity, Problem
from frtop_tui.job.naming import job_key
from frtop_tui.sources.base import ScriptedSource
from frtop_tui.watch.deliveries import Deliveries
from frtop_tui.watch.job_sources import GONE_NS, PAUSE_NS, JobSources
from frtop_tui.watch.lines import EventLines
from frtop_tui.watch.watcher import Watcher
from screens import scenes

A = structs.replace(scenes.JOB, name="a.py", master_port=1, nonce="a")
B = structs.replace(scenes.JOB, name="b.py", master_port=2, nonce="b")
EMPTY = Frame(0, 0)


class Opened:
    """Opens scripted sources; the first one lists the jobs."""

    def __init__(self) -> None:
        self.sources: list[ScriptedSource] = []
        self.fails = False

    def __call__(self) -> ScriptedSource:
        if self.fails:
            raise NoAgent("no agent", "start one")
        self.sources.append(ScriptedSource([EMPTY]))
        return self.sources[-1]

    def list(self, *running: wire.Job, **fields: Any) -> None:
        others = (*running, *fields.pop("ended", ()))
        self.sources[0].give(replace(EMPTY, running_jobs=running, other_jobs=others, **fields))


def test_each_job_gets_a_source_and_loses_it_when_it_is_gone() -> None:
    opened = Opened()
    sources = JobSources(opened, None)
    opened.list(A, B)
    first, second = sources.update(0)
    assert [one.chosen for one in opened.sources[1:]] == [[job_key(A)], [job_key(B)]]
    opened.list(B)
    assert sources.update(GONE_NS) == (first, second)
    assert sources.gone(GONE_NS + 1) == (first,)
    sources.leave(first)
    assert opened.sources[1].closed
    assert sources.update(GONE_NS + 2) == (second,)


def test_only_wanted_jobs_are_watched_and_those_that_ended_just_now() -> None:
    opened = Opened()
    sources = JobSources(opened, "b.py")
    activities = tuple(JobActivity(job, 900.0, ended_s=60.0) for job in (A, B))
    opened.list(ended=(A, B), activities=activities)
    (one,) = sources.update(0)
    assert one.job == B
    sources.leave(one)
    assert sources.update(1) == ()  # it was looked at


def test_a_nonce_that_becomes_known_makes_no_second_job() -> None:
    opened = Opened()
    sources = JobSources(opened, None)
    opened.list(structs.replace(A, nonce=""))
    sources.update(0)
    opened.list(structs.replace(A, nonce="abcd"))
    (one,) = sources.update(1)
    assert one.job.nonce == "abcd"


def test_a_source_that_failed_is_replaced_and_one_that_cannot_be_opened_awaited() -> None:
    opened = Opened()
    sources = JobSources(opened, None)
    opened.list(A)
    (one,) = sources.update(0)
    failed = opened.sources[1]
    failed.give(replace(EMPTY, problem=Problem("frtop itself failed", internal=True)))
    opened.fails = True
    sources.update(1)
    assert sources.problem == "no agent; start one"
    assert one.source is failed
    opened.fails = False
    sources.update(1 + PAUSE_NS)
    assert sources.problem == ""
    assert one.source is opened.sources[2]
    assert failed.closed


def test_a_job_on_which_frtop_fails_keeps_no_other_from_being_watched() -> None:
    opened = Opened()
    sources = JobSources(opened, None)
    opened.list(A, B)
    written: list[str] = []
    lines = EventLines(written.append)
    stepped: list[str] = []

    class Watch:
        busy = False
        frame = None

        def __init__(self, name: str) -> None:
            self.name = name

        def use(self, _: object) -> None:
            pass

        def step(self) -> None:
            stepped.append(self.name)
            if self.name == "a.py":
                raise ZeroDivisionError

    class File:
        claim: Callable[[], bool] = staticmethod(lambda: True)
        release: Callable[[], None] = staticmethod(lambda: None)

    watcher = Watcher(
        sources,
        Deliveries([], None, deadline_s=1, dry_run=False),
        lines,
        file_of=lambda _: File(),  # type: ignore[arg-type, return-value]
        new_watch=lambda one, _file, _say: Watch(one.job.name),  # type: ignore[arg-type, return-value]
    )
    watcher.step()
    watcher.step()
    watcher.close()
    lines.close()
    assert stepped == ["a.py", "b.py"] * 2
    (said,) = written
    assert "frtop itself failed on a.py: ZeroDivisionError()" in said
