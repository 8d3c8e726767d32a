"""The report in HTML and Markdown: complete, safe whatever a job is called, and small."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser

import msgspec
import pytest
from msgspec.structs import replace

from files.test_recorded_bytes import SLEEPING
from frtop_probe import wire
from frtop_tui.diagnosis.histories import with_trace
from frtop_tui.diagnosis.model import Edge, Frame, NodeTrace, Trace
from frtop_tui.files.loader import open_paths
from frtop_tui.text import plain as text_report
from frtop_tui.text.html_page import html_page
from frtop_tui.text.incident import incident_of
from frtop_tui.text.markdown import markdown
from frtop_tui.text.wait_drawing import HEIGHT, WIDTH, WaitDrawing, place_waits
from screens.gauge_scenes import measured
from screens.rare_scenes import SCENES as ODD
from screens.scenes import SCENES, hung

ATTACK = "</script></style><img src=x onerror=alert(1)>\x1b]0;owned\x07\x7f\x9b31m\u202e\u2066\"'`*_[a](http://b.c)|<!--"
CLOSED_BY_NOBODY = {"meta", "img", "br", "link", "input"}


class Page(HTMLParser):
    """What a browser finds in a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.open: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in CLOSED_BY_NOBODY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.text += data


def page_of(frame: Frame) -> str:
    return html_page(incident_of(with_trace(frame), "9.9"))


def text_of(frame: Frame) -> str:
    return markdown(incident_of(with_trace(frame), "9.9"))


def hostile(frame: Frame) -> Frame:
    """The frame with an attack in every text of it."""

    def infect(value: object) -> object:
        if isinstance(value, dict):
            return {key: infect(one) for key, one in value.items()}
        if isinstance(value, (list, tuple)):
            return [infect(one) for one in value]
        return f"{value}{ATTACK}" if isinstance(value, str) else value

    plain = msgspec.to_builtins(replace(frame, trace=None))
    keep = {key: plain[key] for key in ("health",)}
    found = infect(plain)
    assert isinstance(found, dict)
    found.update(keep)
    for rank, view in found["ranks"].items():
        view["state"] = plain["ranks"][rank]["state"]
        for number, group in enumerate(view["groups"].values()):
            group[4] = list(plain["ranks"][rank]["groups"].values())[number][4]
    for name in ("verdicts", "hosts", "groups", "coverage"):
        found[name] = plain[name]
    made: Frame = msgspec.convert(found, Frame, strict=False)
    verdicts = tuple(replace(one, headline=one.headline + ATTACK, next=ATTACK, evidence=(ATTACK,),
                             missing=(ATTACK,)) for one in frame.verdicts)  # fmt: skip
    hosts = tuple(replace(one, name=one.name + ATTACK, notes=(ATTACK,)) for one in frame.hosts)
    return replace(made, verdicts=verdicts, hosts=hosts, notes=(ATTACK,))


@pytest.mark.parametrize("scene", [*SCENES.values(), *ODD.values()])
def test_every_frame_has_a_well_formed_page(scene: Callable[[], Frame]) -> None:
    frame = scene()
    page = Page(page_of(frame))
    assert page.open == []
    for verdict in frame.verdicts:
        assert verdict.next in page.text
    assert text_of(frame).startswith("# ")


def test_what_is_out_of_the_ordinary_on_hosts_is_a_note() -> None:
    assert "node3: gpu4: 1,110 of 1,980 MHz since" in text_of(measured(3))
    many = text_of(measured(*range(40), hosts=40))
    assert many.count("gpu4") == 16
    assert "out of the ordinary on more hosts: node16, node17" in many


def test_the_page_loads_and_runs_nothing() -> None:
    page = Page(page_of(hung()))
    assert not page.tags & {"script", "img", "link", "iframe", "object", "image", "use", "a"}
    assert not {name for name in page.attributes if name.startswith(("on", "src", "href", "xlink"))}


def test_hostile_names_are_only_text() -> None:
    evil = hostile(hung())
    page = page_of(evil)
    found = Page(page)
    assert found.open == []
    assert found.tags == Page(page_of(hung())).tags
    assert found.attributes == Page(page_of(hung())).attributes
    assert "<img" not in page
    assert all(line.isprintable() for line in page.split("\n"))
    assert "<img src=x onerror=alert(1)>" in found.text  # as what it is


def test_hostile_names_are_only_text_in_markdown() -> None:
    text = text_of(hostile(hung()))
    fenced = False
    for line in text.splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced:
            assert "<" not in line
            assert not re.search(r"(?<!\\)\]\(", line)
    assert all(line.isprintable() for line in text.split("\n"))
    assert not fenced


def test_markup_is_escaped_in_markdown_and_names_of_ops_stay_as_they_are() -> None:
    text = text_of(replace(hung(), notes=("all_reduce in __init__", "*a* [b] _c_")))
    assert "- all_reduce in \\_\\_init\\_\\_\n" in text
    assert "- \\*a\\* \\[b\\] \\_c\\_\n" in text


def test_verdict_and_next_step_come_first() -> None:
    text = Page(page_of(hung())).text
    order = [text.index(said) for said in (
        "rank 37 (node4) has not entered", "Next: check the mount", "Who waits for whom", "Ranks",
        "Stacks", "What was not seen", "Clocks of hosts")]  # fmt: skip
    assert order == sorted(order)


def test_the_report_says_what_was_not_seen() -> None:
    frame = open_paths([SLEEPING])
    for text in (page_of(frame), text_of(frame)):
        assert "rank 3 did not answer" in text
        assert "not measured" in text  # the clock of its host


def overlaps(graph: WaitDrawing) -> bool:
    boxes = [(one.x, one.y) for one in graph.boxes]
    return any(
        abs(x - other_x) < WIDTH and abs(y - other_y) < HEIGHT
        for index, (x, y) in enumerate(boxes)
        for other_x, other_y in boxes[:index]
    )


def test_a_pipeline_of_64_ranks_is_drawn_without_overlaps() -> None:
    nodes = [
        NodeTrace(
            f"recv from rank {n - 1}",
            str(n),
            overdue=True,
            edges=(Edge(str(n - 1), f"recv from rank {n - 2}"),) if n > 1 else (),
            free="" if n > 1 else "0",
        )
        for n in range(1, 64)
    ]
    graph = place_waits(Trace(graph=tuple(nodes)))
    assert len(graph.boxes) == 64
    assert not overlaps(graph)
    assert all(0 <= one.x < graph.width and 0 <= one.y < graph.height for one in graph.boxes)
    down = [graph.boxes[a.target].y > graph.boxes[a.source].y for a in graph.arrows]
    assert all(down)


def test_alike_waits_share_a_box() -> None:
    sends = [
        NodeTrace(f"send to rank {n + 32}", str(n), overdue=True,
                  edges=(Edge(str(n + 32), "all_reduce #9"),))
        for n in range(31)
    ]  # fmt: skip
    last = NodeTrace("all_reduce #9", "32-62", overdue=True, free="63")
    graph = place_waits(Trace(graph=(*sends, last)))
    assert sorted(one.ranks for one in graph.boxes) == ["0-30", "32-62", "63"]


def test_waits_that_have_nothing_in_common_stand_apart() -> None:
    """An arrow through a box of another wait would say that somebody waits for it."""
    nodes = [NodeTrace(f"op {n}", str(n), overdue=True, free=str(n + 50)) for n in range(7)]
    chain = (
        NodeTrace("first", "20", overdue=True, edges=(Edge("21", "second"),)),
        NodeTrace("second", "21", overdue=True, free="22"),
    )
    graph = place_waits(Trace(graph=(*nodes, *chain)))
    assert not overlaps(graph)
    for arrow in graph.arrows:
        source, target = graph.boxes[arrow.source], graph.boxes[arrow.target]
        assert source.x == target.x
        between = [one for one in graph.boxes if one.x == source.x and source.y < one.y < target.y]
        assert between == []


def test_a_deadlock_is_drawn_with_the_arrow_that_closes_it() -> None:
    one = NodeTrace("a", "0", overdue=True, edges=(Edge("1", "b"),))
    other = NodeTrace("b", "1", overdue=True, edges=(Edge("0", "a"),))
    graph = place_waits(Trace(graph=(one, other)))
    assert sorted(arrow.closes for arrow in graph.arrows) == [False, True]
    assert not overlaps(graph)


def test_a_report_of_an_exception_names_it() -> None:
    frame = hung()
    view = frame.ranks[3]
    ended = wire.ExitInfo(view.status.heartbeat_ns if view.status else 0, exit_code=1)
    raised = wire.UncaughtException("ValueError", "loss is nan", "MainThread", True, 0)
    dead = replace(view, state="dead", exit_info=ended, exception=raised)
    text = text_of(replace(frame, ranks={**frame.ranks, 3: dead}))
    assert "ended with exit status 1; ValueError: loss is nan" in text


def test_notes_of_people_are_in_reports_and_texts() -> None:
    frame = hung()
    notes = ("operator: loss jumped here", "numbers: 3 NaN in the input of all_reduce #4", "c10d")
    ranks = {n: replace(one, notes=notes[: 3 - n]) if n < 2 else one for n, one in
             frame.ranks.items()}  # fmt: skip
    noted = replace(frame, ranks=ranks)
    sections = dict(incident_of(noted, "1").sections)
    for said in ("\n".join(text_report.text(noted)), str(sections["Notes"])):
        assert "ranks 0-1: operator: loss jumped here" in said
        assert "numbers: 3 NaN in the input" in said
        assert "c10d" not in said
