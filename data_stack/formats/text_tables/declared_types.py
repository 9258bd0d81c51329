"""The types that ``dtypes=`` declares for columns of text tables."""

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
from data_stack.formats.text_tables.json_table import JSON, CellType


def types_of(dtypes: Mapping[str, Any] | None) -> dict[str, pa.DataType]:
    """The types of columns with declared dtypes.

    Args:
        dtypes: by column: a dtype of numpy; a name as of Parquet fields; a type of Arrow, or its plain data in a recipe.

    Raises:
        ConfigError: there is no such dtype.
    """
    types: dict[str, pa.DataType] = {}
    for name, dtype in (dtypes or {}).items():
        if isinstance(dtype, (pa.DataType, Mapping)):  # of lists and objects, as in a recipe
            types[name] = type_described(dtype) if isinstance(dtype, Mapping) else dtype
            continue
        try:
            types[name] = arrow_type_of_dtype(check_dtype(dtype))
        except ConfigError:
            types[name] = arrow_type_named(dtype)
    return types


def types_of_json(dtypes: Mapping[str, Any] | None) -> dict[str, CellType]:
    """The types of keys of JSON lines with declared dtypes, which may be ``"json"``; otherwise as :func:`types_of`."""
    types: dict[str, CellType] = {}
    for name, dtype in (dtypes or {}).items():
        is_json = isinstance(dtype, str) and dtype == str(JSON)
        types[name] = JSON if is_json else types_of({name: dtype})[name]
    return types
