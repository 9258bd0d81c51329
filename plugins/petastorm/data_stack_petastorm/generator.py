"""Random rows of a schema."""

from __future__ import annotations

from typing import Any

import numpy as np

from data_stack_petastorm.unischema import Unischema

#: Elements of dimensions whose size differs from value to value.
LIST_SIZE = 13


def generate_datapoint(schema: Unischema) -> dict[str, Any]:
    """A random row of numbers.

    Args:
        schema: whose fields have types of numpy.

    Returns:
        By name an array of the field's dtype and shape, dimensions of None 13 long; integers anywhere in their range, others in
        ``[0, 1)``.
    """
    row, rng = {}, np.random.default_rng()
    for name, field in schema.fields.items():
        shape, dtype = tuple(LIST_SIZE if size is None else size for size in field.shape), np.dtype(field.numpy_dtype)
        if dtype.kind in "iu":
            limits = np.iinfo(dtype)
            value: Any = rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
        else:
            value = rng.random(shape)
        row[name] = np.array(value, dtype)
    return row
