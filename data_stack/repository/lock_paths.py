"""The paths of files in the recipes of a lock file: relative to it on disk, absolute in memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from data_stack.codecs.plain_data import canonical_json
from data_stack.dataset.recipes.recipe import TABLE_FILE
from data_stack.exception import ConfigError
from data_stack.util.untrusted_text import parse_json


def relative_to(folder: str, recipe: str) -> str:
    """A recipe whose absolute paths are relative to a folder, with ``/``, unless the two share only the root."""

    def shorten(path: str) -> str:
        try:
            shared = os.path.commonpath([folder, path])
        except ValueError:  # on another drive
            return path
        return path if shared == os.path.dirname(shared) else os.path.relpath(path, folder).replace(os.sep, "/")

    return _with_paths(recipe, shorten)


def absolute_from(folder: str, recipe: str) -> str:
    """A recipe whose relative paths lead from a folder."""
    return _with_paths(recipe, lambda path: os.path.abspath(os.path.join(folder, path)))


def moved(folder: str, places: Mapping[str, str], recipe: str) -> str:
    """A recipe whose files lie elsewhere.

    Args:
        folder: from which relative old places lead.
        places: new files or folders by the old ones.
        recipe: with absolute paths.
    """
    absolute = {os.path.abspath(os.path.join(folder, old)): os.path.abspath(new) for old, new in places.items()}

    def move(path: str) -> str:
        for old, new in absolute.items():
            if path == old or path.startswith(os.path.join(old, "")):
                return new + path[len(old) :]
        return path

    return _with_paths(recipe, move)


def check_places(recipes: Iterable[str], folder: str, places: Mapping[str, str]) -> None:
    """Check that each old place is a file in the recipes, or a folder above one.

    Raises:
        ConfigError: no file in the recipes is there.
    """
    paths = [path for recipe in recipes for path in _paths_in(recipe)]
    for old in places:
        start = os.path.abspath(os.path.join(folder, old))
        if not any(path == start or path.startswith(os.path.join(start, "")) for path in paths):
            raise ConfigError(
                f"no stack of the lock reads {old!r:.200} or a file below it; they read: {', '.join(paths) or 'none'}"
            )


def missing_file_advice(recipe: str) -> str:
    """What to do if files of a recipe are missing; else empty."""
    missing = [path for path in _paths_in(recipe) if not os.path.exists(path)]
    return f". If it lies elsewhere here: `data-stack lock restore --source {missing[0]}=PATH`" if missing else ""


def _paths_in(recipe: str) -> list[str]:
    found: list[str] = []

    def note(path: str) -> str:
        found.append(path)
        return path

    _with_paths(recipe, note)
    return found


def _with_paths(recipe: str, change: Callable[[str], str]) -> str:
    """A recipe with other paths; a damaged one stays as it is, and is an error when its stack is made."""
    try:
        fields: Any = parse_json(recipe)
        for node in fields["nodes"]:
            if node["layer"] == TABLE_FILE:
                node["arguments"]["path"] = change(node["arguments"]["path"])
        return canonical_json(fields)
    except (LookupError, TypeError, ValueError):
        return recipe
