"""Finds the types of Arrow in which Hugging Face's ``datasets`` stores its features."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa

from data_stack.exception import ConfigError

#: Features whose values are a list of values of another feature.
LIST_KINDS: Final = ("List", "Sequence", "LargeList")

#: Features of files, which are stored as a dict of ``bytes`` and ``path``.
MEDIA_KINDS: Final = ("Image", "Audio", "Video")

#: Features of arrays by the number of their dimensions.
_DIMENSIONS_OF_ARRAYS: Final = {"Array2D": 2, "Array3D": 3, "Array4D": 4, "Array5D": 5}

#: Names of types with arguments: ``timestamp[us, tz=UTC]``, ``decimal128(10, 2)``.
_TIMESTAMP: Final = re.compile(r"timestamp\[(s|ms|us|ns)(?:, *tz=([\w/+:-]{1,60}))?\]", re.ASCII)
_DECIMAL: Final = re.compile(r"decimal(128|256)\((\d{1,2}), *(-?\d{1,2})\)", re.ASCII)

#: How deeply features may be nested.
_MAX_DEPTH: Final = 100

#: Returns the type of a feature that is neither a plain value, nor a list, nor a dict, by the
#: feature and how deeply it is nested; None if it has none.
_TypeOfOther = Callable[[Mapping[str, Any], int], "pa.DataType | None"]


def arrow_type_of(feature: Any) -> pa.DataType | None:
    """Return the Arrow type of a feature of plain values.

    Args:
        feature: the feature, in the form of files.

    Returns:
        The type of plain values, lists and dicts; None if there are others in the feature.

    Raises:
        ConfigError: it is nested too deeply, or the name of a type is unknown.
    """
    return _type_of(feature, 0, _no_type)


def storage_type_of(feature: Any) -> pa.DataType:
    """Return the Arrow type in which ``datasets`` stores the values of a feature.

    Args:
        feature: the feature, in the form of files.

    Raises:
        ConfigError: it is nested too deeply, or a feature or type in it is unknown.
    """
    type_ = _type_of(feature, 0, _storage_type_of_other)
    if type_ is None:
        raise ConfigError(f"unknown feature {feature!r:.80}")
    return type_


def _type_of(feature: Any, depth: int, type_of_other: _TypeOfOther) -> pa.DataType | None:
    """Return the type of a feature; None if it has none."""
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
    if kind in LIST_KINDS and not _is_dict_of_lists(feature):
        return _list_type_of(feature, depth, type_of_other)
    if isinstance(kind, str):
        return type_of_other(feature, depth)

    # A dict of features.
    types = {}
    for name, value in feature.items():
        types[str(name)] = _type_of(value, depth + 1, type_of_other)
    if any(type_of_key is None for type_of_key in types.values()):
        return None
    return pa.struct([pa.field(name, type_of_key) for name, type_of_key in types.items()])


def _is_dict_of_lists(feature: Mapping[str, Any]) -> bool:
    """Return whether the values are dicts of lists: those of a ``Sequence`` of a dict."""
    element = feature.get("feature")
    is_dict = isinstance(element, Mapping) and "_type" not in element
    return feature.get("_type") == "Sequence" and is_dict


def _list_type_of(
    feature: Mapping[str, Any], depth: int, type_of_other: _TypeOfOther
) -> pa.DataType | None:
    """Return the type of a feature of lists; None if its elements have none."""
    element_type = _type_of(feature.get("feature"), depth + 1, type_of_other)
    if element_type is None:
        return None
    if feature["_type"] == "LargeList":
        return pa.large_list(element_type)
    length = feature.get("length")
    if isinstance(length, int) and length >= 0:
        return pa.list_(element_type, length)
    return pa.list_(element_type)


def _no_type(feature: Mapping[str, Any], depth: int) -> None:
    return None


def _storage_type_of_other(feature: Mapping[str, Any], depth: int) -> pa.DataType:
    """Return the type in which a feature is stored that does not hold plain values.

    Raises:
        ConfigError: the feature is unknown.
    """
    kind = feature["_type"]
    if kind == "ClassLabel":
        return pa.int64()
    if kind in MEDIA_KINDS:
        return pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    if kind in _DIMENSIONS_OF_ARRAYS:
        type_ = _type_of_name(str(feature.get("dtype")))
        for _ in range(_DIMENSIONS_OF_ARRAYS[kind]):
            type_ = pa.list_(type_)
        return type_
    if kind == "Translation":
        languages = feature.get("languages") or ()
        return pa.struct([(str(language), pa.string()) for language in sorted(languages)])
    if kind == "TranslationVariableLanguages":
        texts = pa.list_(pa.string())
        return pa.struct([("language", texts), ("translation", texts)])
    if kind == "Sequence":
        fields = []
        for name, value in feature["feature"].items():
            as_list = {**feature, "_type": "List", "feature": value}
            list_type = _type_of(as_list, depth + 1, _storage_type_of_other)
            if list_type is None:
                raise ConfigError(f"unknown feature {value!r:.80}")
            fields.append((str(name), list_type))
        return pa.struct(fields)
    raise ConfigError(f"unknown feature {kind!r:.60}")


def _type_of_name(name: str) -> pa.DataType:
    """Return a type by the name that ``datasets`` gives it: Arrow's.

    Raises:
        ConfigError: the name is unknown.
    """
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
    n_bits, precision, scale = match.groups()
    if n_bits == "128":
        return pa.decimal128(int(precision), int(scale))
    return pa.decimal256(int(precision), int(scale))
