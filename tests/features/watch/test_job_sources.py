"""Sources of jobs that come and go, and a watcher that goes on whatever fails in one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace

from connect.scripted_source import ScriptedSource
from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import NoAgent
from frtop_tui.features.watch import watcher as watcher_module
from frtop_tui.features.watch.deliveries import Deliveries
from frtop_tui.features.watch.job_sources import GONE_NS, MOST_JOBS, PAUSE_NS, JobSources, LeftJobs
from frtop_tui.features.watch.lines import EventLines
from frtop_tui.features.watch.watcher import Watcher
from frtop_tui.job.model import HostView, JobActivity, Problem
from frtop_tui.job.naming import job_key
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
    sources.leave(first, GONE_NS + 1)
    assert opened.sources[1].closed
    assert sources.update(GONE_NS + 2) == (second,)


def test_only_wanted_jobs_are_watched_and_those_that_ended_just_now() -> None:
    opened = Opened()
    sources = JobSources(opened, "b.py")
    activities = tuple(JobActivity(job, 900.0, ended_s=60.0) for job in (A, B))
    opened.list(ended=(A, B), activities=activities)
    (one,) = sources.update(0)
    assert one.job == B
    sources.leave(one, 1)
    assert sources.update(1) == ()  # it was looked at
    for second in range(300):  # and is listed for as long
        assert sources.update(second * 10**9) == ()


def numbered(number: int) -> wire.Job:
    return structs.replace(A, master_port=number, nonce=str(number))


def test_jobs_that_have_ended_make_room_for_those_that_live() -> None:
    opened = Opened()
    sources = JobSources(opened, None)
    first = [numbered(number) for number in range(MOST_JOBS)]
    opened.list(*first)
    assert len(sources.update(0)) == MOST_JOBS
    ended = tuple(JobActivity(job, 90.0, ended_s=1.0) for job in first)
    opened.list(numbered(99), ended=first, activities=ended)
    assert len(sources.update(1)) == MOST_JOBS
    assert sources.too_many == 1
    assert len(sources.ended(1)) == MOST_JOBS  # at once: another one waits for a place
    sources.leave(sources.ended(1)[0], 1)
    assert sources.update(2)[-1].job == numbered(99)
    assert sources.too_many == 0
    assert sources.ended(2) == ()
    assert len(sources.ended(GONE_NS + 1)) == MOST_JOBS - 1


def test_jobs_that_were_left_are_forgotten_once_they_are_not_listed() -> None:
    left = LeftJobs()
    for number in range(1000):
        left.add(numbered(number), number * 10**9)
    assert not left.has(numbered(3), 10**12)
    assert left.has(numbered(999), 10**12)
    assert left.has(structs.replace(numbered(999), nonce=""), 10**12)
    assert not left.has(structs.replace(numbered(999), nonce="x"), 10**12)
    assert len(left._left) < 100


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


def said_in_two_steps(
    sources: JobSources, file_of: Callable[..., Any], new_watch: Callable[..., Any]
) -> str:
    """The one line that a watcher writes."""
    written: list[str] = []
    lines = EventLines(written.append)
    deliveries = Deliveries([], None, deadline_s=1, dry_run=False)
    watcher = Watcher(sources, deliveries, lines, file_of=file_of, new_watch=new_watch)
    watcher.step()
    watcher.step()
    watcher.close()
    lines.close()
    (said,) = written
    return said


def test_a_host_that_cannot_be_searched_is_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher_module, "TROUBLE_S", 0.0)
    opened = Opened()
    sources = JobSources(opened, None)
    note = f"{wire.NO_SEARCH}: it failed"
    opened.list(
        hosts=tuple(
            HostView(f"node{n}", "reporting", notes=(note,), reported_ns=1) for n in range(3)
        )
    )
    said = said_in_two_steps(sources, lambda _: None, lambda *_: None)
    assert "are not found there: node0, node1, node2: no search for jobs: it failed" in said


def test_a_job_on_which_frtop_fails_keeps_no_other_from_being_watched() -> None:
    opened = Opened()
    sources = JobSources(opened, None)
    opened.list(A, B)
    stepped: list[str] = []

    class Watch:
        busy = is_through = False
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

    said = said_in_two_steps(
        sources, lambda _: File(), lambda one, _file, _say: Watch(one.job.name)
    )
    assert stepped == ["a.py", "b.py"] * 2
    assert "frtop itself failed on a.py: ZeroDivisionError()" in said
