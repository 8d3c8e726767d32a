"""`frtop doctor`: what frtop can see of a job here, and what would open the rest."""

from __future__ import annotations

import argparse
import json

from frtop_probe.agent.options import OptionProblem
from frtop_probe.features.doctor.examination import examine
from frtop_probe.features.doctor.facts import SearchFacts
from frtop_probe.features.doctor.host_reader import read_host
from frtop_probe.features.doctor.search import find_ranks
from frtop_tui.cli.output import show_progress
from frtop_tui.connect.pipes.places import this_host
from frtop_tui.errors import UsageError
from frtop_tui.features.doctor.words import doctor_document, doctor_lines


def run(options: argparse.Namespace) -> int:
    """Returns 0; 1 if a closed tier hides evidence."""
    if options.ssh or options.via or options.user or this_host():
        from frtop_tui.features.doctor.hosts import run_there  # noqa: PLC0415 - only where needed

        return run_there(options)
    from frtop_tui.features.doctor.service_facts import read_service  # noqa: PLC0415 - libzmq

    search = SearchFacts(searched=False)
    if options.python and options.pid is not None:
        raise UsageError(
            "--python is for a job that has not started, and --pid names a process", "leave out one"
        )
    try:
        show_progress("looking at this host")
        host = read_host(options.python)
        if not options.python:
            show_progress("looking for ranks")
            search = find_ranks(options.pid)
        service = read_service()
    except OptionProblem as problem:
        raise UsageError(str(problem), "correct or unset that variable") from problem
    finally:
        show_progress("")
    found = examine(host, search, service)
    if options.json:
        print(json.dumps(doctor_document(found), indent=1))
    else:
        print("\n".join(doctor_lines(found)))
    return found.exit_status
