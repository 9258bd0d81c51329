"""Which columns the adapters leave out, as there are no tensors for them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from data_stack.formats.parquet import Field
from data_stack_petastorm.schemas import as_schema


def nested_names(fields: Mapping[str, Field]) -> frozenset[str]:
    """The names of structs, maps and nested lists among fields."""
    return frozenset(name for name, field in fields.items() if isinstance(field.dtype, np.dtype) and field.dtype.kind == "O")


def names_left_out(reader: Any, *, warns: bool = False) -> frozenset[str]:
    """The names of structs, maps and nested lists of a reader of row groups that has other columns, too; Petastorm reads none.

    Args:
        reader: of any kind.
        warns: whether there is a warning, if there are some.
    """
    if not reader.batched_output or reader.ngram is not None:
        return frozenset()
    fields = as_schema(reader.schema).fields
    names = nested_names(fields)
    if not names or len(names) == len(fields):
        return frozenset()
    if warns:
        warnings.warn(
            f"columns {', '.join(map(repr, sorted(names)))} are left out: there are no tensors for structs, maps and nested "
            f"lists. Name the others in schema_fields=, which also saves reading them",
            stacklevel=4,
        )
    return names
