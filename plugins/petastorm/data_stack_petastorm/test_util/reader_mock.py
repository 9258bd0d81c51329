"""A reader of generated rows."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np

from data_stack.exception import ConfigError
from data_stack_petastorm.base_reader import BaseReader
from data_stack_petastorm.unischema import Unischema


class ReaderMock(BaseReader):
    """An endless reader of rows that a function generates.

    Args:
        schema: schema of the rows.
        schema_data_generator: a function of the schema that returns the values of a row by name.
        ngram: must be None.

    Raises:
        ConfigError: ``ngram`` is not None.
    """

    batched_output = False
    ngram = None

    def __init__(
        self,
        schema: Unischema,
        schema_data_generator: Callable[[Unischema], dict[str, Any]],
        ngram: None = None,
    ) -> None:
        if ngram is not None:
            raise ConfigError("Sequence argument not supported for ReaderMock")
        self.schema, self.schema_data_generator = schema, schema_data_generator

    def fetch(self) -> Any:
        """Return a row as a named tuple."""
        return self.schema.make_namedtuple(**self.schema_data_generator(self.schema))

    def __next__(self) -> Any:
        return self.fetch()

    def stop(self) -> None:
        """Do nothing."""


def schema_data_generator_example(schema: Unischema) -> dict[str, Any]:
    """Return zeros of each field's dtype and shape; a size of None becomes 10."""
    row: dict[str, Any] = {}
    for field in schema.fields.values():
        shape = tuple(10 if size is None else size for size in field.shape)
        row[field.name] = (
            Decimal("0.0") if field.numpy_dtype is Decimal else np.zeros(shape, field.numpy_dtype)
        )
    return row
