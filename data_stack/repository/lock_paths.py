"""The paths of files in the recipes of a lock file: relative to it on disk, absolute in memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from data_stack.codecs.plain_data import canonical_json
from data_stack.dataset.recipes.nodes import PLACE, TABLE_FILE
from data_stack.util.untrusted_text import parse_json


def relative_to(folder: str, recipe: str) -> str:
    """A recipe whose absolute paths are relative to a folder, with ``/``, unless the two share only the root."""

    def shorten(path: str) -> str:
        shared = os.path.commonpath([folder, path])
        return (
            path
            if shared == os.path.dirname(shared)
            else os.path.relpath(path, folder).replace(os.sep, "/")
        )

    return _with_paths(recipe, shorten)


def absolute_from(folder: str, recipe: str) -> str:
    """A recipe whose relative paths lead from a folder."""
    return _with_paths(recipe, lambda path: os.path.abspath(os.path.join(folder, path)))


def _with_paths(recipe: str, change: Callable[[str], str]) -> str:
    """A recipe with other paths; a damaged one stays as it is, and is an error when its stack is made."""
    try:
        fields: Any = parse_json(recipe)
        for node in fields["nodes"]:
            if node["layer"] in (PLACE, TABLE_FILE):
                node["arguments"]["path"] = change(node["arguments"]["path"])
        return canonical_json(fields)
    except (LookupError, TypeError, ValueError):
        return recipe
