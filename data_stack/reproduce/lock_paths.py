"""Makes the paths in the recipes of a lock file relative on disk, absolute in memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from data_stack.codecs.plain_data import canonical_json
from data_stack.dataset.recipes.nodes import PLACE, TABLE_FILE
from data_stack.util.untrusted_text import parse_json


def relative_to(folder: str, recipe: str) -> str:
    """Return a recipe whose absolute paths are relative to a folder, with ``/``.

    A path that shares only the root with the folder stays absolute: such a file does not move with
    the lock file.
    """

    def shorten(path: str) -> str:
        shared = os.path.commonpath([folder, path])
        is_root = shared == os.path.dirname(shared)
        if is_root:
            return path
        return os.path.relpath(path, folder).replace(os.sep, "/")

    return _change_paths(recipe, shorten)


def absolute_from(folder: str, recipe: str) -> str:
    """Return a recipe whose relative paths lead from a folder."""

    def lengthen(path: str) -> str:
        return os.path.abspath(os.path.join(folder, path))

    return _change_paths(recipe, lengthen)


def _change_paths(recipe: str, change: Callable[[str], str]) -> str:
    """Return a recipe with other paths.

    A damaged recipe stays as it is, and is an error when its stack is made.
    """
    try:
        fields: Any = parse_json(recipe)
        for node in fields["nodes"]:
            if node["layer"] in (PLACE, TABLE_FILE):
                arguments = node["arguments"]
                arguments["path"] = change(arguments["path"])
        return canonical_json(fields)
    except (LookupError, TypeError, ValueError):
        return recipe
