"""The fields of Parquet as which the values of record sets are stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from data_stack.formats.parquet import Field, NestedCodec
from data_stack.formats.parquet.types import arrow_type_of_dtype, describe_type
from data_stack_croissant.record_column import MEDIA

BOUNDING_BOX: Final = "BoundingBox"
SHAPE_OF_BOX: Final = (4,)

#: Python's types of mlcroissant that are stored as others.
_DTYPES: Final[Mapping[str, Any]] = {
    "bytes": str,
    "Timestamp": "datetime64[us]",
    "time": "timedelta64[us]",
    "int": np.int64,
    "float": np.float64,
    BOUNDING_BOX: np.float64,
}


def dtype_of(declared_type: Any, kind: str) -> np.dtype[Any]:
    """Return the dtype of a data type's values, or of the elements of its arrays.

    Args:
        declared_type: mlcroissant's, such as ``int``.
        kind: its name.
    """
    if kind in MEDIA:
        return np.dtype(bytes)
    dtype: np.dtype[Any] = np.dtype(_DTYPES.get(kind, declared_type))
    return dtype


def make_stored_field(
    name: str,
    dtype: np.dtype[Any],
    shape: tuple[int | None, ...],
    depth: int,
    *,
    is_box: bool,
) -> Field:
    """Return the field of Parquet that a column becomes.

    Args:
        name: of the column.
        dtype: of its values, or of the elements of arrays and lists.
        shape: of its values; None for a dimension of any size.
        depth: of nested lists; 0 if no field around this one is repeated.
        is_box: whether its values are bounding boxes, which are lists in nested lists.
    """
    if not depth:
        return Field(name, dtype, shape, nullable=True)
    # A codec for nested lists, as their elements may be missing.
    element: Any = describe_type(arrow_type_of_dtype(dtype))
    n_lists = depth + 1 if is_box else depth
    for _ in range(n_lists):
        element = {"list": element}
    return Field(name, object, (), NestedCodec(element), nullable=True)
