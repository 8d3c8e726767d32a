"""Verbs that start something: a job, an agent, the demo."""

from __future__ import annotations

import argparse
from typing import Final

from frtop_tui.cli.option_values import port
from frtop_tui.cli.verbs.parts import Parser, Verb, Verbs, command
from frtop_tui.demo.faults import FAULTS, SLOW
from frtop_tui.registry import contributions


def _run(verbs: Verbs[Parser]) -> None:
    run = verbs.add_parser(
        "run",
        help="start a job with the recorder: frtop run -- torchrun ...",
        description="Runs the command with the recorder. The job's code need not change, and "
        "its environment need not contain frtop.",
    )
    run.add_argument("--record", metavar="DIR",
                     help="write a black box for `frtop open` to DIR when a rank dies"
                     )  # fmt: skip
    run.add_argument("--device-tensors", action="store_true",
                     help="allow tensors on NVIDIA GPUs to be read: at its first op there, each "
                     "rank makes a stream and 4 MiB of pinned memory, for which the driver may "
                     "wait for the device"
                     )  # fmt: skip
    run.add_argument("--phases", action="store_true",
                     help="record when forwards and backwards of DDP and FSDP2 begin and end on "
                     "the host: some microseconds a step"
                     )  # fmt: skip
    run.add_argument("--modules", action="store_true",
                     help="record which module and phase issued each op: 1 to 2 µs a call of a "
                     "module, some 3 µs an op"
                     )  # fmt: skip
    for beside in contributions("verbs", "BESIDE_RUN"):
        beside.add(run)
    run.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND ...")
    run.set_defaults(run=command("cli.run"))


def _agent(verbs: Verbs[Parser]) -> None:
    agent = verbs.add_parser("agent", help="run this host's agent in the foreground")
    agent.add_argument(
        "--port",
        type=port,
        help="the first of two ports (default: 7677, or the next free pair)",
    )
    agent.add_argument("--bind", metavar="ADDRESS", help="address to listen on (default: all)")
    agent.add_argument("--read-only", action="store_true",
                       help="refuse all requests to the ranks, whatever key asks"
                       )  # fmt: skip
    agent.set_defaults(run=command("cli.run", "run_agent"))


def _demo(verbs: Verbs[Parser]) -> None:
    demo = verbs.add_parser(
        "demo",
        help="start a real job that hangs, and show it",
        epilog="faults:\n"
        + "".join(f"  {f.name:10} {f.summary}\n" for f in FAULTS.values())
        + "".join(f"  {name:10} with --ranks: {summary}\n" for name, summary in SLOW.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    demo.add_argument("--ranks", type=int, metavar="N",
                      help="N scripted ranks instead, up to 16,384: real messages of real agents, "
                      "without torch; most faults hit one of them")  # fmt: skip
    demo.add_argument("--fault", choices=(*FAULTS, *SLOW), default="stall", metavar="NAME",
                      help="what goes wrong (default: stall)")  # fmt: skip
    demo.add_argument("--unprepared", action="store_true",
                      help="start the job without the recorder, as a job that nobody prepared"
                      )  # fmt: skip
    demo.add_argument("--headless", action="store_true",
                      help="print progress and the verdict instead of the screen; "
                      "exit status 0 if the verdict is right")  # fmt: skip
    demo.set_defaults(run=command("cli.demo"))


VERBS: Final = (Verb(50, _run), Verb(51, _agent), Verb(52, _demo))
