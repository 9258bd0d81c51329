"""Returns the types that ``dtypes=`` declares for columns of text tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from data_stack.exception import ConfigError
from data_stack.formats.parquet.types import (
    arrow_type_named,
    arrow_type_of_dtype,
    check_dtype,
    type_described,
)
from data_stack.formats.text_tables.json_types import JSON, CellType


def types_of(dtypes: Mapping[str, Any] | None) -> dict[str, pa.DataType]:
    """Return the types of columns with declared dtypes.

    Args:
        dtypes: the dtype of each column by its name. It is a dtype of numpy; the name of a type of
            Parquet; a type of Arrow; or the plain data that describes such a type in a recipe.

    Raises:
        ConfigError: there is no such dtype.
    """
    if dtypes is None:
        return {}
    return {name: _type_of(dtype) for name, dtype in dtypes.items()}


def types_of_json(dtypes: Mapping[str, Any] | None) -> dict[str, CellType]:
    """Return the types of keys of JSON lines with declared dtypes.

    Args:
        dtypes: the dtype of each key: ``"json"``, or a dtype as for :func:`types_of`.

    Raises:
        ConfigError: there is no such dtype.
    """
    types: dict[str, CellType] = {}
    for name, dtype in (dtypes or {}).items():
        is_json = isinstance(dtype, str) and dtype == str(JSON)
        types[name] = JSON if is_json else _type_of(dtype)
    return types


def _type_of(dtype: Any) -> pa.DataType:
    """Return the type that a dtype declares."""
    if isinstance(dtype, pa.DataType):
        return dtype
    # Recipes describe types of lists and objects in this way.
    if isinstance(dtype, Mapping):
        return type_described(dtype)
    try:
        return arrow_type_of_dtype(check_dtype(dtype))
    except ConfigError:
        # It is no dtype of numpy; the name of a Parquet type is the last possibility.
        return arrow_type_named(dtype)
