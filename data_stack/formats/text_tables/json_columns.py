"""The values of each key of JSON lines, as cells of Arrow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from data_stack.formats.text_tables.json_cells import convert_values
from data_stack.formats.text_tables.json_types import JSON, CellType, JsonType, is_null, stored_type


@dataclass(frozen=True)
class KeyCells:
    """The values of a key in a block, as cells of Arrow.

    Attributes:
        cells: the values of the rows that have the key.
        type: the type of the values.
        positions: the positions of those rows; None if all rows have the key.
        line: the number of the line of the first value that is not null; of the first value if all
            are null.
        example: the value on that line, shortened for messages.
    """

    cells: pa.Array
    type: CellType
    positions: npt.NDArray[np.int64] | None
    line: int
    example: str


@dataclass(frozen=True)
class CellBlock:
    """A block, as cells of Arrow.

    Attributes:
        n_rows: the number of rows.
        columns: the cells of each key that occurs.
    """

    n_rows: int
    columns: dict[str, KeyCells]


class PresenceCounts:
    """Counts rows, and the values of each key that are not null.

    Attributes:
        n_rows: the number of rows so far.
        n_present: the number of values of each key.
    """

    n_rows: int
    n_present: Counter[str]

    def __init__(self) -> None:
        self.n_rows = 0
        self.n_present = Counter()

    def watch(self, blocks: Iterable[CellBlock]) -> Iterator[CellBlock]:
        """Yield blocks as they are, and count them."""
        for block in blocks:
            n_present = {}
            for key, cells in block.columns.items():
                n_present[key] = len(cells.cells) - cells.cells.null_count
            self.add(block.n_rows, n_present)
            yield block

    def add(self, n_rows: int, n_present: Mapping[str, int]) -> None:
        """Count some rows, and the values of each key in them."""
        self.n_rows += n_rows
        self.n_present.update(n_present)


def make_table(block: CellBlock, types: Mapping[str, CellType]) -> pa.Table:
    """Return a block as a table with all columns."""
    columns = {}
    for key, type_ in types.items():
        cells = block.columns.get(key)
        if cells is None:
            columns[key] = pa.nulls(block.n_rows, stored_type(type_))
        else:
            columns[key] = spread_cells(cast_cells(cells, type_), cells.positions, block.n_rows)
    return pa.table(columns)


def cast_cells(cells: KeyCells, type_: CellType) -> pa.Array:
    """Return cells of a block by the type of all blocks.

    Raises:
        pyarrow.ArrowException: float64 lacks an integer.
    """
    if cells.type == type_:
        return cells.cells
    if is_null(cells.type):
        return pa.nulls(len(cells.cells), stored_type(type_))
    values = cells.cells.to_pylist()
    if isinstance(type_, JsonType):
        return convert_values(values, JSON)
    return pa.array(values, type_)


def spread_cells(cells: pa.Array, positions: npt.NDArray[np.int64] | None, n_rows: int) -> pa.Array:
    """Return a cell for each row, null where the row has none.

    Args:
        cells: the cells of some rows.
        positions: the position of the row of each cell; None if each row has one.
        n_rows: the number of all rows.
    """
    if positions is None:
        return cells
    cell_of_row = np.full(n_rows, -1, np.int64)
    cell_of_row[positions] = np.arange(len(positions))
    return cells.take(pa.array(cell_of_row, mask=cell_of_row < 0))
