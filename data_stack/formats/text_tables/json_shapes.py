"""Types of Arrow that JSON values of different keys have, to check values fast."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

#: The maximum number of keys at all places of a type.
_MAX_KEYS: Final = 256

#: The number of values that a type is found from. Values with other keys are found later, as they
#: do not fit the type.
_MAX_VALUES: Final = 10_000


def shape_of(values: list[Any]) -> pa.DataType | None:
    """Return a type of Arrow for lists or objects: a struct has the keys of all objects.

    The values are not kept as this type, which has no place for the difference between a missing
    key and null. But pyarrow checks by the type, fast, whether later values are lists or objects
    of the same kinds of values.

    Args:
        values: the values; None for null.

    Returns:
        None if there is no such type, or it has too many keys.
    """
    chosen_values = values[:_MAX_VALUES]
    # An array has a cell for each key of each value, so its keys are counted before.
    keys: set[tuple[str, ...]] = set()
    for value in chosen_values:
        _add_keys(keys, (), value)
        if len(keys) > _MAX_KEYS:
            return None
    try:
        type_ = pa.array(chosen_values).type
    except MemoryError:
        raise
    except (pa.ArrowException, TypeError, ValueError, LookupError, OverflowError):
        return None
    return _usable(type_)


def join_shapes(first: pa.DataType | None, second: pa.DataType | None) -> pa.DataType | None:
    """Return a type for the values of two types; None if there is none.

    Args:
        first: a type that :func:`shape_of` returned, or null.
        second: likewise.
    """
    if first is None or second is None:
        return None
    if first == second:
        return first
    try:
        schemas = [pa.schema([("value", first)]), pa.schema([("value", second)])]
        joined = pa.unify_schemas(schemas, promote_options="permissive")
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        return None
    return _usable(joined.field("value").type)


def keys_in(type_: pa.DataType) -> Iterator[str]:
    """Yield the keys of all structs within a type, those of each place."""
    if pa.types.is_list(type_):
        yield from keys_in(type_.value_type)
    elif pa.types.is_struct(type_):
        for field in type_:
            yield field.name
            yield from keys_in(field.type)


def _add_keys(keys: set[tuple[str, ...]], place: tuple[str, ...], value: Any) -> None:
    """Add the keys within a value, each with the keys of the objects around it.

    Args:
        keys: the keys.
        place: the keys of the objects around the value.
        value: the value.
    """
    if isinstance(value, dict):
        for name, member in value.items():
            keys.add((*place, name))
            _add_keys(keys, (*place, name), member)
    elif isinstance(value, list):
        for member in value:
            _add_keys(keys, place, member)


def _usable(type_: pa.DataType) -> pa.DataType | None:
    """Return a type by which pyarrow can check values; None if it has too many keys, or none."""
    is_nested = pa.types.is_list(type_) or pa.types.is_struct(type_)
    if not (is_nested or pa.types.is_null(type_)):
        return None
    if sum(1 for _ in keys_in(type_)) > _MAX_KEYS or not _all_have_keys(type_):
        return None
    return type_


def _all_have_keys(type_: pa.DataType) -> bool:
    """Return whether no struct within a type is without keys: pyarrow cannot check those."""
    if pa.types.is_list(type_):
        return _all_have_keys(type_.value_type)
    if not pa.types.is_struct(type_):
        return True
    return type_.num_fields > 0 and all(_all_have_keys(field.type) for field in type_)
