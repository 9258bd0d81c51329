"""A reader of generated rows."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np

from data_stack.exception import ConfigError
from data_stack_petastorm.base_reader import BaseReader
from data_stack_petastorm.unischema import Unischema, UnischemaField

#: The size of an array in the example where the schema leaves it open.
_EXAMPLE_SIZE = 10


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
        self.schema = schema
        self.schema_data_generator = schema_data_generator

    def fetch(self) -> Any:
        """Return a row as a named tuple."""
        values = self.schema_data_generator(self.schema)
        return self.schema.make_namedtuple(**values)

    def __next__(self) -> Any:
        return self.fetch()

    def stop(self) -> None:
        """Do nothing."""


def schema_data_generator_example(schema: Unischema) -> dict[str, Any]:
    """Return zeros of each field's dtype and shape; a size of None becomes 10."""
    return {field.name: _make_zeros(field) for field in schema.fields.values()}


def _make_zeros(field: UnischemaField) -> Any:
    if field.numpy_dtype is Decimal:
        return Decimal("0.0")
    shape = tuple(_EXAMPLE_SIZE if size is None else size for size in field.shape)
    return np.zeros(shape, field.numpy_dtype)
