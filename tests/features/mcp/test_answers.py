"""What clients may ask of `frtop mcp`, and how much of an answer they get."""

from __future__ import annotations

import json
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frtop_tui.cli import main
from frtop_tui.cli.parser import parse
from frtop_tui.features.mcp.answer import MOST_LETTERS, bounded, error_text, size
from frtop_tui.features.mcp.tools import TOOLS, Connection, connection_words
from frtop_tui.text.json_document import document
from screens.scenes import hung

BY_NAME = {tool.name: tool for tool in TOOLS}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=60,
)


def test_a_small_document_is_answered_as_it_is() -> None:
    frame = hung()
    known = {"verdicts": document(frame)["verdicts"], "job": document(frame)["job"]}
    assert bounded(known) == (known, {})


def test_of_a_large_job_the_culprit_is_answered_and_what_is_omitted_is_counted() -> None:
    known = json.loads(json.dumps(document(hung())))
    (culprit,) = map(str, known["verdicts"][0]["culprits"])
    known["ranks"] = {str(rank): known["ranks"][str(rank % 64)] for rank in range(4096)}
    assert size(known) > 10 * MOST_LETTERS
    cut, omitted = bounded(known)
    assert size(cut) <= MOST_LETTERS
    assert cut["verdicts"] == known["verdicts"]
    assert len(cut["ranks"]) + omitted["ranks"] == len(known["ranks"])
    assert next(iter(cut["ranks"])) == culprit
    assert cut["ranks"][culprit] == known["ranks"][culprit]


def test_a_long_text_says_how_much_of_it_is_missing() -> None:
    cut, omitted = bounded({"notes": ["x" * 50_000, "y"]})
    assert cut["notes"][0] == f"{'x' * 2000}... (48,000 letters omitted)"
    assert cut["notes"][1] == "y"
    assert omitted == {"letters": 48_000}
    assert len(error_text("z" * 9_000)) < 2_100


@settings(max_examples=60)
@given(JSON, st.integers(20, 400))
def test_whatever_a_command_prints_fits_and_is_printable(value: Any, room: int) -> None:
    cut, omitted = bounded({"found": value, "schema": "s"}, room)
    assert size(cut) <= room
    assert json.dumps(cut, ensure_ascii=False).isprintable()
    assert all(count > 0 for count in omitted.values())
    assert omitted or "found" in cut


@pytest.mark.parametrize(
    ("tool", "arguments", "wrong"),
    [
        ("jobs", {"job": "x"}, "unknown field `job`"),
        ("diagnose", {"via": "sh -c reboot"}, "unknown field `via`"),
        ("diagnose", {"paths": ["--via=reboot"]}, "matching regex"),
        ("diagnose", {"paths": ["relative.cap"]}, "matching regex"),
        ("diagnose", {"paths": ["/a"] * 65}, "length <= 64"),
        ("diagnose", {"job": "a\nb"}, "matching regex"),
        ("diagnose", {"job": "x" * 257}, "length <= 256"),
        ("diagnose", {"wait_s": 3600}, "<= 60"),
        ("diagnose", {"wait_s": "10"}, "got `str`"),
        ("stacks", {"ranks": [-1]}, ">= 0"),
        ("stacks", {"rank": 1}, "unknown field `rank`"),
        ("stacks", {"ranks": [1.5]}, "got `float`"),
        ("stacks", {"native": True}, "unknown field `native`"),
        ("statistics", {"by": "memory"}, "Invalid enum value"),
    ],
)
def test_wrong_arguments_are_refused(tool: str, arguments: dict[str, Any], wrong: str) -> None:
    with pytest.raises(msgspec.ValidationError) as refused:
        BY_NAME[tool].command(arguments, Connection())
    assert wrong in str(refused.value)


@settings(max_examples=30)  # a parser takes 20 ms
@given(st.text(min_size=1), st.lists(st.text().map("/".__add__), min_size=1))
def test_no_text_of_a_client_becomes_an_option(name: str, paths: list[str]) -> None:
    for arguments in ({"job": name}, {"paths": paths}):
        try:
            words = BY_NAME["diagnose"].command(arguments, Connection())
        except msgspec.ValidationError:
            continue
        options = parse(words)
        assert (options.connect, options.ssh, options.via) == (["local"], [], "")
        assert options.json
        assert options.job == arguments.get("job")
        assert options.paths == arguments.get("paths", [])
        assert options.paths or options.read_only


def test_every_command_on_a_job_is_read_only_and_on_the_hosts_of_the_server() -> None:
    served = connection_words(parse(["mcp", "--ssh", "node[0-7]", "--via", "rsh {host} sh"]))
    for tool in TOOLS:
        options = parse(tool.command({}, served))
        assert (options.ssh, options.via) == (["node[0-7]"], "rsh {host} sh")
        assert tool.name == "doctor" or options.read_only
    agents = connection_words(parse(["mcp", "--connect", "node0", "node1"]))
    assert parse(BY_NAME["jobs"].command({}, agents)).connect == ["node0", "node1"]
    assert parse(BY_NAME["doctor"].command({}, agents)).ssh == []


def test_schemas_of_arguments_need_no_reference() -> None:
    for tool in TOOLS:
        schema = tool.input_schema
        assert schema["type"] == "object"
        assert schema["additionalProperties"] is False
        assert "$ref" not in json.dumps(schema)


def test_without_the_sdk_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)
    for name in [name for name in sys.modules if name.partition(".")[0] in ("mcp", "mcp_types")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "frtop_tui.features.mcp.server", raising=False)
    monkeypatch.setitem(sys.modules, "mcp", None)
    monkeypatch.setitem(sys.modules, "mcp_types", None)
    assert main(["mcp"]) == 1
    assert "next: pip install 'frtop[mcp]'" in capsys.readouterr().err


def test_a_person_sees_the_entry_for_a_client(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    assert main(["mcp"]) == 2
    assert '"mcpServers": {"frtop"' in capsys.readouterr().err
