"""The verb `doctor`."""

from __future__ import annotations

from typing import Final

from frtop_tui.cli.host_options import add_connection, pid_of
from frtop_tui.cli.verbs.parts import Parser, Verb, Verbs, command


def _doctor(verbs: Verbs[Parser]) -> None:
    doctor = verbs.add_parser(
        "doctor",
        help="show what frtop can see here, and what opens the rest",
        description="Tries, tier by tier, what can be seen of a job on this host, before a job or"
        " beside the ranks that run. Ranks are only read; everything else is tried on a process of"
        " frtop's own. --ssh does the same on other hosts, with nothing installed there. Exit"
        " status 1 if a setting or permission hides evidence, or a host is unreachable;"
        " otherwise 0.",
    )
    doctor.add_argument("--python", metavar="PATH",
                        help="examine for a job that will start with this Python, whatever runs"
                        " here; with --ssh: the Python to run there")  # fmt: skip
    doctor.add_argument("--pid", type=pid_of, metavar="PID",
                        help="only this process of this host (default: all ranks of this user)"
                        )  # fmt: skip
    doctor.add_argument("--json", action="store_true", help="print a JSON document")
    add_connection(doctor, without=("--connect", "--python", "--job", "--pid", "--read-only"))
    doctor.set_defaults(run=command("features.doctor.command"))


VERBS: Final = (Verb(60, _doctor),)
