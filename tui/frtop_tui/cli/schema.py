"""`frtop schema`: the types of what commands print with `--json`, as JSON Schemas.

Each document names its schema: `frtop-diagnose-1`. The number rises if a field goes, or its type or
meaning changes; new fields do not change it, so readers must ignore what they do not know. Features
have theirs in `schemas.py`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Any, Final, Literal, get_args, get_type_hints

import msgspec
from msgspec import UNSET, Struct, UnsetType

from frtop_tui.diagnosis.causes import Cause, Layer
from frtop_tui.diagnosis.model import Confidence, Progress, Trace, VerdictKind
from frtop_tui.errors import UsageError
from frtop_tui.files.formats.frame_json import SCHEMA, frame_schema
from frtop_tui.registry import contributions
from frtop_tui.statistics.step_table import StepRow


class JobFields(Struct, frozen=True):
    """Which job."""

    name: str
    run_id: str
    attempt: int
    world_size: int
    master: str
    nonce: str
    call: str  # what `--job` takes


class ShownJob(JobFields, frozen=True):
    """The job of a verdict."""

    prepared: bool | None  # whether its ranks have the recorder; null: some


class OtherJob(JobFields, frozen=True):
    """Another job on the same hosts."""

    live: bool
    prepared: bool | None
    age_s: float | None
    quiet_s: float | None  # since anything moved in it
    waits_s: float | None  # its longest wait
    dated: bool  # whether these times are exact, not lower bounds


class JobRow(OtherJob, frozen=True):
    """One row of `frtop jobs`."""

    ranks: int
    unprepared_ranks: int
    hosts: int
    ended_s: float | None
    in_the_way: tuple[str, ...]  # what hides parts of it


class HostFields(Struct, frozen=True):
    """Whether a host reports."""

    name: str
    state: str
    problem: str
    lost_updates: int
    clock_error_s: float | None


class ListedHost(HostFields, frozen=True):
    """A host of `frtop jobs`."""

    notes: tuple[str, ...]


class JobsDocument(Struct, frozen=True):
    """`frtop jobs --json`."""

    schema: Literal["frtop-jobs-1"]
    jobs: tuple[JobRow, ...]
    hosts: tuple[ListedHost, ...]
    notes: tuple[str, ...]


class RecordedFields(Struct, frozen=True):
    """The files of a recorded job."""

    kind: str
    path: str
    at: str | None
    by: str
    version: str
    notes: tuple[str, ...]


class VerdictGroup(Struct, frozen=True):
    """The process group of a verdict."""

    name: str
    description: str
    ranks: str  # 0-3,8


class Issued(Struct, frozen=True):
    """What issued an op, if modules are recorded."""

    phase: str | UnsetType = UNSET
    module: str | UnsetType = UNSET
    module_part: str | UnsetType = UNSET


class VerdictOp(Issued, frozen=True, kw_only=True):
    """The op of a verdict."""

    number: int | None  # in its group; null: cannot be compared
    kind: str


class WhyFields(Struct, frozen=True):
    """The cause, as words for programs, and a sentence."""

    cause: Cause
    layer: Layer
    text: str


class SlowFields(Struct, frozen=True):
    """How slow a rank or link is, and what that costs."""

    late_ops: int
    sampled_ops: int
    late_s: float
    clock_error_s: float
    share: float
    most_share: float
    step_s: float | None
    waiting_ranks: int
    lost_hours: float
    hours_of: Literal["GPU", "rank"]
    at_least: bool


class VerdictFields(Struct, frozen=True):
    """One verdict, the gravest first."""

    kind: VerdictKind
    confidence: Confidence
    progress: Progress
    culprits: tuple[int, ...]
    parties: tuple[tuple[int, ...], ...]  # of a mismatch or deadlock: who disagrees
    victims: str  # 0-3,8
    headline: str
    group: VerdictGroup | None
    op: VerdictOp | None
    why: WhyFields
    left_s: float | None  # until a watchdog of torch ends the job
    evidence: tuple[str, ...]
    missing: tuple[str, ...]  # what would have told more
    next: str
    slow: SlowFields | UnsetType = UNSET


class CoverageFields(Struct, frozen=True):
    """How much of the job was seen."""

    expected: int
    reporting: int
    unreachable: str
    lost_updates: int
    complete: bool
    notes: tuple[str, ...]


class TransportFields(Struct, frozen=True):
    """How a rank reaches others."""

    name: str
    sign: str


class BlockedOn(Issued, frozen=True, kw_only=True):
    """The op a rank is in."""

    kind: str
    number: int | None
    age_s: float | None
    dated: bool


class RankFields(Struct, frozen=True):
    """One rank; an unreachable one has only `state`."""

    state: str
    since_s: float | None
    host: str | None
    pid: int | None
    prepared: bool | None
    notes: tuple[str, ...] | None
    transports: tuple[TransportFields, ...] | None
    step: int | None
    blocked_on: BlockedOn | None


class EnvironmentFields(Struct, frozen=True):
    """Settings and versions of ranks."""

    common: dict[str, str] | UnsetType = UNSET
    different: dict[str, dict[str, str]] | UnsetType = UNSET


class ReportedFindingFields(Struct, frozen=True):
    """What is odd in a reported number."""

    kind: str
    ranks: str
    step: int
    text: str


class ReportedFields(Struct, frozen=True):
    """One number that the job reports of itself."""

    name: str
    ranks: str
    step: int
    min: float | None
    median: float | None
    max: float | None
    not_finite: dict[str, str]
    equal: bool
    findings: tuple[ReportedFindingFields, ...]


class DiagnosisDocument(Struct, frozen=True):
    """`frtop diagnose --json`. Features add lists of texts: `known_faults`, `output`, `before`."""

    schema: Literal["frtop-diagnose-1"]
    job: ShownJob | None
    other_jobs: tuple[OtherJob, ...]
    recorded: RecordedFields | None  # null: a live job
    health: str
    verdicts: tuple[VerdictFields, ...]
    coverage: CoverageFields
    notes: tuple[str, ...]
    compared_s: float
    visible_share: float | None
    compared_one_op_in: int
    not_compared: str
    environment: EnvironmentFields
    hosts: tuple[HostFields, ...]
    ranks: dict[str, RankFields]
    reported: tuple[ReportedFields, ...]
    trace: Trace | UnsetType = UNSET  # with --explain


class FrameFields(Struct, frozen=True):
    """One frame of a stack, the innermost first."""

    function: str
    file: str
    line: int | None
    native: bool


class ThreadFields(Struct, frozen=True):
    """One thread, the main thread first."""

    name: str
    tid: int
    active: bool
    owns_gil: bool
    frames: tuple[FrameFields, ...]


class RankStacks(Struct, frozen=True):
    """The stacks of one rank, or why there are none."""

    rank: int
    host: str
    pid: int
    state: str
    age_s: float | None
    error: str | None
    help: str | None
    threads: tuple[ThreadFields, ...]
    tool: str | UnsetType | None = UNSET  # with --native, as the next two
    stopped_s: float | UnsetType | None = UNSET
    note: str | UnsetType | None = UNSET


class StacksDocument(Struct, frozen=True):
    """`frtop stacks --json`."""

    schema: Literal["frtop-stacks-1"]
    ranks: tuple[RankStacks, ...]


class GroupName(Struct, frozen=True):
    """A process group."""

    name: str
    ranks: str


class LastRank(Struct, frozen=True):
    """How often a rank arrived last."""

    rank: int
    times: int


class CallFields(Struct, frozen=True):
    """Ops of one line, kind and size; times in ns, bandwidths in bytes per second."""

    kind: str
    line: str | None  # FILE:LINE
    function: str | None
    groups: tuple[GroupName, ...]
    ranks: tuple[int, ...]
    p2p: bool
    on_device: bool
    per_second: float
    largest_bytes: int | None
    share_of_step: float | None
    count: int
    bytes: int
    timed: int
    late: int
    pending: int
    p50_ns: int | None
    p95_ns: int | None
    max_ns: int | None
    total_ns: int
    waited_ns: int
    sampled: int
    skew_ns: int | None
    transfer_ns: int | None
    algorithm_bandwidth: float | None
    bus_bandwidth: float | None
    last: tuple[LastRank, ...]


class StatisticsDocument(Struct, frozen=True):
    """`frtop statistics --json`; null without figures."""

    schema: Literal["frtop-statistics-1"]
    seconds: float
    counted_seconds: float
    ranks: tuple[int, ...]
    missing: tuple[int, ...]
    clock_error_ns: int | None
    lost: int
    notes: tuple[str, ...]
    calls: tuple[CallFields, ...]
    steps: tuple[StepRow, ...]
    stages: tuple[StepRow, ...]


class ModulesDocument(Struct, frozen=True):
    """`frtop statistics --by module --json`: a tree of nodes, as torch's CommDebugMode dumps it."""

    schema: Literal["frtop-modules-1"]
    fqn: str
    module_type: str
    parameters: tuple[Any, ...]
    collectives_forward: tuple[tuple[str, int], ...]
    collectives_backward: tuple[tuple[str, int], ...]
    operations_forward: tuple[Any, ...]
    operations_backward: tuple[Any, ...]
    operations_checkpointing: tuple[Any, ...]
    part: bool
    ranks: tuple[int, ...]
    own: tuple[dict[str, Any], ...]  # ops and bytes by phase and kind
    total: tuple[dict[str, Any], ...]
    children: tuple[dict[str, Any], ...]  # nodes
    level: int
    levels: str
    recorded: bool
    seconds: float | UnsetType = UNSET  # of a live job or a capture
    notes: tuple[str, ...] | UnsetType = UNSET  # of a profile, as the next two
    tensors: tuple[Any, ...] | UnsetType = UNSET
    host_ns: dict[str, Any] | UnsetType = UNSET


class SettingFields(Struct, frozen=True, rename={"origin": "from"}):
    """A setting in use."""

    value: Any
    origin: str


class ConfigDocument(Struct, frozen=True):
    """`frtop config --json`."""

    schema: Literal["frtop-config-1"]
    file: str
    there: bool
    settings: dict[str, SettingFields]


TYPES: Final[tuple[type[Struct], ...]] = (
    DiagnosisDocument,
    JobsDocument,
    StacksDocument,
    StatisticsDocument,
    ModulesDocument,
    ConfigDocument,
)


def types() -> Mapping[str, type[Struct]]:
    """The types of all documents by the names of their schemas."""
    found = [*TYPES, *(one for own in contributions("schemas", "TYPES") for one in own)]
    return {get_args(get_type_hints(one)["schema"])[0]: one for one in found}


def schemas() -> dict[str, dict[str, Any]]:
    """All schemas (draft 2020-12) by name, with that of `frtop export --format json`."""
    made = {
        name: {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": kind.__doc__,
            **msgspec.json.schema(kind),
        }
        for name, kind in types().items()
    }
    return dict(sorted({**made, SCHEMA: frame_schema()}.items()))


def run(options: argparse.Namespace) -> int:
    """Prints one schema, or the names of all; returns 0."""
    known = schemas()
    if not options.name:
        print("\n".join(known))
        return 0
    if options.name not in known:
        raise UsageError(f"no schema is called {options.name}", "`frtop schema` lists them")
    print(json.dumps(known[options.name], indent=1))
    return 0
