"""Paths into JSON, as documents write them: ``$.a.b[*]['c'][0]``, and ``..name`` once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from data_stack.exception import ConfigError

#: Longer paths, globs and regular expressions of documents are refused.
MAX_PATTERN_LENGTH: Final = 1000

#: A step of a path: ``..name``, ``[*]`` or ``*``, ``[0]``, ``['name']``, ``.name``.
_STEP: Final = re.compile(
    r"""
      (?P<below> \.\. (?P<name_below> [\w@][\w@-]* ))
    | (?P<all> \.?\[\*\] | \.?\* )
    | \.?\[ (?P<index> \d{1,9} ) \]
    | \.?\[ (?P<quote> ['"] ) (?P<quoted> [^'"]+ ) (?P=quote) \]
    | \.? (?P<name> [\w@][\w@-]* )
    """,
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a path.

    Attributes:
        kind: where the step leads. ``name``: to the value of a name in an object. ``index``: to an
            element of a list. ``all``: to all values of an object or list. ``below``: to the values
            of a name at any depth.
        name: the name, in the steps ``name`` and ``below``.
        index: position of the element, in the step ``index``.
    """

    kind: Literal["name", "index", "all", "below"]
    name: str = ""
    index: int = 0


def parse_path(path: str) -> tuple[Step, ...]:
    """Parse a JSONPath.

    Filters, slices and scripts are refused, and so is a second ``..name``. The time to find what a
    path leads to is then in proportion to the size of the file.

    Raises:
        ConfigError: the path has other steps, or is too long.
    """
    text = path.strip().removeprefix("$")
    if len(text) > MAX_PATTERN_LENGTH:
        raise _path_error(path)
    steps: list[Step] = []
    position = 0
    while position < len(text):
        match = _STEP.match(text, position)
        if match is None:
            raise _path_error(path)
        steps.append(_step_of(match))
        position = match.end()
    n_below = sum(step.kind == "below" for step in steps)
    if n_below > 1:
        raise _path_error(path)
    return tuple(steps)


def _path_error(path: str) -> ConfigError:
    return ConfigError(
        f"the JSONPath {path!r:.200}: only names, [*], [0] and one ..name are read, and at most "
        f"{MAX_PATTERN_LENGTH} characters"
    )


def _step_of(match: re.Match[str]) -> Step:
    """Return the step that a match of ``_STEP`` says."""
    if match["below"] is not None:
        return Step("below", name=match["name_below"])
    if match["all"] is not None:
        return Step("all")
    if match["index"] is not None:
        return Step("index", index=int(match["index"]))
    return Step("name", name=match["quoted"] or match["name"])


def find_in_json(value: Any, steps: tuple[Step, ...]) -> list[Any]:
    """Return what a path leads to, in the order of the document.

    Args:
        value: parsed JSON; arrays of numpy count as lists.
        steps: the steps of the path, from :func:`parse_path`.
    """
    values = [value]
    for step in steps:
        values_after_step: list[Any] = []
        for value_before in values:
            values_after_step += _take_step(value_before, step)
        values = values_after_step
    return values


def _take_step(value: Any, step: Step) -> list[Any]:
    """Return the values to which a step leads from one value."""
    if step.kind == "all":
        return _children(value)
    if step.kind == "index":
        is_list = isinstance(value, (list, np.ndarray))
        if is_list and step.index < len(value):
            return [value[step.index]]
        return []
    if step.kind == "name":
        return _values_named(value, step.name)
    # The step is "below".
    values_below: list[Any] = []
    for below in _descend(value):
        values_below += _values_named(below, step.name)
    return values_below


def _values_named(value: Any, name: str) -> list[Any]:
    """Return the value of a name in an object; an empty list if there is none."""
    if isinstance(value, dict) and name in value:
        return [value[name]]
    return []


def _children(value: Any) -> list[Any]:
    """Return the values of an object or list; a list of the value itself for any other value."""
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, (list, np.ndarray)):
        return list(value)
    return [value]


def _descend(value: Any) -> Iterator[Any]:
    """Yield a value and all values below it, each before the values that it contains."""
    waiting = [value]  # no recursion, as documents may be deep
    while waiting:
        next_value = waiting.pop()
        yield next_value
        if isinstance(next_value, (dict, list)):
            waiting.extend(reversed(_children(next_value)))
