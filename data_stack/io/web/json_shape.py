"""Checks the form of parsed JSON that comes from a stranger."""

from __future__ import annotations

from typing import Any, Final

#: The types of parsed JSON, as messages name them.
_TYPE_NAMES: Final = {
    dict: "an object",
    list: "a list",
    str: "a text",
    int: "an integer",
    float: "a number",
    bool: "true or false",
}


def check_shape(value: Any, shape: Any, place: str = "the answer") -> None:
    """Check the form of parsed JSON, so that code that uses it finds the keys and types it expects.

    ``{"name": str, "rows?": int, "files": [{"url": str}]}`` is the shape of an object with a name,
    perhaps a number of rows, and a list of objects that each have a URL.

    Args:
        value: parsed JSON.
        shape: one of

            - a type, for a value of this type;
            - a list of one shape, for a list of any length;
            - a tuple of shapes, of which one must fit;
            - a dict of shapes by key, for an object with these keys and perhaps others. A key that
              ends with ``?`` may be missing or null.
        place: names the value in errors.

    Raises:
        ValueError: the value has another shape; the message says where.
    """
    if isinstance(shape, tuple):
        _check_one_of(value, shape, place)
        return

    expected_type = shape if isinstance(shape, type) else type(shape)
    has_type = isinstance(value, expected_type)
    if isinstance(value, bool) and expected_type in (int, float):
        has_type = False  # in Python a bool is an int, in JSON it is not
    if not has_type:
        actual_name = _TYPE_NAMES.get(type(value), "null")
        raise ValueError(f"{place} is {actual_name}, expected {_TYPE_NAMES[expected_type]}")

    if isinstance(shape, list):
        for position, entry in enumerate(value):
            check_shape(entry, shape[0], f"entry {position} of {place}")
    elif isinstance(shape, dict):
        for key, inner_shape in shape.items():
            _check_entry(value, key, inner_shape, place)


def _check_one_of(value: Any, shapes: tuple[Any, ...], place: str) -> None:
    """Check that a value has one of several shapes; the error tells how the last one differs."""
    for shape in shapes[:-1]:
        try:
            check_shape(value, shape, place)
        except ValueError:
            continue
        return
    check_shape(value, shapes[-1], place)


def _check_entry(parent: dict[str, Any], key: str, shape: Any, place: str) -> None:
    """Check an entry of an object; ``key`` may end with ``?``."""
    name = key.removesuffix("?")
    is_optional = key.endswith("?")
    if is_optional and parent.get(name) is None:
        return
    if name not in parent:
        raise ValueError(f"{place} has no {name!r}")
    check_shape(parent[name], shape, f"{name!r} of {place}")
