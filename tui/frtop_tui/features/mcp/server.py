"""The server: tools, answers and errors, as the SDK speaks them on standard input and output."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from importlib import metadata
from typing import Any, Final

import anyio
import mcp_types as types
import msgspec
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from frtop_tui.cli.parser import parser
from frtop_tui.features.mcp.answer import NOTICE, bounded
from frtop_tui.features.mcp.child import Commands, NoAnswerError
from frtop_tui.features.mcp.tools import TOOLS, Connection, McpTool, shown

INSTRUCTIONS: Final = f"""frtop shows why a distributed PyTorch job hangs or is slow.

Order: jobs, then diagnose; stacks of the culprits; explain if the verdict surprises; statistics if
the job is slow; doctor if jobs or evidence are missing. All of it only reads: no rank stops, and
nothing is changed.

Report the verdict's headline, confidence, evidence and what is missing. `omitted` in an answer says
how many items of a place were left out; the command in `command` prints them all.

{NOTICE}
"""
OUTPUT_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "command": {"type": "string", "description": "prints the whole document"},
        "exit_status": {"type": "integer"},
        "notice": {"type": "string"},
        "omitted": {
            "type": "object",
            "additionalProperties": {"type": "integer"},
            "description": "how many items were left out at each place; empty: the document is"
            " complete",
        },
        "document": {
            "type": ["object", "null"],
            "description": "what the command prints; `schema` in it names its version, and"
            " `frtop schema` prints that",
        },
    },
    "required": ["command", "exit_status", "notice", "omitted", "document"],
}


def serve(connection: Connection) -> None:
    """Serves one client until the input ends.

    Raises:
        BrokenPipeError: the client has left without that.
    """
    # A thread waits for input, and an exception would have to wait for it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        anyio.run(_serve, connection)
    except Exception as error:
        for left in _broken_pipes(error):
            raise left from None
        raise


def _broken_pipes(error: BaseException) -> Iterator[BrokenPipeError]:
    """In groups, which Python 3.10 does not have itself."""
    if isinstance(error, BrokenPipeError):
        yield error
    for one in getattr(error, "exceptions", ()):
        yield from _broken_pipes(one)


async def _serve(connection: Connection) -> None:
    server = make_server(connection)
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


def make_server(connection: Connection) -> Server[Any]:
    """The server of tools whose verbs this frtop has."""
    verbs = parser()[1].choices
    tools = {tool.name: tool for tool in TOOLS if tool.verb in verbs}
    commands = Commands()

    async def on_list_tools(_: object, __: object) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_described(tool) for tool in tools.values()])

    async def on_call_tool(_: object, asked: types.CallToolRequestParams) -> types.CallToolResult:
        tool = tools.get(asked.name)
        if tool is None:
            raise MCPError(types.INVALID_PARAMS, f"no such tool; there are {', '.join(tools)}")
        try:
            words = tool.command(asked.arguments or {}, connection)
        except msgspec.ValidationError as error:
            return _failed(f"wrong arguments of {tool.name}: {error}")
        try:
            printed = await commands.run(words)
        except NoAnswerError as error:
            return _failed(f"{error}\n{NOTICE.replace('`document`', 'this')}")
        document = printed.document
        if tool.answered and isinstance(document, dict):
            document = {name: document[name] for name in tool.answered if name in document}
        cut, omitted = bounded(document)
        answer = {
            "command": shown(words),
            "exit_status": printed.exit_status,
            "notice": NOTICE,
            "omitted": omitted,
            "document": cut,
        }
        text = json.dumps(answer, separators=(",", ":"))
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=text)], structured_content=answer
        )

    return Server(
        "frtop",
        version=metadata.version("frtop"),
        instructions=INSTRUCTIONS,
        on_list_tools=on_list_tools,
        on_call_tool=on_call_tool,
    )


def _described(tool: McpTool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        description=f"{tool.about} {NOTICE}",
        input_schema=tool.input_schema,
        output_schema=OUTPUT_SCHEMA,
        annotations=types.ToolAnnotations(
            read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
        ),
    )


def _failed(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=True)
