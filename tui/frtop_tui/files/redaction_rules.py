"""What redaction does with each field that has a text; docs/formats.md says it in words.

A rule names a method of `Pseudonyms`, or, with an underscore, of `Redaction`; "keep" keeps the
text. A field without a rule is treated as a sentence; a test requires a rule for each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame, OpName, Verdict, Why
from frtop_tui.job.host_gauges import GaugedSubject, HostGauges
from frtop_tui.job.model import CoverageNote, GroupView, HostView, Problem, Recorded
from frtop_tui.job.naming import GroupKey
from frtop_tui.job.statistics import CallRow, JobStatistics, ModuleRow, SampledOp

RULES: Final[Mapping[type, Mapping[str, str]]] = {
    Frame: {"notes": "text", "read_only": "text"},
    wire.Job: {"master_addr": "endpoint", "run_id": "run", "nonce": "keep", "name": "program"},
    HostView: {"name": "endpoint", "version": "keep", "notes": "text", "address": "endpoint",
               "progress": "text"},
    Problem: {"text": "text", "next": "text"},
    wire.Identity: {"argv": "argv", "cwd": "folder", "torch": "keep", "python": "keep",
                    "nccl": "keep", "record": "folder", "settings": "settings"},
    wire.Group: {"name": "keep", "description": "keep", "backend": "keep", "ranks": "keep",
                 "blind": "text", "error": "message"},
    wire.Signature: {"kind": "keep", "reduce": "keep", "members": "keep"},
    wire.TensorSpec: {"dtype": "keep", "device": "keep"},
    wire.Issuer: {"phase": "keep", "path": "text", "root": "text", "part": "text",
                  "modules": "text"},
    wire.Site: {"file": "path", "function": "keep"},
    wire.Process: {"state": "keep", "name": "keep", "wchan": "keep", "syscall": "keep",
                   "file": "path"},
    wire.UncaughtException: {"kind": "keep", "text": "message", "thread": "text"},
    wire.TraceFrame: {"function": "keep", "file": "path", "module": "keep", "source": "source",
                      "variables": "variables"},
    wire.EndedChild: {"name": "keep"},
    wire.Snapshot: {"addresses": "endpoint", "ops_note": "text"},
    wire.StackDump: {"error": "keep", "help": "text"},
    wire.ThreadStack: {"name": "text"},
    wire.ThreadWait: {"kind": "keep"},
    wire.DeadConnection: {"local": "endpoint", "remote": "endpoint"},
    wire.TensorsResponse: {"host": "endpoint", "error": "keep", "help": "text"},
    wire.OpTensors: {"error": "text"},
    wire.OutputResponse: {"host": "endpoint", "error": "keep", "help": "text"},
    wire.OutputFile: {"path": "path", "streams": "keep", "text": "drop", "error": "keep",
                      "help": "text"},
    wire.TensorSummary: {"role": "keep", "dtype": "keep", "device": "keep", "first": "drop",
                         "checksum": "checksum", "error": "text"},
    wire.Gauges: {"note": "text"},
    HostGauges: {"notes": "text"},
    GaugedSubject: {"kind": "keep", "name": "path", "detail": "device", "problem": "text",
                    "values": "keep", "history": "keep"},
    wire.Gpu: {"uuid": "gpu", "name": "keep", "error": "text"},
    wire.ReportedValues: {"name": "keep", "values": "keep"},
    wire.Transport: {"name": "keep", "sign": "text"},
    wire.NativeStacksResponse: {"host": "endpoint", "tool": "keep", "note": "text"},
    wire.History: {"note": "text"},
    wire.Mark: {"kind": "keep", "text": "text"},
    CallRow: {"kind": "keep"},
    ModuleRow: {"kind": "keep"},
    SampledOp: {"kind": "keep"},
    JobStatistics: {"notes": "text"},
    GroupView: {"description": "keep", "backend": "keep"},
    GroupKey: {"name": "keep", "ranks": "keep"},
    CoverageNote: {"text": "text", "kind": "keep"},
    Recorded: {"kind": "keep", "path": "path", "by": "author", "version": "keep", "notes": "line"},
    Verdict: {"kind": "keep", "confidence": "keep", "progress": "keep", "headline": "text",
              "next": "text", "evidence": "line", "missing": "text"},
    Why: {"cause": "keep", "layer": "keep", "text": "text"},
    OpName: {"kind": "keep"},
}  # fmt: skip
OF_ANY: Final = {"host": "endpoint", "state": "keep", "health": "keep"}
"""Rules for structs that are not in `RULES`, and for those that inherit."""
