"""Chooses the number of rows that a reader of rows reads together, a chunk."""

from __future__ import annotations

import math

import numpy as np

from data_stack.formats.parquet import Field, Schema

#: A chunk has about this many bytes.
_CHUNK_BYTES = 4 << 20

#: A chunk of small rows has no more rows than this, so that the first row comes soon.
_MAX_ROWS = 512

#: Estimate of the length of an axis whose length differs from row to row.
_USUAL_SIZE = 64

#: Estimate of the bytes of a text or another object.
_OBJECT_BYTES = 16

#: Any number or time counts at least this many bytes.
_MIN_VALUE_BYTES = 8


def choose_chunk_size(fields: Schema, n_rows_per_sample: int) -> int:
    """Return the number of rows (or n-grams) of a chunk, at least 1.

    Args:
        fields: the fields of a row.
        n_rows_per_sample: 1 for rows; the number of rows of an n-gram.
    """
    row_bytes = sum(_estimate_bytes(field) for field in fields)
    sample_bytes = max(1, row_bytes * n_rows_per_sample)
    n_samples = max(1, _CHUNK_BYTES // sample_bytes)
    return min(n_samples, _MAX_ROWS)


def _estimate_bytes(field: Field) -> int:
    """Return about how many bytes a value of a field takes."""
    if isinstance(field.dtype, np.dtype):
        item_bytes = max(field.dtype.itemsize, _MIN_VALUE_BYTES)
    else:
        item_bytes = _OBJECT_BYTES
    sizes = [_USUAL_SIZE if size is None else size for size in field.shape]
    return item_bytes * math.prod(sizes)
