"""Blocks of Ray Data as columns of data_stack."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from ray.data.block import BlockAccessor

from data_stack.exchange.tables.arrow import from_arrow


def columns_of_block(block: Any) -> dict[str, Any]:
    """Return the columns of a block as arrays of shape ``(n, ...)``, with nulls as None.

    A block without rows has no columns.
    """
    table: pa.Table = BlockAccessor.for_block(block).to_arrow()
    n_rows = len(table)
    if n_rows == 0:
        return {}

    columns: dict[str, Any] = {}
    # Ray's tensors are extension types, which only Ray reads.
    tensor_names = [
        field.name for field in table.schema if isinstance(field.type, pa.BaseExtensionType)
    ]
    for name in tensor_names:
        columns[name] = BlockAccessor.for_block(table.select([name])).to_numpy(name)

    other_columns = table.drop_columns(tensor_names)
    if other_columns.column_names:
        samples: Any = from_arrow(other_columns)
        columns.update(samples.read_batch(np.arange(n_rows)))
    return {name: columns[name] for name in table.column_names}
