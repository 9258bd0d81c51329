"""The fields of Parquet in which the values of record sets are stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from data_stack.formats.parquet import Field, NestedCodec
from data_stack.formats.parquet.types import arrow_type_of_dtype, describe_type
from data_stack_croissant.record_column import MEDIA

BOUNDING_BOX: Final = "BoundingBox"
SHAPE_OF_BOX: Final = (4,)

#: The dtypes of data types by their names. mlcroissant says ``bytes`` for text. Other types are
#: dtypes themselves.
_DTYPES: Final[Mapping[str, Any]] = {
    "bytes": str,
    "Timestamp": "datetime64[us]",
    "time": "timedelta64[us]",
    "int": np.int64,
    "float": np.float64,
    BOUNDING_BOX: np.float64,
}


def dtype_of(declared_type: Any, kind: str) -> np.dtype[Any]:
    """Return the dtype of the values of a data type, or of the elements of arrays.

    Args:
        declared_type: mlcroissant's type, such as ``int``.
        kind: the name of that type.
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
    """Return the field of Parquet in which a column is stored.

    Args:
        name: name of the column.
        dtype: dtype of the values, or of the elements of arrays and lists.
        shape: shape of the values; None for a dimension of any size.
        depth: depth of nested lists; 0 if no field around the field of the column is repeated.
        is_box: whether the values are bounding boxes, which are stored as lists in nested lists.
    """
    if not depth:
        return Field(name, dtype, shape, nullable=True)
    # A codec for nested lists, as their elements may be missing.
    element: Any = describe_type(arrow_type_of_dtype(dtype))
    n_lists = depth
    if is_box:
        n_lists += 1
    for _ in range(n_lists):
        element = {"list": element}
    return Field(name, object, (), NestedCodec(element), nullable=True)
