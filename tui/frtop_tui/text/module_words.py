"""Ops by module as lines of text and as JSON, with the counts of CommDebugMode's dump."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.issuer_words import PHASES
from frtop_tui.job.naming import printable
from frtop_tui.job.statistics import JobStatistics
from frtop_tui.job.units import byte_size
from frtop_tui.statistics.module_tree import ModuleNode, module_roots, phases_of
from frtop_tui.text.document import aligned
from frtop_tui.text.statistics_table import NO_CALLS, NO_STATISTICS, head_lines
from frtop_tui.text.statistics_words import ranks_words, waiting_words, window_words

NOT_RECORDED: Final = "modules are not recorded: `M` on `:record`, or `frtop recorder --modules on`"
TITLE: Final = "collectives by module"
LEVELS: Final = (
    f"{TITLE}: level 0 of CommDebugMode. A profile has levels 1 to 3, and times:"
    " `frtop statistics --by module --level 2 PROFILE`"
)
MOST_KINDS: Final = 3
INDENT: Final = "  "


def module_lines(frame: Frame) -> list[str]:
    """All lines are safe for a terminal."""
    found = frame.statistics
    if found is None:
        return [NO_STATISTICS]
    lines = head_lines(frame, found, sum_words(found), window_words(found))
    roots = module_roots(found.modules)
    if not roots:
        return [printable(line) for line in (*lines, "", why_empty(frame, found))]
    phases = phases_of(roots)
    table = [("", *(PHASES.get(one, one) for one in phases), "bytes", "kinds")]
    table += [
        (
            INDENT * node.depth + node.name,
            *(f"{node.count(phase):,}" for phase in phases),
            byte_size(node.size() or None),
            kinds_words(node),
        )
        for root in roots
        for node in root.walk()
    ]
    lines += ["", *aligned(table), "", LEVELS]
    return [printable(line) for line in lines]


def why_empty(frame: Frame, found: JobStatistics | None, no_answer: str = "") -> str:
    """Why no op has a module; `no_answer`: why no answer will be shown."""
    if waiting := waiting_words(frame, found, no_answer):
        return waiting
    return NOT_RECORDED if found is not None and found.calls else NO_CALLS


def sum_words(found: JobStatistics) -> str:
    """`sum of 4 ranks`: what counts and bytes add up."""
    words = ranks_words(found)
    return f"sum of {words}" if len(found.ranks) > 1 else words


def kinds_words(node: ModuleNode) -> str:
    """`all_reduce 12, broadcast 2`."""
    kinds = node.kinds()
    texts = [f"{kind or 'unknown'} {count:,}" for kind, count in kinds[:MOST_KINDS]]
    more = len(kinds) - MOST_KINDS
    return ", ".join([*texts, f"{more} more"] if more > 0 else texts)


def module_document(found: JobStatistics) -> dict[str, Any]:
    """The tree as values of JSON."""
    roots = module_roots(found.modules)
    return {
        "seconds": found.seconds,
        "ranks": list(found.ranks),
        "recorded": bool(roots),
        "levels": LEVELS,
        "modules": [module_node(root) for root in roots],
    }


def module_node(
    node: ModuleNode, facts: Callable[[ModuleNode], dict[str, Any]] = lambda _: {}
) -> dict[str, Any]:
    """As in CommDebugMode, `collectives_*` count a module with all below it; `facts` adds more."""
    phases = phases_of([node])
    return {
        "fqn": node.path,
        **facts(node),
        "part": node.is_part,
        "ranks": sorted(node.ranks),
        **{
            f"collectives_{phase}": [
                [kind, count] for (of, kind), count in sorted(node.total.items()) if of == phase
            ]
            for phase in dict.fromkeys(("forward", "backward", *phases))
        },
        "bytes": {phase: node.size(phase) for phase in phases},
        "own": [
            {"phase": phase, "kind": kind, "count": count, "bytes": node.own_bytes[phase, kind]}
            for (phase, kind), count in sorted(node.own.items())
        ],
        "children": [module_node(child, facts) for child in node.sorted_children()],
    }
