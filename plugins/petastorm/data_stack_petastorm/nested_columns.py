"""Finds columns of structs, maps and nested lists, which Petastorm does not read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from data_stack.formats.parquet import Field
from data_stack.util.program_lines import warn_program
from data_stack_petastorm.schemas import as_schema


def nested_names(fields: Mapping[str, Field]) -> frozenset[str]:
    """Return the names of structs, maps and nested lists."""
    names = set()
    for name, field in fields.items():
        if isinstance(field.dtype, np.dtype) and field.dtype.kind == "O":
            names.add(name)
    return frozenset(names)


def names_without_tensors(reader: Any) -> frozenset[str]:
    """Return the names of the columns that the adapters of a reader leave out.

    These are the structs, maps and nested lists of a reader of row groups, because Petastorm's
    readers leave them out, too. If the reader has no other columns, none is left out; its adapter
    then raises an error that names a column.

    Args:
        reader: any reader.
    """
    if not reader.batched_output or reader.ngram is not None:
        return frozenset()
    fields = as_schema(reader.schema).fields
    names = nested_names(fields)
    if len(names) == len(fields):
        return frozenset()
    return names


def warn_of_omitted_columns(names: frozenset[str]) -> None:
    """Warn of the columns that an adapter leaves out, if there are any.

    Warns:
        UserWarning: there are such columns.
    """
    if not names:
        return
    quoted = ", ".join(repr(name) for name in sorted(names))
    warn_program(
        f"columns {quoted} are left out: structs, maps and nested lists have no tensors. "
        "To not even read them, name the other columns in schema_fields=",
        package=__package__,
    )
