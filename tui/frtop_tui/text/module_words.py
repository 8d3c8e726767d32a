"""The tree of modules as lines of text, and as JSON that CommDebugMode's page opens.

That page is `comm_mode_broswer_visual.js` in torch's sources; it shows what
`CommDebugMode.generate_json_dump` writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.issuer_words import PHASES
from frtop_tui.job.naming import printable
from frtop_tui.job.statistics import JobStatistics
from frtop_tui.job.units import byte_size, timing
from frtop_tui.statistics.module_tree import ModuleNode, ModuleSums, OpKind, module_tree, phases_of
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
SHORT: Final = {"recompute": "recomputed", "outside": "outside"}
"""Phases as titles of columns."""
GLOBAL: Final = "Global"
"""CommDebugMode's name of the root."""
_IN_BACKWARD: Final = frozenset({"backward", "recompute"})


def module_lines(frame: Frame) -> list[str]:
    """All lines are safe for a terminal."""
    found = frame.statistics
    if found is None:
        return [NO_STATISTICS]
    lines = head_lines(frame, found, sum_words(found), window_words(found))
    top = module_tree(found.modules)
    if not top.children:
        return [printable(line) for line in (*lines, "", why_empty(frame, found))]
    return [*map(printable, lines), "", *tree_lines(top), "", LEVELS]


def tree_lines(
    top: ModuleNode, details: Callable[[ModuleNode], Iterable[str]] = lambda _: ()
) -> list[str]:
    """A table of the sum and of all modules, each with its details below it."""
    nodes = list(top.walk())
    table = aligned([head_of(top), *(_cells(node, top) for node in nodes)])
    lines = table[:1]
    for node, line in zip(nodes, table[1:], strict=True):
        lines.append(line)
        lines += (INDENT * (node.depth + 2) + one for one in details(node))
    return [printable(line) for line in lines]


def module_table(top: ModuleNode, most: int) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The titles and rows of a table for a report, with paths: the outermost modules first."""
    nodes = sorted(top.walk(), key=lambda node: node.depth)
    return (
        ("module", *head_of(top)[1:]),
        [(node.path or node.name, *_cells(node, top)[1:]) for node in nodes[:most]],
    )


def head_of(top: ModuleNode) -> tuple[str, ...]:
    """The titles of the columns; "" is that of the modules."""
    times: tuple[str, ...] = ("collective time",) if top.took()[0] else ()
    times += ("host time", "self") if top.total_ns else ()
    return "", *(SHORT.get(one, one) for one in phases_of(top)), "bytes", *times, "kinds"


def _cells(node: ModuleNode, top: ModuleNode) -> tuple[str, ...]:
    times: tuple[str, ...] = (took_words(*node.took()),) if top.took()[0] else ()
    if top.total_ns:
        times += (_timing(node.total_ns.total()), _timing(node.self_ns.total()))
    return (
        INDENT * max(0, node.depth) + node.name,
        *(f"{node.count(phase):,}" for phase in phases_of(top)),
        byte_size(node.size() or None),
        *times,
        kinds_words(node),
    )


def took_words(ns: int, exact: bool) -> str:
    """`25.1 ms`, `≤ 25.1 ms`."""
    return f"{'' if exact else '≤ '}{timing(ns)}" if ns else "-"


def _timing(ns: int) -> str:
    return timing(ns) if ns else "-"


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
    top = module_tree(found.modules)
    return tree_document(
        top, level=0, levels=LEVELS, seconds=found.seconds, ranks=list(found.ranks),
        recorded=bool(top.children),
    )  # fmt: skip


def tree_document(
    top: ModuleNode, facts: Callable[[ModuleNode], dict[str, Any]] = lambda _: {}, **about: Any
) -> dict[str, Any]:
    """The root of the tree, with what is known `about` all of it; `facts` adds to each node."""
    return {"schema": "frtop-modules-1", **_node_document(top, facts), **about}


def _node_document(
    node: ModuleNode, facts: Callable[[ModuleNode], dict[str, Any]]
) -> dict[str, Any]:
    """A node with all fields of CommDebugMode's dump: the page needs each of them."""
    return {
        "fqn": node.path or GLOBAL,
        "module_type": "",
        "parameters": [],
        "collectives_forward": _collectives(node, backward=False),
        "collectives_backward": _collectives(node, backward=True),
        "operations_forward": [],
        "operations_backward": [],
        "operations_checkpointing": [],
        **facts(node),
        "part": node.is_part,
        "ranks": node.ranks,
        "own": _sums(node.own),
        "total": _sums(node.total),
        "children": [_node_document(child, facts) for child in node.sorted_children()],
    }


def _collectives(node: ModuleNode, *, backward: bool) -> list[list[Any]]:
    """Kinds with counts, including all below. CommDebugMode has two phases: others are named."""
    return [
        [labelled(kind, phase), one.count]
        for (phase, kind), one in sorted(node.total.items())
        if (phase in _IN_BACKWARD) is backward
    ]


def labelled(name: str, phase: str, more: str = "") -> str:
    """`all_reduce`, `all_reduce (optimizer)`, `aten::add_ (optimizer, 2 calls)`."""
    words = ", ".join(filter(None, (_phase_label(phase), more)))
    return f"{name} ({words})" if words else name


def _phase_label(phase: str) -> str:
    return "" if phase in ("forward", "backward") else PHASES.get(phase, phase)


def _sums(sums: dict[OpKind, ModuleSums]) -> list[dict[str, Any]]:
    return [
        {"phase": phase, "kind": kind, "count": one.count, "bytes": one.bytes,
         **({"ns": one.ns, "exact": one.exact} if one.ns else {})}
        for (phase, kind), one in sorted(sums.items())
    ]  # fmt: skip
