"""Columns of readers of any kind, in batches, and shuffled in a buffer of bounded size."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.stacking import join_columns, stack_values

__all__ = ["columns_of_reader", "in_batches", "nested_columns"]

FlatColumns = dict[Any, npt.NDArray[Any]]


def columns_of_reader(reader: Any, n_rows: int) -> Iterator[FlatColumns]:
    """The rows that a reader gives, as columns, ``n_rows`` (or those of a row group) together.

    Columns of rows are by name, those of n-grams by ``(offset, name)``.
    """
    if reader.batched_output:
        for batch in reader:
            yield _flat(batch)
        return
    rows = iter(reader)
    while some := list(itertools.islice(rows, n_rows)):
        flat = [_flat(row) for row in some]
        yield {key: stack_values([row[key] for row in flat]) for key in flat[0]}


def in_batches(
    chunks: Iterable[FlatColumns], batch_size: int, *, capacity: int = 0, draws: np.random.Generator | None = None
) -> Iterator[FlatColumns]:
    """Columns in batches of ``batch_size`` rows; the last may have fewer.

    Args:
        chunks: columns of any length.
        batch_size: at least 1.
        capacity: so many rows at least are in a buffer, from which each batch is drawn; 0 leaves them in their order. About
            twice as many are held at most, and a chunk.
        draws: of the buffer.
    """
    pool: FlatColumns = {}
    for chunk in chunks:
        pool = {key: join_columns([pool[key], column]) for key, column in chunk.items()} if _n_rows(pool) else dict(chunk)
        n_kept = capacity if draws is not None else 0
        # not until there is enough: what is left is copied each time
        if _n_rows(pool) - n_kept < max(batch_size, n_kept):
            continue
        n_given = (_n_rows(pool) - n_kept) // batch_size * batch_size
        if draws is not None:
            order = draws.permutation(_n_rows(pool))
            pool = {key: column[order] for key, column in pool.items()}
        yield from _cut(pool, n_given, batch_size)
        pool = {key: column[n_given:] for key, column in pool.items()}
    if _n_rows(pool):
        if draws is not None:
            order = draws.permutation(_n_rows(pool))
            pool = {key: column[order] for key, column in pool.items()}
        yield from _cut(pool, _n_rows(pool), batch_size)


def nested_columns(columns: Mapping[Any, Any], steps: tuple[int, ...]) -> dict[Any, Any]:
    """Columns of n-grams, by ``(offset, name)``, as columns by name for each of the offsets; others as they are."""
    if not steps:
        return dict(columns)
    return {step: {name: column for (at, name), column in columns.items() if at == step} for step in steps}


def _cut(pool: FlatColumns, n_rows: int, batch_size: int) -> Iterator[FlatColumns]:
    for start in range(0, n_rows, batch_size):
        # each its own memory, whoever keeps one does not keep them all
        yield {key: column[start : min(start + batch_size, n_rows)].copy() for key, column in pool.items()}


def _flat(row: Any) -> dict[Any, Any]:
    """The values of a named tuple by name, of an n-gram by offset and name."""
    if isinstance(row, Mapping):
        return {(step, name): value for step, part in row.items() for name, value in part._asdict().items()}
    return dict(row._asdict())


def _n_rows(columns: FlatColumns) -> int:
    return len(next(iter(columns.values()))) if columns else 0
