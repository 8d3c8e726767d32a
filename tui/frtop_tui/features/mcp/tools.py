"""The tools: what each takes, and the command line that answers it. Pure.

A client names a job, files, ranks. Hosts and shells are named by who starts the server: `--via`
runs commands.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

_NO_CONTROL: Final = r"^[^\x00-\x1f\x7f]+$"
Job = Annotated[
    str,
    Meta(
        max_length=256,
        pattern=_NO_CONTROL,
        description="the job, as `call` in the answer of jobs has it (default: the newest)",
    ),
]
Paths = Annotated[
    list[Annotated[str, Meta(max_length=4096, pattern=r"^/[^\x00-\x1f\x7f]*$")]],
    Meta(
        max_length=64,
        description="absolute paths of captures, black boxes, Flight Recorder dumps, py-spy stacks"
        " or logs, or of folders of them, instead of a live job",
    ),
]
Ranks = Annotated[
    list[Annotated[int, Meta(ge=0, lt=2**20)]],
    Meta(max_length=64, description="only these ranks (default: all)"),
]
WaitS = Annotated[
    float, Meta(ge=0, le=60, description="longest time to wait for a verdict, in seconds")
]
WindowS = Annotated[
    float, Meta(gt=0, le=3600, description="count the last seconds (default 60; of files all)")
]
Group = Annotated[
    str,
    Meta(
        max_length=256,
        pattern=_NO_CONTROL,
        description="only ops of these groups, by name or description: dp:0,tp:1",
    ),
]


class Nothing(Struct, frozen=True, forbid_unknown_fields=True):
    """No arguments."""


class OfJob(Struct, frozen=True, forbid_unknown_fields=True):
    """Which job to judge."""

    job: Job | None = None
    paths: Paths = []
    wait_s: WaitS = 10.0


class OfRanks(Struct, frozen=True, forbid_unknown_fields=True):
    """Which ranks of a live job."""

    job: Job | None = None
    ranks: Ranks = []


class OfWindow(Struct, frozen=True, forbid_unknown_fields=True):
    """Which ops to count."""

    job: Job | None = None
    paths: Paths = []
    window_s: WindowS | None = None
    ranks: Ranks = []
    group: Group | None = None
    by: Literal["line", "module"] = "line"


@dataclass(frozen=True, slots=True)
class McpTool:
    """One tool. `words` are those of the command line after its verb.

    Attributes:
        answered: keys of the document that are answered; empty: all.
    """

    name: str
    verb: str
    about: str
    arguments: type[Struct]
    words: Callable[[Any], list[str]]
    answered: tuple[str, ...] = ()

    @property
    def input_schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments, without references: some clients resolve none."""
        (schema,), named = msgspec.json.schema_components([self.arguments])
        found: dict[str, Any] = dict(named[schema["$ref"].rpartition("/")[2]])
        del found["title"]
        found.pop("description", None)
        return found

    def command(self, arguments: Mapping[str, Any], connection: Connection) -> list[str]:
        """The words of the command line after `frtop`.

        Raises:
            msgspec.ValidationError: an argument is wrong or unknown.
        """
        given = msgspec.convert(arguments, self.arguments)
        words = self.words(given)
        paths = getattr(given, "paths", [])
        hosts = [] if paths else connection.words_of(self.verb)
        return [self.verb, "--json", *words, *hosts, *(["--", *paths] if paths else [])]


@dataclass(frozen=True, slots=True)
class Connection:
    """Which hosts the server looks at, as options of the command line."""

    agents: tuple[str, ...] = ()
    shells: tuple[str, ...] = ()

    def words_of(self, verb: str) -> list[str]:
        """Those that a verb takes: `doctor` examines this host, or those of shells."""
        return list(self.shells if verb == "doctor" else (*self.agents, *self.shells))


def connection_words(options: argparse.Namespace) -> Connection:
    """The hosts of `frtop mcp`; what its own options and settings said, the commands hear again."""
    agents = ("--connect", *options.connect) if options.connect else ()
    shells = ["--ssh", *options.ssh] if options.ssh else []
    named = {name: getattr(options, name) for name in ("via", "through", "python", "user")}
    shells += [f"--{name}={value}" for name, value in named.items() if value]
    return Connection(tuple(agents), tuple(shells))


def shown(words: Sequence[str]) -> str:
    """A command line as a person types it."""
    return shlex.join(["frtop", *words])


def _judged(given: OfJob) -> list[str]:
    return [f"--wait={given.wait_s:g}", *_job(given.job), *_looks(given.paths)]


def _stacks(given: OfRanks) -> list[str]:
    return ["--read-only", *_job(given.job), *_ranks(given.ranks)]


def _counted(given: OfWindow) -> list[str]:
    words = [f"--by={given.by}", *_job(given.job), *_ranks(given.ranks), *_looks(given.paths)]
    if given.window_s is not None:
        words.append(f"--window={given.window_s:g}")
    if given.group is not None:
        words.append(f"--group={given.group}")
    return words


def _job(name: str | None) -> list[str]:
    return [] if name is None else [f"--job={name}"]


def _ranks(ranks: Sequence[int]) -> list[str]:
    return [f"--rank={','.join(map(str, ranks))}"] if ranks else []


def _looks(paths: Sequence[str]) -> list[str]:
    """Agents enforce it."""
    return [] if paths else ["--read-only"]


TOOLS: Final = (
    McpTool(
        "jobs",
        "jobs",
        "Lists the distributed PyTorch jobs on the hosts, with or without frtop's recorder. Start"
        " here. `call` of a job is what the other tools take as `job`; `in_the_way` is what hides"
        " parts of it.",
        Nothing,
        lambda _: [],
    ),
    McpTool(
        "diagnose",
        "diagnose",
        "Says why a job hangs or is slow: which rank everyone waits for (`culprits`), which"
        " collective it has not reached, the cause (`why`), the evidence, what was not seen"
        " (`missing`) and the next step. Of files instead of a live job with `paths`. Exit status 0"
        " healthy, 3 hung or dead or a collective mismatch, 5 held up or slow, 4 undecided. A"
        " verdict whose confidence is not `confirmed` may change: ask again.",
        OfJob,
        _judged,
    ),
    McpTool(
        "explain",
        "diagnose",
        "As diagnose, but with `trace`, how the verdict was found: which ranks are blocked and by"
        " what, who waits for whom, which are left out, why it is confirmed or not. Ask this if a"
        " verdict surprises.",
        OfJob,
        lambda given: ["--explain", *_judged(given)],
        ("schema", "job", "recorded", "health", "verdicts", "coverage", "notes", "trace"),
    ),
    McpTool(
        "stacks",
        "stacks",
        "Takes the Python stacks of ranks while they run on, the innermost frame first. Name"
        " the culprits of diagnose in `ranks`: the stacks of all ranks of a large job do not fit.",
        OfRanks,
        _stacks,
    ),
    McpTool(
        "statistics",
        "statistics",
        "Counts what ranks did: collectives by line, group and size, how long they took, who"
        " arrives last and by how much, where a step goes. For jobs that are slow; a job that hangs"
        " does nothing. Times are in ns, rows are the slowest first.",
        OfWindow,
        _counted,
    ),
    McpTool(
        "doctor",
        "doctor",
        "Says what frtop can see on the hosts, what is closed to it (permissions, containers,"
        " missing tools) and what a person can type to open it. Ask this if jobs finds nothing or"
        " diagnose lacks evidence.",
        Nothing,
        lambda _: [],
    ),
)
