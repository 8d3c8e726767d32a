"""Finds the module and the phase that issue an op, and writes them as a number into its slot.

The issuer is the first of these that is known:

* for a message of a pipeline, the stage that made it;
* for FSDP2, the module in its label, whose parameters it gathers (also early) or reduces;
* the innermost module that runs, or runs again inside a backward (activation checkpointing);
* in a backward, the bucket of DDP, the module of the parameter whose gradient accumulates, or the
  module that made the autograd node.

An op of a compiled graph gets the module that entered the graph, and the graph's name.
"""

from __future__ import annotations

import itertools
import os
import re
import threading
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from frtop_probe.features.modules.in_rank.ddp_buckets import DDP, MAX_MEMBERS, DDPBuckets
from frtop_probe.features.modules.in_rank.module_calls import (
    Current,
    ModuleCalls,
    ThreadCalls,
    add_root,
    watch_calls,
)
from frtop_probe.features.modules.in_rank.module_names import (
    ModuleNames,
    Name,
    class_of,
    is_backward,
    without_wrappers,
)
from frtop_probe.features.modules.in_rank.module_profile import ModuleProfile
from frtop_probe.features.modules.in_rank.pipeline_messages import (
    STAGES,
    PipelineMessages,
    wrap_stages,
)
from frtop_probe.recorder.guard import guarded, raised_by_signal_handler
from frtop_probe.recorder.marks.phases import wrap_backward, wrap_labels
from frtop_probe.recorder.marks.steps import StepCounter
from frtop_probe.recorder.ops.call_sites import CallSites
from frtop_probe.recorder.ops.kernel import hide_from_dynamo
from frtop_probe.recorder.own_ring import OwnRing
from frtop_probe.recorder.process.import_hook import when_imported
from frtop_probe.ring.layout import MAX_MODULES, PHASE_SHIFT, IssuePhase, Side, StatusCell

SETTING: Final = "FRTOP_MODULES"
DDP_LABEL: Final = "DistributedDataParallel.forward"
FSDP_LABELS: Final = "FSDP::"
_FSDP: Final = re.compile(r"^FSDP::(?:all_gather|post_backward_reduce)\b(?: \((?P<path>[^)]*)\))?")
"""Labels around what FSDP2 issues. A label inside another one names the same module; a prefetch's
label contains the gather's."""
_TRACED: Final = "<eval_with_key>"
_CACHE: Final = "TORCHINDUCTOR_CACHE_DIR"
ACCUMULATES: Final = "AccumulateGrad"
"""The autograd node that adds to a parameter's gradient."""
GIVEN_UP: Final = "modules are no longer recorded"
TOO_OLD: Final = "modules are not recorded: this torch is too old"
UNKNOWN: Final[Name] = "", ""
MAX_LABELS: Final = 65_536


class Issuers:
    """Numbers modules, and finds the module of an op."""

    def __init__(self, ring: OwnRing, torch: Any, steps: StepCounter, sites: CallSites) -> None:
        self.calls = ModuleCalls()
        self.names = ModuleNames(self.calls.roots)
        self.buckets = DDPBuckets(torch)
        self.messages = PipelineMessages()
        self._torch = torch
        self._ring = ring
        self._steps = steps
        self._sites = sites
        self._task = torch._C._current_graph_task_id  # noqa: SLF001
        self._node = torch._C._current_autograd_node  # noqa: SLF001
        self._labels: dict[int, list[str]] = {}
        """By thread: paths of the open FSDP2 labels."""
        self._paths: dict[str, str] = {}
        self._graphs: dict[int, str] = {}
        """By call site: the compiled graph that contains the line, "" for none."""
        self._numbers: dict[tuple[str, ...], int] = {}
        self._parameters: dict[int, tuple[tuple[str, int], ...]] = {}
        """Parameters of a bucket by its number, see `Bucket`."""
        self._by_module: dict[tuple[int, str], tuple[weakref.ref[Any], int]] = {}
        self._by_path: dict[str, int] = {}
        """Paths in FSDP2 labels."""
        self._names_at = 0
        self._count = itertools.count(1)
        self.on = self.given_up = False

    def switch(self, *, on: bool) -> None:
        """Starts recording with the next call of an outermost module, or stops."""
        if on and not self.on:
            self.calls.begin_anew()
            self._labels.clear()  # we did not see open ones end
            self.messages.known.clear()
        self.calls.on = self.on = on

    # -- what torch does

    def label_begins(self, label: Any) -> None:
        """Called when a label begins."""
        text = label.name
        if text.startswith(FSDP_LABELS):
            self._labels.setdefault(threading.get_ident(), []).append(self._path_of(text))

    def label_ends(self, label: Any) -> None:
        """Called when a label ends."""
        if label.name == DDP_LABEL:
            calls = self.calls.of_thread()
            if calls is not None and calls.stack and class_of(calls.stack[-1]) == DDP:
                self.buckets.look(calls.stack[-1])
        elif open_labels := self._labels.get(threading.get_ident()):
            open_labels.pop()

    def stage_made(self, stage: Any, messages: Sequence[Any], phase: IssuePhase, what: str) -> None:
        """Called when a pipeline stage has made messages, which the schedule issues next."""
        module = getattr(stage, "submod", None)
        if module is not None and self.names.of(module) is None:
            add_root(self.calls.roots, module)  # it receives before it runs
        name = (self.names.of(module) if module is not None else None) or UNKNOWN
        number = self._number(*name, f"pipeline stage {getattr(stage, 'stage_index', '?')}: {what}")
        self.messages.add(messages, number | phase << PHASE_SHIFT)

    def _path_of(self, text: str) -> str:
        """Returns the path in an FSDP2 label, " " for the root; "" if the label surrounds no op."""
        known = self._paths.get(text)
        if known is None:
            found = _FSDP.match(text)
            known = (without_wrappers(found["path"] or "") or " ") if found else ""
            if len(self._paths) < MAX_LABELS:
                self._paths[text] = known
        return known

    def of_profile(self, label: str) -> ModuleProfile:
        """Describes modules in a profile; `label` begins the name of the event around a call."""
        return ModuleProfile(self._torch, self.calls, self.names, label)

    # -- an op

    def find(self, thread: int, site: int, process_group: Any, args: Sequence[Any]) -> int:
        """Returns the number for an op's slot, from the module's number and the phase."""
        if self.given_up or not self.on:
            return 0
        try:
            return self._find(thread, site, process_group, args)
        except Exception as error:
            if raised_by_signal_handler(error):
                raise
            self.give_up(error)
            return 0

    def parameters_of(self, issuer: int) -> Sequence[tuple[str, int]]:
        """Names and sizes of the parameters whose gradients an op carries, in its order.

        `issuer` is what `find` returned. Empty if the op does not reduce a DDP bucket.
        """
        return self._parameters.get(issuer & MAX_MODULES, ())

    def name_of(self, parameter: Any) -> str:
        """Returns a parameter's name, as in a state dict; "" if unknown."""
        if self.given_up:
            return ""
        try:
            return self.names.full_name(parameter)
        except Exception as error:
            if raised_by_signal_handler(error):
                raise
            self.give_up(error)
            return ""

    def give_up(self, error: BaseException) -> None:
        """Stops recording modules after an exception of ours; ops are still recorded."""
        if not self.given_up:
            self.given_up = True
            self._ring.write_note(f"{GIVEN_UP} ({type(error).__name__}: {error})")

    def _find(self, thread: int, site: int, process_group: Any, args: Sequence[Any]) -> int:
        if self.messages.known and (message := self.messages.take(args)):
            return message
        calls = self.calls.of_thread()
        if calls is None:
            return 0
        stack, task = calls.stack, self._task()
        label = next((one for one in reversed(self._labels.get(thread, ())) if one), "")
        graph = self._graphs.get(site)
        if graph is None:
            graph = self._graphs[site] = self._graph_of(site)
        running: Sequence[Any] = stack
        if task < 0:
            phase = (
                IssuePhase.FORWARD if stack
                else IssuePhase.OPTIMIZER if self._steps.in_optimizer(thread)
                else IssuePhase.OUTSIDE
            )  # fmt: skip
        else:
            running = [one for one in stack[calls.floor :] if not is_backward(one)]
            phase = IssuePhase.RECOMPUTE if running else IssuePhase.BACKWARD
        if label:
            number = self._of_path(label.strip())
        elif running:
            number = self._of_running(running, graph)
        elif task >= 0:
            number = self._of_node(calls, task, graph, process_group, args)
        else:
            number = self._of_graph(graph)
        return number | phase << PHASE_SHIFT

    def _of_running(self, running: Sequence[Any], graph: str) -> int:
        """The number of the innermost module with a name: modules of graphs have none."""
        for module in reversed(running):
            number = self._of_module(module, graph)
            if number:
                return number
        return self._of_graph(graph)

    def _of_graph(self, graph: str) -> int:
        return self._number(*UNKNOWN, f"graph {graph}") if graph else 0

    def _of_node(
        self, own: ThreadCalls, task: int, graph: str, process_group: Any, args: Sequence[Any]
    ) -> int:
        node = self._node()
        if node is None:
            return self._of_graph(graph)
        if type(node).__name__ == ACCUMULATES:
            parameter = node.variable
            tensors = args[0] if isinstance(args[0], list) else ()
            values = sum(one.numel() for one in tensors)
            bucket = self.buckets.issued(parameter, task, process_group, values)
            name = self.names.of_parameter(parameter) or UNKNOWN
            if bucket is not None:
                members = bucket.modules[:MAX_MEMBERS]
                number = self._number(name[0], "", bucket.text, *members)
                if number:  # 0 is shared by all ops without a known issuer
                    self._parameters[number] = bucket.parameters
                return number
            return self._number(*name, "")
        calls = self.calls.makers(own)
        number_of = getattr(node, "_sequence_nr", None)
        owner = None
        if calls is not None and number_of is not None:
            owner = calls.owner_of(number_of())
        number = self._of_module(owner, graph) if owner is not None else 0
        return number or self._of_graph(graph)

    def _of_module(self, module: Any, graph: str) -> int:
        self._forget_former_names()
        key = id(module), graph
        known = self._by_module.get(key)
        if known is not None and known[0]() is module:
            return known[1]
        name = self.names.of(module)
        number = self._number(*name, f"graph {graph}" if graph else "") if name is not None else 0
        if len(self._by_module) >= MAX_LABELS:
            self._by_module.clear()
        self._by_module[key] = weakref.ref(module), number
        return number

    def _of_path(self, path: str) -> int:
        self._forget_former_names()
        number = self._by_path.get(path)
        if number is None:
            number = self._by_path[path] = self._number(self.names.root_with(path), path, "")
        return number

    def _forget_former_names(self) -> None:
        """Clears caches after names changed because a module turned out to be part of another."""
        if self._names_at != self.names.changes:
            self._names_at = self.names.changes
            self._by_module.clear()
            self._by_path.clear()

    def _number(self, root: str, path: str, part: str, *members: str) -> int:
        """Returns the number of a module or of a part of it; 0 if unknown, or without room."""
        key = root, path, part
        number = self._numbers.get(key)
        if number is not None:
            return number
        number = 0
        if any(key):
            number = next(self._count)
            entry = [path, root, part, *members]
            if number > MAX_MODULES or not self._ring.write_entry(Side.MODULE, number, entry):
                self._ring.cells[StatusCell.SIDE_LOST] += 1
                number = 0
        self._numbers[key] = number
        return number

    def _graph_of(self, site: int) -> str:
        """Returns the compiled graph whose generated code contains a line; "" for none."""
        file = self._sites.file_of(site)
        if file.startswith(_TRACED):
            return file.strip("<>").replace(">", "")
        cache = os.environ.get(_CACHE)  # Inductor sets it itself before it writes there
        return Path(file).stem if cache and file.startswith(cache) else ""


CURRENT: Final = Current()
"""Of this process."""
_CAN: Final[list[bool]] = []
"""Whether this torch can record modules; empty before the check."""


def install(torch: Any, issuers: Issuers, enabled: list[int]) -> bool:
    """Makes the wrappers of this process serve these issuers, while `enabled[0]` is not 0.

    The first call wraps module calls and backwards until the process ends. Returns whether
    this torch can record modules.
    """
    CURRENT.issuers, CURRENT.calls, CURRENT.enabled = issuers, issuers.calls, enabled
    CURRENT.fail = _failed
    if not _CAN:
        _CAN.append(_wrap(torch))
    issuers.calls.call_code = CURRENT.call_code
    return _CAN[0]


def _issuers() -> Issuers:
    issuers = CURRENT.issuers
    assert isinstance(issuers, Issuers)
    return issuers


def _calls() -> ModuleCalls:
    return _issuers().calls


def _failed(error: BaseException) -> None:
    issuers, CURRENT.calls = CURRENT.issuers, None
    if issuers is not None:
        issuers.give_up(error)


def _is_on() -> bool:
    issuers = CURRENT.issuers
    return issuers is not None and bool(CURRENT.enabled[0]) and issuers.on and not issuers.given_up


def _wrap(torch: Any) -> bool:
    def guard(function: Callable[..., Any]) -> Callable[..., Any]:
        return guarded(function, _is_on, _failed)

    def watch_stages(module: Any) -> None:
        wrap_stages(torch, module, guard(lambda *message: _issuers().stage_made(*message)))

    if not watch_calls(torch, CURRENT):
        return False
    wrap_labels(
        torch,
        lambda text: text == DDP_LABEL or text.startswith(FSDP_LABELS),
        guard(lambda label: _issuers().label_begins(label)),
        guard(lambda label: _issuers().label_ends(label)),
    )
    when_imported(STAGES, guarded(watch_stages, lambda: True, _failed))
    begins = guard(lambda: _calls().backward_begins())
    hide_from_dynamo(torch, begins)
    return wrap_backward(torch, begins, guard(lambda before: _calls().backward_ends(before)))
