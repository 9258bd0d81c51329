"""Makes histograms of a table, in steps so that a page never waits for all samples."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from data_stack.browse.conditions import MAX_VALUES, Condition, Mask
from data_stack.browse.plain_values import Values, plain
from data_stack.browse.table import BrowsedColumn, Table
from data_stack.exception import ConfigError
from data_stack.show.markup import readable
from data_stack.values.missing import missing_in
from data_stack.values.stacked_values import objects

#: A histogram has at most this many bars of values; the most frequent ones.
_MAX_BARS: Final = MAX_VALUES

#: Numbers of more different values have bars of ranges.
_N_RANGES: Final = 30


class _ReadBlock(NamedTuple):
    """A block of a table.

    Attributes:
        n_rows: number of rows.
        values: the values of each column that was read, by the number of the column.
    """

    n_rows: int
    values: dict[int, Values]


def histograms(
    table: Table, columns: Sequence[int], conditions: Sequence[Condition], seconds: float
) -> dict[str, Any]:
    """Return bars of some columns as plain JSON data.

    Each bar counts all rows, and the rows that fulfil the conditions on other columns; it has the
    condition that selects its rows. Reads for about ``seconds`` into the table's cache, so that
    another call continues.
    """
    tested_columns: set[int] = set()
    for condition in conditions:
        tested_columns.update(condition.columns(table))
    # This list is read again for each block: a column that is removed below is not read any more.
    columns_to_read = sorted({*columns, *tested_columns})

    n_read = 0
    values_of_column: defaultdict[int, list[Values]] = defaultdict(list)
    masks_of_column: defaultdict[int, list[Mask]] = defaultdict(list)
    for block in _read_sampled_blocks(table, columns_to_read, seconds):
        n_read += block.n_rows
        fulfilled = [condition.mask(table, block.values) for condition in conditions]
        for number in columns:
            if number not in block.values:
                continue
            values = block.values[number]
            mask = np.ones(block.n_rows, dtype=bool)
            for condition, mask_of_condition in zip(conditions, fulfilled, strict=True):
                if condition.column != number:
                    mask = mask & mask_of_condition
            values_of_column[number].append(values)
            masks_of_column[number].append(mask)

            # Texts are the slowest to read. Those that are all different will have no bars.
            can_skip = not table.is_small and number not in tested_columns
            if can_skip and _are_distinct_texts(values):
                columns_to_read.remove(number)

    bars = {}
    # np.concatenate needs at least one array.
    no_rows = np.zeros(0, dtype=bool)
    for number in columns:
        group = np.concatenate([no_rows, *masks_of_column[number]])
        values = _join(values_of_column[number])
        bars[number] = _histogram(table.columns[number], number, values, [group])
    return {"columns": bars, "n_read": n_read, "is_complete": n_read == table.n_sampled}


def compare(tables: Sequence[Table], name: str, seconds: float) -> dict[str, Any]:
    """Return bars of the column ``name`` over all tables, with the rows of each table.

    See :func:`histograms`.

    Raises:
        ConfigError: no table has a column of this name with plain values.
    """
    number_in_table: dict[int, int] = {}
    for table_number, table in enumerate(tables):
        number = _find_column(table, name)
        if number is not None:
            number_in_table[table_number] = number
    if not number_in_table:
        raise ConfigError(f"no split has a column {name!r:.60} of plain values")

    pieces: list[Values] = []
    n_read = [0] * len(tables)
    for table_number, number in number_in_table.items():
        seconds_of_table = seconds / len(tables)
        for block in _read_sampled_blocks(tables[table_number], [number], seconds_of_table):
            pieces.append(block.values[number])
            n_read[table_number] += block.n_rows

    table_of_row = np.repeat(np.arange(len(tables)), n_read)
    groups = [table_of_row == table_number for table_number in range(len(tables))]
    # The first table that has the column says how it is shown.
    table_number, number = next(iter(number_in_table.items()))
    column = tables[table_number].columns[number]
    histogram = _histogram(column, number, _join(pieces), groups)
    is_complete = all(n_read[table] == tables[table].n_sampled for table in number_in_table)
    return {**histogram, "name": name, "n_read": n_read, "is_complete": is_complete}


def _find_column(table: Table, name: str) -> int | None:
    """Return the number of the first column of this name with plain values."""
    for number in table.plain_columns():
        if table.columns[number].name == name:
            return number
    return None


def _read_sampled_blocks(table: Table, columns: list[int], seconds: float) -> Iterator[_ReadBlock]:
    """Read representative blocks: at least one, and as many as can be read in time.

    Args:
        table: the table.
        columns: the numbers of the columns to read. The caller may remove some between two blocks.
        seconds: the time.
    """
    deadline = time.perf_counter() + seconds
    for start, stop in table.sampled_blocks():
        yield _ReadBlock(stop - start, table.read(columns, start, stop))
        if time.perf_counter() > deadline:
            break


def _join(pieces: Sequence[Values]) -> Values:
    """Join the blocks of one column, whose dtypes may differ."""
    if not pieces:
        return np.zeros(0)
    if len({piece.dtype for piece in pieces}) == 1:
        return np.concatenate(pieces)
    values: list[Any] = []
    for piece in pieces:
        for value, is_missing in zip(piece, missing_in(piece), strict=True):
            values.append(None if is_missing else value)
    return plain(objects(values))


# ---------------------------------------------------------------------- bars


def _histogram(
    column: BrowsedColumn, number: int, values: Values, groups: Sequence[Mask]
) -> dict[str, Any]:
    """Return bars of values or ranges, each with all rows and the rows of each group.

    Args:
        column: the column of the values.
        number: the number of the column, which the conditions of the bars name.
        values: shape ``(n,)``.
        groups: whether each row belongs to the group, shape ``(n,)`` each.
    """
    is_missing = missing_in(values)
    n_missing = int(np.count_nonzero(is_missing))
    present = values[~is_missing]
    groups_of_present = [group[~is_missing] for group in groups]
    distinct, distinct_of_row = _number_values(present)

    kind = "values"
    if _are_distinct_texts(present):
        kind = "texts"
    elif _has_ranges(column, values, n_distinct=len(distinct)):
        kind = "ranges"
    facts = {"kind": kind, "n_distinct": len(distinct), "n_missing": n_missing}
    if kind == "texts":
        return {**facts, "bars": []}

    if kind == "ranges":
        bars = _bars_of_ranges(number, present, groups_of_present)
    else:
        totals, counts = _count(distinct_of_row, len(distinct), groups_of_present)
        bars = _bars_of_values(column, number, distinct, totals, counts)
    if n_missing:
        counts_of_missing = [np.count_nonzero(group & is_missing) for group in groups]
        condition = {"column": number, "values": [None]}
        bars.append(_bar("missing", n_missing, counts_of_missing, condition))
    return {**facts, "bars": bars}


def _has_ranges(column: BrowsedColumn, values: Values, *, n_distinct: int) -> bool:
    """Return whether the bars are ranges: of many numbers or times that are not classes."""
    return values.dtype != object and not column.class_names and n_distinct > _N_RANGES


def _are_distinct_texts(values: Values) -> bool:
    """Return whether the values are texts of which nearly every one is different."""
    if values.dtype != object:
        return False
    return len(set(values.tolist())) > max(_N_RANGES, len(values) // 2)


def _number_values(values: Values) -> tuple[Values, npt.NDArray[np.intp]]:
    """Return the distinct values, and the index of each value among them.

    Texts are in the order of their first occurrence, other values are sorted.
    """
    if values.dtype != object:
        return np.unique(values, return_inverse=True)
    index_of_text: dict[str, int] = {}
    indices = [index_of_text.setdefault(text, len(index_of_text)) for text in values.tolist()]
    distinct = np.empty(len(index_of_text), dtype=object)
    distinct[:] = list(index_of_text)
    return distinct, np.array(indices, dtype=np.intp)


def _count(
    bar_of_row: npt.NDArray[np.intp], n_bars: int, groups: Sequence[Mask]
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return the rows of each bar, shape ``(n_bars,)``, and by group, ``(n_groups, n_bars)``."""
    totals = np.bincount(bar_of_row, minlength=n_bars)
    counts = [np.bincount(bar_of_row[group], minlength=n_bars) for group in groups]
    return totals, np.array(counts)


def _bars_of_values(
    column: BrowsedColumn, number: int, distinct: Values, totals: Any, counts: Any
) -> list[dict[str, Any]]:
    """Return bars of the most frequent values: texts by their counts, other values in order."""
    order = np.argsort(-totals, kind="stable")[:_MAX_BARS]
    if distinct.dtype != object:
        order = np.sort(order)
    bars = []
    for index in order.tolist():
        value = distinct[index]
        condition = {"column": number, "values": [_exact_text(value)]}
        bars.append(_bar(_label(column, value), totals[index], counts[:, index], condition))
    return bars


def _bars_of_ranges(number: int, values: Values, groups: Sequence[Mask]) -> list[dict[str, Any]]:
    """Return bars of ranges of equal width; infinities count in the outermost ranges."""
    numbers = values.astype(np.int64) if values.dtype.kind == "M" else values
    edges = _edges_of_ranges(numbers)
    n_ranges = len(edges) - 1
    range_of_row = np.searchsorted(edges[:-1], numbers, side="right") - 1
    range_of_row = np.clip(range_of_row, 0, n_ranges - 1)
    totals, counts = _count(range_of_row, n_ranges, groups)

    bars = []
    for index, (low, high) in enumerate(itertools.pairwise(edges.astype(values.dtype))):
        # The outermost ranges are open, for infinities.
        condition: dict[str, Any] = {"column": number}
        if index > 0:
            condition["low"] = _exact_text(low)
        if index < n_ranges - 1:
            condition["high"] = _exact_text(high)
        label = f"{_short_text(low)} – {_short_text(high)}"
        bars.append(_bar(label, totals[index], counts[:, index], condition))
    return bars


def _edges_of_ranges(numbers: Values) -> npt.NDArray[Any]:
    """Return the edges of ranges from the smallest to the largest finite number.

    Those of integers are integers, and so may be fewer.
    """
    finite_numbers = numbers[np.isfinite(numbers)]
    low = finite_numbers.min()
    high = finite_numbers.max()
    shares = np.arange(_N_RANGES + 1) / _N_RANGES
    # A difference of low and high could overflow.
    edges = low * (1 - shares) + high * shares
    if numbers.dtype.kind in "iu":
        whole_edges = np.clip(np.ceil(edges), low, high)
        edges = np.unique(whole_edges.astype(numbers.dtype))
    return np.asarray(edges)


def _bar(label: str, total: Any, counts: Any, condition: dict[str, Any]) -> dict[str, Any]:
    return {
        "label": label,
        "count": int(total),
        "counts": [int(count) for count in counts],
        "where": condition,
    }


def _label(column: BrowsedColumn, value: Any) -> str:
    if isinstance(value, np.integer) and 0 <= value < len(column.class_names):
        return column.class_names[int(value)]
    return _short_text(value)


def _exact_text(value: Any) -> str:
    """Return a value as the text in a condition."""
    if isinstance(value, (float, np.floating)):
        return repr(float(value))
    return str(value)


def _short_text(value: Any) -> str:
    """Return a value as the text below a bar; times to the second, without midnight."""
    if isinstance(value, (float, np.floating)):
        return f"{float(value):.4g}"
    if isinstance(value, np.datetime64):
        to_the_second = str(value)[:19].replace("T", " ")
        return readable(to_the_second.removesuffix(" 00:00:00"))
    return readable(value)
