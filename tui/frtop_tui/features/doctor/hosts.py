"""`frtop doctor --ssh HOSTS`: what would be seen of a job there, through a shell."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace

from frtop_probe.features.doctor.examination import examine
from frtop_tui.cli.live import require_root
from frtop_tui.cli.output import show_progress
from frtop_tui.connect.pipes import kubernetes
from frtop_tui.connect.pipes.places import places, this_host
from frtop_tui.errors import FrtopError, Unreachable, UsageError
from frtop_tui.features.doctor.examinations import Examinations, HostAnswer
from frtop_tui.features.doctor.host_words import (
    SSH,
    DoctorRound,
    ExaminedHost,
    round_document,
    round_lines,
)
from frtop_tui.job.model import Problem


def run_there(options: argparse.Namespace) -> int:
    """Returns 0; 1 if a closed tier or an unreachable host hides evidence."""
    if options.pid is not None:
        given = "--user names a user" if options.user else "frtop.pyz examines all of them"
        given = "--ssh names others" if options.ssh or options.via else given
        raise UsageError(
            f"--pid names a process of this host, and {given}",
            "run `frtop doctor --pid` on that host, or leave out --pid",
        )
    reached = places(options.ssh, options.via, options.through, options.user) or this_host()
    require_root(options)
    examinations = Examinations(reached, options.python, options.user)
    try:
        answers = examinations.run(show_progress)
    finally:
        examinations.close()
        show_progress("")
    found = replace(_round(answers), way=_way(options))
    if not found.hosts:
        raise next((one.error for one in answers if one.error is not None), _nobody())
    if options.json:
        print(json.dumps(round_document(found), indent=1))
    else:
        print("\n".join(round_lines(found)))
    return found.exit_status


def _round(answers: Sequence[HostAnswer]) -> DoctorRound:
    examined = [
        ExaminedHost(one.host, examine(one.facts, one.search))
        for one in answers
        if one.facts is not None
    ]
    failed = {
        one.host: Problem(one.error.text, one.error.next_step)
        for one in answers
        if one.facts is None and not one.same_as and one.error is not None
    }
    aliases = {one.host: one.same_as for one in answers if one.same_as}
    return DoctorRound(tuple(examined), failed, aliases)


def _way(options: argparse.Namespace) -> str:
    if options.via or any(spec.startswith(kubernetes.PREFIX) for spec in options.ssh):
        return ""
    return f"ssh -J {options.through} {{host}}" if options.through else SSH


def _nobody() -> FrtopError:
    return Unreachable("no host was found", "name hosts: frtop doctor --ssh 'node[0-7]'")
