"""The verbs of the core: their options. What they do is imported when they run."""

from __future__ import annotations

import argparse
from typing import Final

from frtop_tui.cli.file_options import add_files, add_wait
from frtop_tui.cli.host_options import add_connection, add_theme
from frtop_tui.cli.option_values import rank_list
from frtop_tui.cli.verbs.parts import Parser, Verb, Verbs, command
from frtop_tui.demo.faults import FAULTS, SLOW
from frtop_tui.files.formats.registry import FORMATS
from frtop_tui.registry import contributions

LIVE: Final = "live"
STATUSES: Final = """exit status of diagnose:
  0  healthy, and all ranks reported
  3  hung, dead, or a collective mismatch
  5  held up or slow
  4  undecided: a wait may still be usual, a straggler is only suspected,
     or too few ranks reported
  2  invalid command line
  1  any other error
"""


def _live(verbs: Verbs[Parser]) -> None:
    live = verbs.add_parser(
        LIVE,
        prog="frtop",
        help="the live screen: what `frtop` without a command shows",
        description="Shows a running job on a screen. `frtop live` is the same as `frtop`.",
    )
    add_theme(live)
    add_connection(live)
    live.set_defaults(run=command("cli.screen"))


def _diagnose(verbs: Verbs[Parser]) -> None:
    diagnose = verbs.add_parser(
        "diagnose",
        help="print the verdict: who is stuck, where, and why",
        description="Prints the verdict on a running job, or on what files hold.",
        epilog=STATUSES,
    )
    add_files(
        diagnose,
        "*",
        "diagnose captures, black boxes, dumps, stacks, answers of ncclras or logs instead of a"
        " live job; - is a log from standard input",
    )
    diagnose.add_argument("--json", action="store_true", help="print a JSON document")
    diagnose.add_argument(
        "--explain",
        action="store_true",
        help="also print how frtop found the verdict: which ranks are blocked, who waits for whom,"
        " which ranks are left out, and why it is confirmed or not",
    )
    add_wait(diagnose, "a verdict")
    add_connection(diagnose)
    diagnose.set_defaults(run=command("cli.diagnose"))


def _open(verbs: Verbs[Parser]) -> None:
    opened = verbs.add_parser(
        "open",
        help="show captures, black boxes, dumps or stacks",
        description="Shows a recorded job on the same screens, without network and torch.",
    )
    add_files(
        opened,
        "+",
        "captures, black boxes, Flight Recorder dumps, py-spy stacks, saved answers of ncclras,"
        " logs, or folders of them",
    )
    opened.add_argument("--job", metavar="NAME",
                        help="name, run id or address:port (default: the one recorded last)"
                        )  # fmt: skip
    add_theme(opened)
    opened.set_defaults(run=command("cli.screen", "run_open"))


def _jobs(verbs: Verbs[Parser]) -> None:
    jobs = verbs.add_parser(
        "jobs",
        help="list all jobs, with or without the recorder",
        description="Lists the jobs on the hosts, what to type for each, and what keeps frtop from"
        " seeing all of it. Exit status 0 with jobs, 1 without.",
    )
    jobs.add_argument("--json", action="store_true", help="print a JSON document")
    add_wait(jobs, "the hosts")
    add_connection(jobs, without=("--job", "--pid", "--read-only"))
    jobs.set_defaults(run=command("cli.jobs"), job=None, read_only=True)


def _capture(verbs: Verbs[Parser]) -> None:
    capture = verbs.add_parser(
        "capture",
        help="write all that is known of a job to one file",
        description="Collects everything known, waits up to 10 s for a verdict, and writes a file. "
        "After one ^C it writes what has arrived. The exit status is 0 if the file is written, "
        "whatever the state of the job; `frtop diagnose FILE` reports that.",
    )
    capture.add_argument("-o", "--output", metavar="FILE",
                         help="the file to write or replace (default: a new frtop-JOB-TIME.cap "
                         "in the current folder)")  # fmt: skip
    _add_redact(capture)
    add_connection(capture)
    capture.set_defaults(run=command("cli.capture"))


def _export(verbs: Verbs[Parser]) -> None:
    export = verbs.add_parser(
        "export",
        help="write a report, a trace, stacks or a table",
        description="Writes what is known of a live job, or what captures, black boxes, dumps and"
        " stacks hold, in a format for people or other programs. The exit status is 0 if it is"
        " written, whatever the state of the job.",
        epilog="formats:\n" + "".join(f"  {n:15} {one.summary}\n" for n, one in FORMATS.items()),
    )
    add_files(export, "*", "export these files instead of a live job")
    export.add_argument("-f", "--format", choices=FORMATS, required=True, metavar="FORMAT",
                        help=f"one of {', '.join(FORMATS)}")  # fmt: skip
    export.add_argument("-o", "--output", metavar="PATH",
                        help="the file or folder to write; - is standard output (default: a new "
                        "frtop-JOB-TIME in the current folder)")  # fmt: skip
    export.add_argument("--force", action="store_true", help="replace an existing file")
    _add_redact(export)
    add_connection(export)
    export.set_defaults(run=command("cli.export"))


def _add_redact(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--redact", action="store_true",
                      help="replace names of hosts, users and paths, values of variables and"
                      " arguments, and data (docs/formats.md lists what stays)"
                      )  # fmt: skip


def _stacks(verbs: Verbs[Parser]) -> None:
    stacks = verbs.add_parser(
        "stacks",
        help="print the stacks of ranks; with --native also in C++",
        description="Prints the Python stacks of all ranks as one tree, or all threads of named "
        "ranks; no rank stops. With --native the named ranks stand still one after the other, each "
        "for about 0.7 s and at most 5 s.",
    )
    stacks.add_argument("--rank", type=rank_list, metavar="LIST",
                        help="these ranks: 0-3,8 (default: all, merged)")  # fmt: skip
    stacks.add_argument("--native", action="store_true",
                        help="also C and C++ frames; the named ranks stand still meanwhile"
                        )  # fmt: skip
    stacks.add_argument("--yes", action="store_true",
                        help="accept that a rank stands still, and do not ask")  # fmt: skip
    stacks.add_argument("--json", action="store_true", help="print a JSON document")
    add_connection(stacks)
    stacks.set_defaults(run=command("cli.stacks"))


def _run(verbs: Verbs[Parser]) -> None:
    run = verbs.add_parser(
        "run",
        help="start a job with the recorder: run -- torchrun ...",
        description="Runs the command with the recorder. The job's code does not change, and its "
        "environment does not need frtop.",
    )
    run.add_argument("--record", metavar="DIR",
                     help="write a black box for `frtop open` to DIR when a rank dies, or when "
                     "all have ended well")  # fmt: skip
    run.add_argument("--device-tensors", action="store_true",
                     help="allow frtop to read tensors on NVIDIA GPUs: at its first op there, each "
                     "rank makes a stream and 4 MiB of pinned memory; the driver may wait for the "
                     "device for that"
                     )  # fmt: skip
    run.add_argument("--phases", action="store_true",
                     help="record when forwards and backwards begin and end on the host: some "
                     "microseconds a step, and 0.3 µs a call of a module"
                     )  # fmt: skip
    run.add_argument("--modules", action="store_true",
                     help="record which module and phase issued each op: 1 to 2 µs a call of a "
                     "module, some 3 µs an op"
                     )  # fmt: skip
    run.add_argument("--report", action="store_true",
                     help="record the numbers that Lightning's loggers, transformers' callbacks and"
                     " accelerate's log get; frtop_probe.report needs no option"
                     )  # fmt: skip
    run.add_argument("--longer-ring", action="store_true",
                     help="keep the last 65,536 ops of a rank instead of 8,192: 5.8 MB more a rank"
                     )  # fmt: skip
    for beside in contributions("verbs", "BESIDE_RUN"):
        beside.add(run)
    run.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND ...")
    run.set_defaults(run=command("cli.run"))


def _agent(verbs: Verbs[Parser]) -> None:
    agent = verbs.add_parser(
        "agent",
        help="run this host's agent in the foreground",
        description="Runs this host's agent, which other hosts reach with --connect, in the"
        " foreground. Ranks with the recorder and frtop start one by themselves.",
    )
    agent.add_argument("--bind", metavar="ADDRESS", help="address to listen on (default: all)")
    agent.add_argument("--read-only", action="store_true",
                       help="refuse all requests to the ranks, whichever key asks"
                       )  # fmt: skip
    agent.set_defaults(run=command("cli.run", "run_agent"))


def _demo(verbs: Verbs[Parser]) -> None:
    demo = verbs.add_parser(
        "demo",
        help="start a real job that hangs, and show it",
        description="Starts a small real job, breaks it, and shows it.",
        epilog="faults:\n"
        + "".join(f"  {f.name:10} {f.summary}\n" for f in FAULTS.values())
        + "".join(f"  {name:10} with --ranks: {summary}\n" for name, summary in SLOW.items()),
    )
    demo.add_argument("--ranks", type=int, metavar="N",
                      help="N scripted ranks instead, 16 to 16,384 by eights: real messages of "
                      "real agents, without torch; most faults hit one of them")  # fmt: skip
    demo.add_argument("--fault", choices=(*FAULTS, *SLOW), default="stall", metavar="NAME",
                      help="what goes wrong (default: stall)")  # fmt: skip
    demo.add_argument("--unprepared", action="store_true",
                      help="start the job without the recorder"
                      )  # fmt: skip
    demo.add_argument("--headless", action="store_true",
                      help="print progress and the verdict instead of the screen; "
                      "exit status 0 if the verdict is right")  # fmt: skip
    demo.set_defaults(run=command("cli.demo"))


def _key(verbs: Verbs[Parser]) -> None:
    key = verbs.add_parser(
        "key",
        help="show and change who may look at your jobs",
        description="Without an action, shows our public key and the keys that we admit and trust.",
    )
    key.set_defaults(run=command("cli.key"), act="show")
    acts = key.add_subparsers(metavar="ACTION", parser_class=Parser)
    show = acts.add_parser("show", help="show our public key and the keys that we admit and trust")
    show.set_defaults(act="show")
    make = acts.add_parser("make", help="make our key now (otherwise the agent of rank 0 does)")
    make.set_defaults(act="make")
    admit = acts.add_parser("admit", help="let another user look at our jobs, by their public key")
    admit.add_argument("public", metavar="PUBLIC", help="their key, from `frtop key`")
    admit.add_argument("--read", action="store_true",
                       help="they may look, but not ask for tensors or native stacks")  # fmt: skip
    admit.add_argument("--name", default="", help="a name for this key, for people to read")
    admit.set_defaults(act="admit")
    trust = acts.add_parser("trust", help="look at the jobs of another user, who has admitted us")
    trust.add_argument("public", metavar="PUBLIC", help="their key, from `frtop key`")
    trust.add_argument("--name", default="", help="a name for this key, for people to read")
    trust.set_defaults(act="trust")
    remove = acts.add_parser("remove", help="no longer admit or trust this key")
    remove.add_argument("public", metavar="PUBLIC_OR_NAME")
    remove.set_defaults(act="remove")


def _config(verbs: Verbs[Parser]) -> None:
    config = verbs.add_parser(
        "config",
        help="show the settings in use, and where each comes from",
        description="Prints every setting with its value and its source: the command line, the"
        " environment, the configuration file, or frtop's default. Options that follow count as"
        " they would for the screen. docs/configuration.md describes the file.",
    )
    add_theme(config)
    config.add_argument("--json", action="store_true", help="print a JSON document")
    add_connection(config, without=("--pid",))
    config.set_defaults(run=command("cli.settings"))


def _schema(verbs: Verbs[Parser]) -> None:
    schema = verbs.add_parser(
        "schema",
        help="print the JSON Schema of what --json prints",
        description="Prints the JSON Schema of a document, or without a name lists all. A document"
        " names its own: `schema`. docs/api.md says what stays as it is.",
    )
    schema.add_argument("name", nargs="?", metavar="NAME", help="as in `frtop-diagnose-1`")
    schema.set_defaults(run=command("cli.schema"))


def _completion(verbs: Verbs[Parser]) -> None:
    completion = verbs.add_parser(
        "completion",
        help="print the script that completes commands in your shell",
        description="Prints a script for your shell, in which the tab key then completes frtop's"
        " commands, options and files:\n\n"
        '  bash  eval "$(frtop completion bash)"    in ~/.bashrc\n'
        '  zsh   eval "$(frtop completion zsh)"     in ~/.zshrc, after compinit\n'
        "  fish  frtop completion fish | source     in ~/.config/fish/config.fish\n",
    )
    completion.add_argument("shell", choices=("bash", "zsh", "fish"))
    completion.set_defaults(run=command("cli.completion"))


def _build_native(verbs: Verbs[Parser]) -> None:
    build = verbs.add_parser(
        "build-native",
        help="compile the recorder: an op then costs about 1 µs",
        description="Compiles the recorder's kernels for a job's torch and Python, once for each"
        " pair; ranks find them in ~/.cache/frtop/native. Needs a C++ compiler. Without them the"
        " kernels are Python and cost 10 to 65 µs an op. FRTOP_NATIVE=0 switches them off.",
    )
    build.add_argument("--python", metavar="PATH",
                       help="the Python that runs the job (default: the one that runs frtop)"
                       )  # fmt: skip
    build.set_defaults(run=command("cli.build_native"))


VERBS: Final = (
    Verb(10, _live),
    Verb(11, _diagnose),
    Verb(12, _jobs),
    Verb(13, _stacks),
    Verb(15, _open),
    Verb(20, _run),
    Verb(22, _capture),
    Verb(23, _export),
    Verb(52, _agent),
    Verb(61, _key),
    Verb(62, _config),
    Verb(63, _build_native),
    Verb(64, _completion),
    Verb(65, _demo),
    Verb(66, _schema),
)
