"""What mlcroissant's fields and record sets declare: names, shapes, parents, kinds, problems."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from data_stack_croissant.json_path import MAX_PATTERN_LENGTH


def all_fields(fields: Sequence[Any]) -> Iterator[Any]:
    """Yield the fields, and those inside of them."""
    for field in fields:
        yield field
        yield from all_fields(field.sub_fields or ())


def parents_of(field: Any) -> list[Any]:
    """Return the fields around a field, the outermost first."""
    return list(field.parents[2:])  # the document and the record set come before them


def column_name(field: Any) -> str:
    """Return the name of a field's column: the names of the fields around it, and its own."""
    return ".".join(_name_of(part) for part in [*parents_of(field), field])


def _name_of(field: Any) -> str:
    if isinstance(field.name, str) and field.name:
        return field.name
    return str(field.uuid).rpartition("/")[2]


def shape_of(field: Any) -> tuple[int | None, ...]:
    """Return the shape that a field declares; None for a dimension of any size."""
    dimensions = field.array_shape_tuple
    if not dimensions:
        return (None,) if field.repeated else ()
    return tuple(None if size < 0 else size for size in dimensions)


def depth_of(field: Any) -> int:
    """Return how deeply lists are nested; 0 where no field around this one is repeated."""
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
    """Return a row of a document by the identifiers of its fields.

    Documents of version 0.8 have their names instead.
    """
    values = {}
    for field in fields:
        values[field.uuid] = row[field.uuid] if field.uuid in row else row.get(field.name)
    return values


def is_a(record_set: Any, *kinds: str) -> bool:
    """Return whether a record set has one of some types, such as ``cr:Split``."""
    if record_set.is_enumeration and "Enumeration" in kinds:
        return True
    types = np.atleast_1d(record_set.data_types or [])
    return any(str(type_).endswith(kinds) for type_ in types)


def find_unread_part(field: Any, transforms: Sequence[Any]) -> str | None:
    """Return what of a field is not read, as the predicate of a sentence; None if all is.

    Args:
        field: mlcroissant's.
        transforms: of its values.
    """
    if any(part.parent_field for part in (field, *parents_of(field))):
        return "nests records of another record set"
    if field.source.sampling_rate or any(map(_transforms_files, transforms)):
        return "transforms files or sound"
    if any(map(_has_long_pattern, transforms)):
        return f"has a pattern of more than {MAX_PATTERN_LENGTH} characters"
    return None


def _transforms_files(transform: Any) -> bool:
    return bool(transform.sampling_rate or transform.un_archive or transform.read_lines)


def _has_long_pattern(transform: Any) -> bool:
    patterns = (transform.regex, transform.replace, transform.json_path, transform.format)
    return any(pattern and len(pattern) > MAX_PATTERN_LENGTH for pattern in patterns)
