"""Starts an agent on this host if none runs, to find jobs that nobody prepared.

A prepared rank starts the same agent. Without such ranks, it exits a minute after the last request.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from frtop_probe import keys
from frtop_probe.agent import announcement
from frtop_probe.agent.key_bootstrap import living_ranks
from frtop_probe.agent.options import FOR_OPERATOR
from frtop_probe.recorder.process import agent_launch
from frtop_probe.recorder.process.spawn_lock import SpawnAttempt
from frtop_probe.ring.folder import AgentFiles, FolderError, agent_lives, candidates
from frtop_tui.job.model import Problem

OFF: Final = "FRTOP_AGENT"
"""If set to 0, frtop starts no agents."""
MESSAGE_S: Final = 2.0
"""If an agent has written output but holds no lock after this time, it has given up."""
START_S: Final = 10.0
"""An agent that has not appeared after this time will not come."""
MAX_PAUSE_S: Final = 320.0
"""The pause after failed attempts doubles up to this."""
LEAVING_S: Final = 2.0
"""After this time, an agent that was about to exit is gone."""
RANKS_START_S: Final = 8.0
"""Each prepared rank checks every 5 s that an agent runs, and starts one if none does."""
KEY_S: Final = 3.0
"""An agent that runs this long without a key is waiting for one made elsewhere."""


@dataclass(slots=True)
class _Attempt:
    """An agent that this process started, or found (not `own`); `failed`: it will not come.

    `problem`: why it could not even be started. `seen`: when it was last there. `failures`: how
    many attempts failed directly before.
    """

    log: SpawnAttempt
    own: bool
    begun: float = field(default_factory=time.monotonic)
    failed: bool = False
    problem: Problem | None = None
    seen: float = 0.0
    failures: int = 0

    @property
    def age_s(self) -> float:
        return time.monotonic() - self.begun

    @property
    def pause_s(self) -> float:
        """The time from this attempt to the next one."""
        return min(START_S * 2 ** min(self.failures, 9), MAX_PAUSE_S) if self.own else 0.0


_attempts: Final[dict[Path, _Attempt]] = {}
_awaited: Final[dict[Path, float]] = {}
"""When this process, which starts no agents, began to wait for a rank to start one."""


def start_agent() -> Problem | None:
    """Starts this host's agent unless one runs; returns why there will be none.

    We make the key here only if no prepared rank lives: otherwise another host may have made one,
    and the agent finds it, makes it beside rank 0, or waits for it.
    """
    if os.environ.get(OFF) == "0":
        return None
    try:
        folders = candidates()
        log = SpawnAttempt(AgentFiles.here(folders[0]))
        if agent_lives(folders[0]) or announcement.find_agents(folders[0]):
            _attempts[folders[0]] = _Attempt(log, own=False)
            return None
        if not living_ranks(folders):
            with suppress(keys.KeyProblem):  # the next one to load it reports the problem
                keys.load(create=True)
        why = agent_launch.ensure_agent(folders[0], FOR_OPERATOR, at_once=True)
    except (FolderError, OSError) as error:
        return Problem.parse(str(error))
    if why:
        return Problem.parse(why)
    _attempts[folders[0]] = _Attempt(log, own=True)
    return None


def keep_agent(folder: Path, *, running: bool = False) -> None:
    """Restarts the agent if this process wanted one and it is no longer `running`.

    An agent that we found may have been about to exit; one that we started gets some time.
    """
    attempt = _attempts.get(folder)
    if running:
        _awaited.pop(folder, None)
    if attempt is None:
        if not running:
            _await_ranks(folder)
    elif running:
        attempt.seen = time.monotonic()
    else:
        _replace(folder, attempt)


def _replace(folder: Path, attempt: _Attempt) -> Problem | None:
    """Starts an agent in place of one that is gone, once the pause is over."""
    pause_s = attempt.pause_s
    if attempt.own and attempt.age_s < pause_s:
        return attempt.problem
    has_lived = not attempt.own or attempt.seen - attempt.begun > pause_s
    problem = start_agent()
    if problem is not None:
        _attempts[folder] = _Attempt(attempt.log, own=True, failed=True, problem=problem)
    _attempts[folder].failures = 0 if has_lived else attempt.failures + 1
    return problem


def is_starting() -> bool:
    """Whether an agent may still come up here, perhaps in place of one that was exiting."""
    now = time.monotonic()
    return any(
        not one.failed and one.age_s < (START_S if one.own else LEAVING_S)
        for one in _attempts.values()
    ) or any(now - since < RANKS_START_S for since in _awaited.values())


def absence(folder: Path) -> Problem | None:
    """Why no agent of this host has announced itself; None while one still may."""
    attempt = _attempts.get(folder)
    if attempt is None:
        return _not_announced() if agent_lives(folder) else _await_ranks(folder)
    problem = _problem(folder, attempt)
    attempt.failed = problem is not None
    return problem


def _await_ranks(folder: Path) -> Problem | None:
    """Why no rank will start an agent; None while one may."""
    try:
        prepared = living_ranks(candidates())
    except FolderError as error:
        return Problem.parse(str(error))
    if not prepared:
        _awaited.pop(folder, None)
        return NO_AGENT
    since = _awaited.setdefault(folder, time.monotonic())
    return NO_LONGER if time.monotonic() - since > RANKS_START_S else None


def _problem(folder: Path, attempt: _Attempt) -> Problem | None:
    if agent_lives(folder):
        return _not_announced() if attempt.age_s > KEY_S else None
    if not attempt.own or attempt.problem is not None:  # it was about to leave
        return _replace(folder, attempt)
    why = attempt.log.last_message() if attempt.age_s > MESSAGE_S else ""
    if not why and attempt.age_s <= START_S:
        return None
    problem = Problem(f"the agent of this host has ended: {why}") if why else NOT_STARTED
    return _replace(folder, attempt) or problem  # the next one may come up


def _not_announced() -> Problem | None:
    """Why a running agent has not announced itself: it needs its key first."""
    try:
        keys.load(create=False)
    except keys.NoKey:
        return Problem(
            "the agent of this host waits for this user's key, which is made beside rank 0",
            f"if that is on another host, copy its key file to {keys.path()} here (chmod 600)",
        )
    except keys.KeyProblem as trouble:
        return Problem(trouble.text, trouble.next)
    return None


NO_AGENT: Final = Problem(
    "no agent of frtop runs on this host: nobody has recently started a job here with `frtop run`",
    "start the job with `frtop run -- torchrun ...`, or name its hosts: --connect 'node[0-7]',"
    " or --ssh 'node[0-7]'",
)
NO_LONGER: Final = Problem(
    "no agent of frtop runs on this host, and the prepared ranks here have started none",
    "run `frtop agent` in another terminal: it shows the ranks, or says what is wrong",
)
NOT_STARTED: Final = Problem(
    "no agent of frtop runs on this host, and the one that was started did not come up",
    "run `frtop agent` in another terminal: it says why; or name other hosts: "
    "--connect 'node[0-7]'",
)
