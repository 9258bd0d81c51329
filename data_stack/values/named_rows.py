"""Named tuples with fields known at run time."""

from __future__ import annotations

import collections
import functools
import keyword
import re
from typing import Any


@functools.lru_cache(maxsize=1024)
def row_type(name: str, fields: tuple[str, ...]) -> Any:
    """The class of rows with this name and these fields, cached; rows pickle by name and fields.

    Fields that are not Python names are named by their place: ``_3`` for a field "a b" at place 3; a class is then ``Row``.
    """
    class_name = re.sub(r"\W", "_", name)
    make: Any = collections.namedtuple  # type checkers want to see the names
    made = make(
        class_name if class_name.isidentifier() and not keyword.iskeyword(class_name) else "Row",
        fields,
        rename=True,
    )
    made.__reduce__ = lambda row: (make_row_class, (name, fields, tuple(row)))
    made.__module__ = __name__
    return made


def make_row_class(name: str, fields: tuple[str, ...], values: tuple[Any, ...]) -> Any:
    """A row of :func:`row_type`."""
    return row_type(name, fields)._make(values)
