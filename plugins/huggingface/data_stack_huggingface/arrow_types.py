"""Finds the types of Arrow that features declare."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from data_stack.exception import ConfigError
from data_stack_huggingface.features import LIST_KINDS

if TYPE_CHECKING:
    import pyarrow as pa

#: Names of types with arguments: ``timestamp[us, tz=UTC]``, ``decimal128(10, 2)``.
_TIMESTAMP: Final = re.compile(r"timestamp\[(s|ms|us|ns)(?:, *tz=([\w/+:-]{1,60}))?\]", re.ASCII)
_DECIMAL: Final = re.compile(r"decimal(128|256)\((\d{1,2}), *(-?\d{1,2})\)", re.ASCII)

#: How deeply features may be nested.
_MAX_DEPTH: Final = 100


def arrow_type_of(feature: Any, depth: int = 0) -> pa.DataType | None:
    """Return the Arrow type of a feature.

    Args:
        feature: the feature, in the form of files.
        depth: how deeply it is nested in the feature of a column.

    Returns:
        The type of plain values, lists and dicts; None if there are others in the feature.

    Raises:
        ConfigError: it is nested too deeply, or the name of a type is unknown.
    """
    import pyarrow as pa

    if depth > _MAX_DEPTH:
        raise ConfigError(f"features are nested more than {_MAX_DEPTH} levels deep")
    if isinstance(feature, list) and len(feature) == 1:
        # The short form of a list: [{"_type": "Value", …}].
        feature = {"_type": "List", "feature": feature[0]}
    if not isinstance(feature, Mapping) or not feature:
        return None

    kind = feature.get("_type")
    if kind == "Value":
        return _type_of_name(str(feature.get("dtype")))
    if kind in LIST_KINDS:
        return _list_type_of(feature, depth)
    if isinstance(kind, str):
        return None

    # A dict of features.
    types = {str(name): arrow_type_of(value, depth + 1) for name, value in feature.items()}
    if any(type_of_key is None for type_of_key in types.values()):
        return None
    return pa.struct([pa.field(name, type_of_key) for name, type_of_key in types.items()])


def _list_type_of(feature: Mapping[str, Any], depth: int) -> pa.DataType | None:
    """Return the Arrow type of a feature of lists; None and errors as for :func:`arrow_type_of`."""
    import pyarrow as pa

    kind = feature["_type"]
    element = feature.get("feature")
    is_dict = isinstance(element, Mapping) and "_type" not in element
    if kind == "Sequence" and is_dict:
        return None  # its values are dicts of lists, not lists of dicts
    element_type = arrow_type_of(element, depth + 1)
    if element_type is None:
        return None
    if kind == "LargeList":
        return pa.large_list(element_type)
    length = feature.get("length")
    if isinstance(length, int):
        return pa.list_(element_type, length)
    return pa.list_(element_type)


def _type_of_name(name: str) -> pa.DataType:
    """Return a type by the name that ``datasets`` gives it: Arrow's.

    Raises:
        ConfigError: the name is unknown.
    """
    import pyarrow as pa

    timestamp = _TIMESTAMP.fullmatch(name)
    if timestamp is not None:
        unit, time_zone = timestamp.groups()
        return pa.timestamp(unit, time_zone)

    decimal = _DECIMAL.fullmatch(name)
    try:
        if decimal is not None:
            return _decimal_type(decimal)
        return pa.type_for_alias(name)
    except ValueError as error:
        raise ConfigError(f"unknown type {name!r:.60}") from error


def _decimal_type(match: re.Match[str]) -> pa.DataType:
    """Return a type of decimals by the parts of its name.

    Raises:
        ValueError: the precision is out of Arrow's range.
    """
    import pyarrow as pa

    n_bits, precision, scale = match.groups()
    if n_bits == "128":
        return pa.decimal128(int(precision), int(scale))
    return pa.decimal256(int(precision), int(scale))
