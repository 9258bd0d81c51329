"""The former path of :func:`~data_stack.formats.column_types.column_of_rows`."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from data_stack.codecs.codec import ColumnType
from data_stack.formats import column_types
from data_stack.util.program_lines import warn_deprecated


def column_of_rows(rows: npt.NDArray[Any]) -> ColumnType:
    """Describe an array of values as a column of records; deprecated."""
    warn_deprecated(
        "data_stack.formats.conversion.formats.column_of_rows",
        instead="data_stack.formats.column_types.column_of_rows",
        since="0.2",
        removed_in="1.0",
    )
    return column_types.column_of_rows(rows)
