"""The command line's words. Commands are imported when they run, to start fast."""

from __future__ import annotations

import argparse
import difflib
import importlib
from collections.abc import Callable, Sequence
from typing import Final, NoReturn

from frtop_tui.demo.faults import FAULTS
from frtop_tui.errors import UsageError

SCREEN: Final = "screen"
STATUSES: Final = """exit status of diagnose:
  0  nothing wrong, and everything was seen
  3  hung, dead or diverged
  5  held up or slow
  4  undecided: somebody waits, and whether that is unusual is not known yet, or
     too little was seen to say
  2  the command line makes no sense
  1  another error
"""


class _Parser(argparse.ArgumentParser):
    """Complains with one sentence and the next step, like every other error."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, f"`{self.prog} --help` lists what there is")


class _Version(argparse.Action):
    """Looks the version up when it is asked for: that takes longer than all other parsing."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str) -> None:  # noqa: A002
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from importlib import metadata  # noqa: PLC0415

        print(f"frtop {metadata.version('frtop')}")
        parser.exit()


def _command(name: str) -> Callable[[argparse.Namespace], int]:
    """The `run` of a command's module, imported when it is called."""

    def run(options: argparse.Namespace) -> int:
        module = importlib.import_module(f"frtop_tui.cli.{name}")
        status: int = module.run(options)
        return status

    return run


def parser() -> tuple[argparse.ArgumentParser, tuple[str, ...]]:
    """The parser, and the verbs it knows."""
    top = _Parser(
        prog="frtop",
        description="Who, what and why, when a distributed PyTorch job hangs.",
        epilog="Without a command: the screen, on this host's newest job.",
    )
    top.add_argument("--version", action=_Version, help="show program's version number and exit")
    verbs = top.add_subparsers(metavar="COMMAND", parser_class=_Parser)

    screen = verbs.add_parser(SCREEN, help="the live screen (also without the word `screen`)")
    _connection(screen)
    screen.set_defaults(run=_command("screen"))

    diagnose = verbs.add_parser(
        "diagnose",
        help="the verdict as text, without a screen",
        epilog=STATUSES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _connection(diagnose)
    _files(
        diagnose,
        "*",
        "say what captures, black boxes, dumps or stacks tell, instead of looking live",
    )
    diagnose.add_argument("--json", action="store_true", help="as a JSON document")
    diagnose.add_argument(
        "--wait",
        type=_seconds,
        default=10.0,
        metavar="SECONDS",
        help="look at most this long before saying what is known (default 10)",
    )
    diagnose.set_defaults(run=_command("diagnose"))

    opened = verbs.add_parser(
        "open",
        help="the same screens on what was left: a capture, a folder of black boxes or dumps",
        description="Shows a job as it was. Needs no network and no torch.",
    )
    _files(
        opened,
        "+",
        "captures, black boxes, Flight Recorder dumps, py-spy stacks, or folders of them",
    )
    opened.add_argument("--job", metavar="NAME",
                        help="name, run id or address:port (default: the one recorded last)"
                        )  # fmt: skip
    opened.set_defaults(run=_command("open"))

    capture = verbs.add_parser(
        "capture",
        help="everything that can be known now, in one file for `frtop open`",
        description="Looks until it can say what is wrong, then writes all of it into one file. "
        "Exit status 0 when the file is written, whatever is wrong with the job: `frtop diagnose "
        "FILE` tells, by its exit status, too.",
    )
    _connection(capture)
    capture.add_argument("-o", "--output", metavar="FILE",
                         help="where to, in place of what is there (default: a new "
                         "frtop-JOB-TIME.cap here)")  # fmt: skip
    capture.set_defaults(run=_command("capture"))

    tensors = verbs.add_parser(
        "tensors", help="what is in the tensors of a rank's pending ops, asked of the rank itself"
    )
    _connection(tensors)
    tensors.add_argument("--rank", type=_rank, required=True, metavar="N", help="global rank")
    tensors.add_argument("--op", type=_number, default=0, metavar="OP",
                         help="only this pending op: what its column `op` says, or its number "
                              "(default: all of them)")  # fmt: skip
    tensors.add_argument("--save", metavar="FILE",
                         help="write the data of one op, as safetensors")  # fmt: skip
    tensors.add_argument("--json", action="store_true", help="as a JSON document")
    tensors.set_defaults(run=_command("tensors"))

    _key(verbs)

    run = verbs.add_parser(
        "run",
        help="start a job that frtop can look into: frtop run -- torchrun ...",
        description="Runs the command with the recorder prepared. No code changes; the job's "
        "environment need not have frtop.",
    )
    run.add_argument("--record", metavar="DIR",
                     help="when a rank ends badly, leave a black box there for `frtop open`"
                     )  # fmt: skip
    run.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND ...")
    run.set_defaults(run=_command("run"))

    agent = verbs.add_parser("agent", help="the agent of this host, in the foreground")
    agent.add_argument("--port", type=_port, help="first of its two ports (default: 7677 or next)")
    agent.add_argument("--bind", metavar="ADDRESS", help="listen here only (default: everywhere)")
    agent.add_argument("--read-only", action="store_true",
                       help="let nobody ask anything of the ranks, whatever their key")  # fmt: skip
    agent.set_defaults(run=_command("agent"))

    demo = verbs.add_parser(
        "demo",
        help="a real job that hangs, to try frtop on",
        epilog="faults:\n" + "".join(f"  {f.name:10} {f.story}\n" for f in FAULTS.values()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    demo.add_argument("--fault", choices=FAULTS, default="stall", metavar="NAME",
                      help="what goes wrong (default: stall)")  # fmt: skip
    demo.add_argument("--headless", action="store_true",
                      help="no screen: progress, then the verdict; "
                      "exit status 0 if who and why are right")  # fmt: skip
    demo.set_defaults(run=_command("demo"))
    return top, tuple(verbs.choices)


def _connection(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--connect",
        nargs="+",
        default=["local"],
        metavar="SPEC",
        help="hosts of the job: 'node[0-7]', node3:7700, several (default: local)",
    )
    verb.add_argument("--job", metavar="NAME",
                      help="name, run id or address:port (default: the newest live job)"
                      )  # fmt: skip
    verb.add_argument("--read-only", action="store_true",
                      help="look only; the agents hold us to it")  # fmt: skip


def _files(verb: argparse.ArgumentParser, count: str, help_text: str) -> None:
    verb.add_argument("paths", nargs=count, metavar="PATH", help=help_text)
    verb.add_argument("--ranks-from", metavar="PATTERN",
                      help="how dumps are named for their ranks, where that cannot be told: "
                      "'host*_gpu{rank}', 'rank{rank}/trace.json'")  # fmt: skip


def _key(verbs: argparse._SubParsersAction[_Parser]) -> None:
    key = verbs.add_parser(
        "key",
        help="who may look at this user's jobs: show, make, admit, trust, remove",
        description="Without a word: shows our public key, whom we admit and whom we trust.",
    )
    key.set_defaults(run=_command("key"), act="show")
    acts = key.add_subparsers(metavar="ACT", parser_class=_Parser)
    show = acts.add_parser("show", help="our public key, whom we admit, whom we trust")
    show.set_defaults(act="show")
    make = acts.add_parser("make", help="make our key now (else the agent beside rank 0 does)")
    make.set_defaults(act="make")
    admit = acts.add_parser("admit", help="let another user look at our jobs, by their public key")
    admit.add_argument("public", metavar="PUBLIC", help="what `frtop key` shows them")
    admit.add_argument("--read", action="store_true",
                       help="they may look, and ask nothing of the ranks")  # fmt: skip
    admit.add_argument("--name", default="", help="for people: who that is")
    admit.set_defaults(act="admit")
    trust = acts.add_parser("trust", help="look at another user's jobs, who has admitted us")
    trust.add_argument("public", metavar="PUBLIC", help="what `frtop key` shows them")
    trust.add_argument("--name", default="", help="for people: who that is")
    trust.set_defaults(act="trust")
    remove = acts.add_parser("remove", help="neither admit nor trust this key any more")
    remove.add_argument("public", metavar="PUBLIC_OR_NAME")
    remove.set_defaults(act="remove")


def _rank(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no rank: they count from 0")
    return int(text)


def _number(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no op's sequence number")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 86400:
        raise argparse.ArgumentTypeError(f"{text!r}: seconds, more than 0 and at most a day")
    return value


def _port(text: str) -> int:
    value = int(text) if text.isdecimal() else 0
    if not 1 <= value <= 65534:
        raise argparse.ArgumentTypeError(
            f"{text!r}: ports are 1 to 65534 (the next one is used too)"
        )
    return value


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The options of one command, with `run` to call.

    Raises:
        UsageError: nonsense; the sentence names the nearest thing that makes sense.
    """
    top, verbs = parser()
    words = list(argv)
    if not words or (words[0].startswith("-") and words[0] not in ("-h", "--help", "--version")):
        words.insert(0, SCREEN)
    elif words[0] not in verbs and not words[0].startswith("-"):
        near = difflib.get_close_matches(words[0], verbs, n=1)
        raise UsageError(
            f"there is no command {words[0]!r}",
            f"did you mean `frtop {near[0]}`?" if near else "`frtop --help` lists the commands",
        )
    options = top.parse_args(words)
    misplaced = [spec for spec in getattr(options, "connect", ()) if spec in verbs]
    if misplaced:
        raise UsageError(
            f"{misplaced[0]!r} stands among the hosts",
            f"the command comes first: frtop {misplaced[0]} --connect ...",
        )
    return options
