"""Named tuples with fields known at run time."""

from __future__ import annotations

import collections
import functools
import keyword
import re
from typing import Any


@functools.lru_cache(maxsize=1024)
def row_type(name: str, fields: tuple[str, ...]) -> Any:
    """Return the class of rows with this name and these fields, cached.

    Rows pickle by name and fields. Fields that are not Python names are named by their place:
    ``_3`` for a field "a b" at place 3. A name that is none becomes ``Row``.
    """
    class_name = re.sub(r"\W", "_", name)
    if not class_name.isidentifier() or keyword.iskeyword(class_name):
        class_name = "Row"
    make_class: Any = collections.namedtuple  # type checkers want to see the names
    row_class = make_class(class_name, fields, rename=True)
    row_class.__reduce__ = lambda row: (make_row_class, (name, fields, tuple(row)))
    row_class.__module__ = __name__
    return row_class


def make_row_class(name: str, fields: tuple[str, ...], values: tuple[Any, ...]) -> Any:
    """Return a row of :func:`row_type`."""
    return row_type(name, fields)._make(values)
