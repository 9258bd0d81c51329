"""What the fixtures of ``tests/agents`` return: calls of the tools of ``data-stack mcp``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from data_stack.agents.tools import ToolResult

Call: TypeAlias = Callable[..., ToolResult]
"""Calls a tool: its name, and its arguments by keyword."""

MakeCall: TypeAlias = Callable[..., Call]
"""Makes the tools of stores, permissions and limits, and returns what calls them."""


def answer_of(result: ToolResult) -> Any:
    """The facts of an answer that is no error."""
    assert not result.is_error, result.text
    return json.loads(result.text)["answer"]


def contents_of(folder: Path) -> dict[str, tuple[int, int]]:
    """The size and the time of each file and folder below a folder."""
    contents = {}
    for path in sorted(folder.rglob("*")):
        stat = path.lstat()
        contents[str(path.relative_to(folder))] = (stat.st_size, stat.st_mtime_ns)
    return contents
