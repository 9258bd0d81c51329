"""Serves the tools by the Model Context Protocol, on standard input and output."""

from __future__ import annotations

import asyncio
import base64
from importlib.metadata import version
from typing import Any

from data_stack.agents.background_calls import BackgroundCalls
from data_stack.agents.descriptions import INSTRUCTIONS, TOOLS, Tool
from data_stack.agents.limits import Limits
from data_stack.agents.permissions import Permissions
from data_stack.agents.standard_input import StandardInput
from data_stack.agents.tools import DatasetTools, ToolResult
from data_stack.exception import MissingDependencyError

try:
    from mcp import types
    from mcp.server import Server, ServerRequestContext
    from mcp.server.stdio import stdio_server
except ImportError as error:
    package, _, _ = str(error.name).partition(".")
    raise MissingDependencyError("data-stack mcp", package, "mcp") from error


def serve(tools: DatasetTools, permissions: Permissions, limits: Limits) -> None:
    """Answer the requests of one agent, until it closes standard input.

    Args:
        tools: the tools.
        permissions: what the user allows, which the agent is told.
        limits: the limits of each call.

    Raises:
        BrokenPipeError: the agent reads no answers any more.
    """
    try:
        asyncio.run(_serve(make_server(tools, permissions, limits)))
    except Exception as error:  # noqa: BLE001  # of tasks: a group, raised again below
        raise _first_of_group(error) from None


def _first_of_group(error: Exception) -> Exception:
    """Return the first error in the groups of errors that tasks raise."""
    errors = getattr(error, "exceptions", ())
    while errors:
        error = errors[0]
        errors = getattr(error, "exceptions", ())
    return error


async def _serve(server: Server[Any]) -> None:
    with StandardInput.opened() as lines:
        # The package reads nothing but the lines of its argument.
        async with stdio_server(stdin=lines) as (requests, answers):  # type: ignore[arg-type]
            await server.run(requests, answers, server.create_initialization_options())


def make_server(tools: DatasetTools, permissions: Permissions, limits: Limits) -> Server[Any]:
    """Return a server of the tools; arguments are those of :func:`serve`."""
    calls = BackgroundCalls(tools, limits)
    listed_tools = [_list_tool(tool, permissions) for tool in TOOLS]

    async def list_tools(
        context: ServerRequestContext[Any], parameters: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=listed_tools)

    async def call_tool(
        context: ServerRequestContext[Any], parameters: types.CallToolRequestParams
    ) -> types.CallToolResult:
        result = await calls.call(parameters.name, parameters.arguments or {})
        return _as_mcp(result)

    return Server(
        "data-stack",
        version=version("lazy-data-stack"),
        title="Datasets of data_stack",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _list_tool(tool: Tool, permissions: Permissions) -> types.Tool:
    """Return a tool as the protocol lists it."""
    reads_samples = tool.name in ("sample", "statistics", "diff")
    may_prepare = permissions.prepare and reads_samples
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.schema(),
        annotations=types.ToolAnnotations(
            title=tool.title,
            read_only_hint=not may_prepare,
            destructive_hint=False,
            idempotent_hint=True,
            open_world_hint=permissions.download,
        ),
    )


def _as_mcp(result: ToolResult) -> types.CallToolResult:
    """Return a result as the protocol has it: a text, then the pictures."""
    content: list[types.ContentBlock] = [types.TextContent(type="text", text=result.text)]
    for picture in result.pictures:
        data = base64.b64encode(picture).decode("ascii")
        content.append(types.ImageContent(type="image", data=data, mime_type="image/png"))
    return types.CallToolResult(content=content, is_error=result.is_error)
