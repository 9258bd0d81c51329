"""What the fields and record sets of mlcroissant declare."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from data_stack_croissant.json_path import MAX_PATTERN_LENGTH


def all_fields(fields: Sequence[Any]) -> Iterator[Any]:
    """Yield fields, each before the fields inside of it."""
    for field in fields:
        yield field
        yield from all_fields(field.sub_fields or ())


def parents_of(field: Any) -> list[Any]:
    """Return the fields around a field, the outermost first."""
    # The first parents are the document and the record set.
    return list(field.parents[2:])


def column_name(field: Any) -> str:
    """Return the name of a field's column: the names of the fields around it, and its own."""
    return ".".join(_name_of(part) for part in [*parents_of(field), field])


def _name_of(field: Any) -> str:
    """Return the name of a field; without one, the last part of its identifier."""
    if isinstance(field.name, str) and field.name:
        return field.name
    return str(field.uuid).rpartition("/")[2]


def shape_of(field: Any) -> tuple[int | None, ...]:
    """Return the shape that a field declares; None for a dimension of any size."""
    dimensions = field.array_shape_tuple
    if dimensions:
        return tuple(None if size < 0 else size for size in dimensions)
    if field.repeated:
        return (None,)
    return ()


def depth_of(field: Any) -> int:
    """Return the depth of the nested lists of a field; 0 if no field around it is repeated."""
    depth_of_parents = sum(len(shape_of(parent)) for parent in parents_of(field))
    if not depth_of_parents:
        return 0
    return depth_of_parents + len(shape_of(field))


def kind_of(declared_type: Any) -> str:
    """Return the name of a data type, such as ``"ImageObject"`` or ``"int"``."""
    if isinstance(declared_type, type):
        return declared_type.__name__
    return str(declared_type).rpartition("/")[2]


def values_by_identifier(row: Mapping[str, Any], fields: Sequence[Any]) -> dict[str, Any]:
    """Return the values of a row of a document by the identifiers of the fields.

    Args:
        row: the values by identifiers; in documents of version 0.8, by names.
        fields: the fields of the record set.
    """
    values = {}
    for field in fields:
        key = field.uuid
        if key not in row:
            key = field.name
        values[field.uuid] = row.get(key)
    return values


def is_a(record_set: Any, *kinds: str) -> bool:
    """Return whether a record set is of a kind.

    Args:
        record_set: mlcroissant's record set.
        kinds: names without prefix, such as ``"Split"``.
    """
    if record_set.is_enumeration and "Enumeration" in kinds:
        return True
    types = np.atleast_1d(record_set.data_types or [])
    return any(str(type_).endswith(kinds) for type_ in types)


def find_unread_part(field: Any, transforms: Sequence[Any]) -> str | None:
    """Return why a field cannot be read, such as ``"transforms files or sound"``.

    Args:
        field: mlcroissant's field.
        transforms: mlcroissant's transforms of the values of the field.

    Returns:
        The predicate of a sentence whose subject is the field; None if the field can be read.
    """
    for part in [field, *parents_of(field)]:
        if part.parent_field:
            return "nests records of another record set"
    if field.source.sampling_rate:
        return "transforms files or sound"
    for transform in transforms:
        if _transforms_files(transform):
            return "transforms files or sound"
        if _has_long_pattern(transform):
            return f"has a pattern of more than {MAX_PATTERN_LENGTH} characters"
    return None


def _transforms_files(transform: Any) -> bool:
    """Return whether a transform changes a file or a sound, not a value."""
    return bool(transform.sampling_rate or transform.un_archive or transform.read_lines)


def _has_long_pattern(transform: Any) -> bool:
    """Return whether a pattern of a transform is too long to be applied."""
    patterns = (transform.regex, transform.replace, transform.json_path, transform.format)
    return any(pattern and len(pattern) > MAX_PATTERN_LENGTH for pattern in patterns)
