"""The parser of the command line. Commands are imported when they run, to start fast."""

from __future__ import annotations

import argparse
import difflib
import importlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NoReturn

from frtop_tui.cli.consumer_options import METRICS, STREAM, add_metrics, add_stream
from frtop_tui.cli.file_options import add_capture, add_export, add_files
from frtop_tui.cli.host_options import (
    add_connection,
    add_hosts,
    add_shells,
    pid_of,
    require_one_job,
    settle_hosts,
)
from frtop_tui.cli.option_values import number, port, rank, seconds
from frtop_tui.cli.statistics_options import add_statistics
from frtop_tui.cli.watch_options import add_watch
from frtop_tui.demo.faults import FAULTS, SLOW
from frtop_tui.errors import UsageError

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

SCREEN: Final = "screen"
STATUSES: Final = """exit status of diagnose:
  0  healthy, and all ranks were heard
  3  hung, dead or diverged
  5  held up or slow
  4  undecided: ranks wait, and whether that is unusual is not known yet, or
     too few ranks were heard
  2  invalid command line
  1  any other error
"""


class _Parser(argparse.ArgumentParser):
    """Raises `UsageError` with a next step, like every other error."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, f"`{self.prog} --help` lists the options")

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        """Argparse's own ignores that help cannot be written."""
        print(message, end="", file=file)


class _Version(argparse.Action):
    """Reads the version only when it is asked for: that is slower than all other parsing."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str) -> None:  # noqa: A002
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from importlib import metadata  # noqa: PLC0415

        print(f"frtop {metadata.version('frtop')}")
        parser.exit()


def _command(name: str, function: str = "run") -> Callable[[argparse.Namespace], int]:
    """A function of a command's module, imported when it is called."""

    def run(options: argparse.Namespace) -> int:
        module = importlib.import_module(f"frtop_tui.cli.{name}")
        status: int = getattr(module, function)(options)
        return status

    return run


def parser() -> tuple[argparse.ArgumentParser, tuple[str, ...]]:
    """The parser and its commands."""
    top = _Parser(
        prog="frtop",
        description="Shows why a distributed PyTorch job hangs: which rank everyone is waiting "
        "for, which collective it has not reached, and why.",
        epilog="Without a command: the live screen on this host's newest job.",
    )
    top.add_argument("--version", action=_Version, help="show program's version number and exit")
    verbs = top.add_subparsers(metavar="COMMAND", parser_class=_Parser)

    screen = verbs.add_parser(SCREEN, help="the live screen (the default command)")
    add_connection(screen)
    screen.set_defaults(run=_command("screen"))

    diagnose = verbs.add_parser(
        "diagnose",
        help="print the verdict, without a screen",
        epilog=STATUSES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_connection(diagnose)
    add_files(
        diagnose,
        "*",
        "diagnose captures, black boxes, dumps or stacks instead of a live job",
    )
    diagnose.add_argument("--json", action="store_true", help="print a JSON document")
    diagnose.add_argument(
        "--explain",
        action="store_true",
        help="also print how the verdict was found: who is blocked and by which sign, who waits"
        " for whom, who is left out, why it is confirmed or not",
    )
    diagnose.add_argument(
        "--wait",
        type=seconds,
        default=10.0,
        metavar="SECONDS",
        help="longest time to wait for a verdict (default 10)",
    )
    diagnose.set_defaults(run=_command("diagnose"))

    opened = verbs.add_parser(
        "open",
        help="show a recorded job: a capture, or a folder of black boxes or dumps",
        description="Shows a recorded job on the same screens. Needs no network and no torch.",
    )
    add_files(
        opened,
        "+",
        "captures, black boxes, Flight Recorder dumps, py-spy stacks, or folders of them",
    )
    opened.add_argument("--job", metavar="NAME",
                        help="name, run id or address:port (default: the one recorded last)"
                        )  # fmt: skip
    opened.set_defaults(run=_command("screen", "run_open"))

    jobs = verbs.add_parser(
        "jobs",
        help="list all jobs, those without the recorder, too",
        description="Lists the jobs that the agents of the hosts see, what to type for each, and"
        " what is in the way of seeing it. Exit status 0 with jobs, 1 without.",
    )
    add_hosts(jobs)
    jobs.add_argument("--json", action="store_true", help="print a JSON document")
    jobs.add_argument("--wait", type=seconds, default=10.0, metavar="SECONDS",
                      help="longest time to wait for the hosts (default 10)")  # fmt: skip
    jobs.set_defaults(run=_command("jobs"), job=None, read_only=True)

    add_capture(verbs, _command("capture"))
    add_export(verbs, _command("export"))
    add_statistics(verbs, _command("statistics"), _command("statistics", "run_diff"))
    add_watch(verbs, _command("watch"), _command("history"))
    _doctor(verbs)
    _tensors(verbs)
    _ras(verbs)
    _stacks(verbs)
    _consumers(verbs)
    _key(verbs)

    _run(verbs)

    agent = verbs.add_parser("agent", help="run this host's agent in the foreground")
    agent.add_argument(
        "--port",
        type=port,
        help="first of its two ports (default: 7677, or the next free pair; 7675 with --all-users)",
    )
    agent.add_argument("--bind", metavar="ADDRESS", help="address to listen on (default: all)")
    agent.add_argument("--read-only", action="store_true",
                       help="refuse all requests to the ranks, whatever the user's key"
                       )  # fmt: skip
    agent.add_argument("--all-users", action="store_true",
                       help="root only: serve the jobs of every user, to those whom"
                       " /etc/frtop/admitted lists; see docs/all-users.md")  # fmt: skip
    agent.add_argument("--config", metavar="FOLDER", default="/etc/frtop",
                       help="with --all-users: folder of the host's key and the list"
                       " (default: /etc/frtop)")  # fmt: skip
    agent.add_argument("--audit", metavar="FILE|syslog", action="append", default=[],
                       help="with --all-users: who looked at what (default: "
                       "/var/log/frtop/audit.jsonl); `syslog` sends each line there, or to the "
                       "journal, as well; `syslog:SOCKET` to another socket than /dev/log"
                       )  # fmt: skip
    agent.set_defaults(run=_command("run", "run_agent"))

    demo = verbs.add_parser(
        "demo",
        help="start a real job that hangs, and show it",
        epilog="faults:\n"
        + "".join(f"  {f.name:10} {f.summary}\n" for f in FAULTS.values())
        + f"  {SLOW:10} with --ranks: one rank comes late to every step\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    demo.add_argument("--ranks", type=int, metavar="N",
                      help="scripted ranks instead, up to 16,384 of them: real messages of real "
                      "agents, no torch; most faults are one rank's of them")  # fmt: skip
    demo.add_argument("--fault", choices=(*FAULTS, SLOW), default="stall", metavar="NAME",
                      help="what goes wrong (default: stall)")  # fmt: skip
    demo.add_argument("--unprepared", action="store_true",
                      help="start the job without the recorder, and show it from outside"
                      )  # fmt: skip
    demo.add_argument("--headless", action="store_true",
                      help="print progress and the verdict instead of the screen; "
                      "exit status 0 if the verdict is right")  # fmt: skip
    demo.set_defaults(run=_command("demo"))
    return top, tuple(verbs.choices)


def _run(verbs: argparse._SubParsersAction[_Parser]) -> None:
    run = verbs.add_parser(
        "run",
        help="start a job with the recorder: frtop run -- torchrun ...",
        description="Runs the command with the recorder. The job's code need not change, and "
        "its environment need not contain frtop.",
    )
    run.add_argument("--record", metavar="DIR",
                     help="write a black box for `frtop open` there when a rank dies"
                     )  # fmt: skip
    run.add_argument("--device-tensors", action="store_true",
                     help="let tensors on NVIDIA GPUs be read: each rank makes a stream and 4 MiB "
                     "of pinned memory at its first op there, for which the driver may wait for "
                     "the device"
                     )  # fmt: skip
    run.add_argument("--phases", action="store_true",
                     help="record when forwards and backwards begin and end, on the host: those "
                     "of DDP and FSDP2, some microseconds a step"
                     )  # fmt: skip
    run.add_argument("--watch", action="store_true",
                     help="watch the job meanwhile, as `frtop watch`; its lines go to stderr"
                     )  # fmt: skip
    run.add_argument("--watch-options", default="", metavar="OPTIONS",
                     help="the same with options of `frtop watch`: '--exec ./tell.sh --kill'"
                     )  # fmt: skip
    run.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND ...")
    run.set_defaults(run=_command("run"))


def _doctor(verbs: argparse._SubParsersAction[_Parser]) -> None:
    doctor = verbs.add_parser(
        "doctor",
        help="what would be seen of a job here, and which change opens what is closed",
        description="Tries, tier by tier, what can be seen of a job on this host: before a job, or"
        " beside the ranks that run. Ranks are only read, as by every look; whatever else is tried"
        " is tried on a process of its own. With --ssh the same on other hosts, through a shell,"
        " with nothing installed there. Exit status 0, or 1 where something is closed that costs"
        " evidence, or a host is not reached.",
    )
    add_shells(doctor, python_help="for a job that is yet to start with this Python, whatever runs"
               " here; with --ssh: the Python to use there")  # fmt: skip
    doctor.add_argument("--pid", type=pid_of, metavar="PID",
                        help="only this process of this host (default: all ranks of this user)"
                        )  # fmt: skip
    doctor.add_argument("--json", action="store_true", help="print a JSON document")
    doctor.set_defaults(run=_command("doctor"))


def _tensors(verbs: argparse._SubParsersAction[_Parser]) -> None:
    tensors = verbs.add_parser(
        "tensors", help="ask a rank for statistics of the tensors of its pending ops"
    )
    add_connection(tensors, pid=False)
    tensors.add_argument("--rank", type=rank, required=True, metavar="N", help="global rank")
    tensors.add_argument("--op", type=number, default=0, metavar="OP",
                         help="only this pending op: as in the column `op`, or its number "
                              "(default: all)")  # fmt: skip
    tensors.add_argument("--save", metavar="FILE",
                         help="write the tensors of one op to a safetensors file")  # fmt: skip
    tensors.add_argument("--json", action="store_true", help="print a JSON document")
    tensors.set_defaults(run=_command("tensors"))


def _ras(verbs: argparse._SubParsersAction[_Parser]) -> None:
    ras = verbs.add_parser(
        "ras",
        help="ask NCCL's RAS who has launched less: once, after its risk was accepted",
        description="Asks NCCL's own RAS service which rank has launched fewer ops of which kind,"
        " and who is missing. Asking it has ended jobs: the risk and NCCL's version are said"
        " first, and nothing is asked without a yes. One process of one host is asked, once."
        " Exit status 0 with an answer, 1 without.",
    )
    add_connection(ras)
    ras.add_argument("--rank", type=rank, metavar="N",
                     help="ask through this rank (default: the first that lives)")  # fmt: skip
    ras.add_argument("--twice", action="store_true",
                     help="ask again 11 s later, and say what has not moved: twice the risk"
                     )  # fmt: skip
    ras.add_argument("--yes", action="store_true",
                     help="accept the risk without being asked")  # fmt: skip
    ras.add_argument("--json", action="store_true", help="print a JSON document")
    ras.set_defaults(run=_command("ras"))


def _stacks(verbs: argparse._SubParsersAction[_Parser]) -> None:
    stacks = verbs.add_parser(
        "stacks",
        help="print the stacks of ranks, on request with frames of C and C++",
        description="Prints the Python stacks of all ranks as one tree, or those of all threads "
        "of the ranks that are named. Nothing stands still for that. With --native a rank does, "
        "for about 0.7 s, at most 5 s; ranks are taken one after the other.",
    )
    add_connection(stacks)
    stacks.add_argument("--rank", type=rank, nargs="+", metavar="N",
                        help="global ranks (default: all, merged)")  # fmt: skip
    stacks.add_argument("--native", action="store_true",
                        help="also frames of C and C++; the named ranks stand still for it"
                        )  # fmt: skip
    stacks.add_argument("--yes", action="store_true",
                        help="do not ask before a rank stands still")  # fmt: skip
    stacks.add_argument("--json", action="store_true", help="print a JSON document")
    stacks.set_defaults(run=_command("stacks"))


def _consumers(verbs: argparse._SubParsersAction[_Parser]) -> None:
    """The verbs whose output is read by other programs."""
    for name, described, add in (("stream", STREAM, add_stream), ("metrics", METRICS, add_metrics)):
        verb = verbs.add_parser(
            name,
            help=described["help"],
            description=described["description"],
            epilog=described.get("epilog"),
        )
        add_connection(verb)
        add_files(verb, "*", "captures, black boxes, dumps or stacks instead of a live job")
        add(verb)
        verb.add_argument("--wait", type=seconds, default=10.0, metavar="SECONDS",
                          help="longest time to wait for the job (default 10)")  # fmt: skip
        verb.set_defaults(run=_command(name))


def _key(verbs: argparse._SubParsersAction[_Parser]) -> None:
    key = verbs.add_parser(
        "key",
        help="who may look at this user's jobs: show, make, admit, trust, remove",
        description="Without an action: shows our public key, whom we admit and whom we trust.",
    )
    key.set_defaults(run=_command("key"), act="show")
    acts = key.add_subparsers(metavar="ACTION", parser_class=_Parser)
    show = acts.add_parser("show", help="our public key, whom we admit, whom we trust")
    show.set_defaults(act="show")
    make = acts.add_parser("make", help="make our key now (otherwise the agent of rank 0 does)")
    make.set_defaults(act="make")
    admit = acts.add_parser("admit", help="let another user look at our jobs, by their public key")
    admit.add_argument("public", metavar="PUBLIC", help="their key, from `frtop key`")
    admit.add_argument("--read", action="store_true",
                       help="they may look, but not ask for tensors or native stacks")  # fmt: skip
    admit.add_argument("--name", default="", help="who that is, for people")
    admit.set_defaults(act="admit")
    trust = acts.add_parser("trust", help="look at the jobs of another user, who has admitted us")
    trust.add_argument("public", metavar="PUBLIC", help="their key, from `frtop key`")
    trust.add_argument("--name", default="", help="who that is, for people")
    trust.set_defaults(act="trust")
    remove = acts.add_parser("remove", help="no longer admit or trust this key")
    remove.add_argument("public", metavar="PUBLIC_OR_NAME")
    remove.set_defaults(act="remove")


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The options of one command; `run` is the function to call with them.

    Raises:
        UsageError: invalid; the message names the nearest valid command.
    """
    top, verbs = parser()
    words = list(argv)
    if not words or (words[0].startswith("-") and words[0] not in ("-h", "--help", "--version")):
        words.insert(0, SCREEN)
    elif words[0] not in verbs and not words[0].startswith("-"):
        near = difflib.get_close_matches(words[0], verbs, n=1)
        raise UsageError(
            f"unknown command {words[0]!r}",
            f"did you mean `frtop {near[0]}`?" if near else "`frtop --help` lists the commands",
        )
    if words[0] == "key":
        from frtop_tui.cli.key import without_dash  # noqa: PLC0415 - libzmq, for this verb only

        words = [without_dash(word) for word in words]
    options = top.parse_args(words)
    if hasattr(options, "ssh"):
        settle_hosts(options, verbs)
    require_one_job(options)
    return options
