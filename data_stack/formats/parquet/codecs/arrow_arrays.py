"""Makes Arrow arrays of encoded cells, and names the row of a cell that does not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from data_stack.formats.parquet.columns import CellError

#: Errors of pyarrow and Python for a value that does not fit a type.
UNSUITABLE = (pa.ArrowException, TypeError, ValueError, OverflowError, ArithmeticError)


def array_of_cells(cells: list[Any], type_: pa.DataType) -> pa.Array:
    """Convert encoded cells by ``pyarrow.array``.

    Raises:
        CellError: it refuses one of them.
    """
    try:
        return pa.array(cells, type_)
    except UNSUITABLE as error:
        for row, cell in enumerate(cells):  # pyarrow does not name the row
            try:
                pa.array([cell], type_)
            except UNSUITABLE as error_of_cell:
                raise CellError(row, f"{error_of_cell!s:.300}") from error_of_cell
        raise CellError(0, f"all values together: {error!s:.300}") from error


def refuse_nulls(cells: pa.Array, why: str) -> None:
    """Check that no cell is null; ``why`` says for the message why none may be.

    Raises:
        CellError: a cell is null.
    """
    if cells.null_count:
        row = int(np.flatnonzero(np.asarray(cells.is_null()))[0])
        raise CellError(row, f"it is null, but {why}")
