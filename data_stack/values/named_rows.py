"""Named tuples whose fields are known at run time only, and which pickle nevertheless."""

from __future__ import annotations

import collections
import functools
import keyword
import re
from typing import Any


@functools.lru_cache(maxsize=1024)
def row_type(name: str, fields: tuple[str, ...]) -> Any:
    """Return the class of rows with this name and these fields, always the same one.

    Fields that are not names of Python are named by their position: ``_3`` for a field "a b" at
    position 3. A class name that is not a name of Python becomes ``Row``.

    Args:
        name: the name of the class.
        fields: the names of the fields.
    """
    class_name = re.sub(r"\W", "_", name)
    if not class_name.isidentifier() or keyword.iskeyword(class_name):
        class_name = "Row"
    make_class: Any = collections.namedtuple  # type checkers want to see the names
    row_class = make_class(class_name, fields, rename=True)

    # pickle looks a class up by its name in a module, where this class is not. So a row is pickled
    # as the call that makes it.
    def reduce_row(row: Any) -> tuple[Any, ...]:
        return make_row_class, (name, fields, tuple(row))

    row_class.__reduce__ = reduce_row
    row_class.__module__ = __name__
    return row_class


def make_row_class(name: str, fields: tuple[str, ...], values: tuple[Any, ...]) -> Any:
    """Return a row, not a class: the values in the class of :func:`row_type`.

    Programs and pickles know it by this name.
    """
    return row_type(name, fields)._make(values)
