"""A reader of made-up rows."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np

from data_stack.exception import ConfigError
from data_stack_petastorm.unischema import Unischema


class ReaderMock:
    """An endless reader whose rows a function makes.

    Args:
        schema: of the rows.
        schema_data_generator: takes the schema, returns the values of a row by name.
        ngram: None.

    Raises:
        ConfigError: ``ngram`` is given.
    """

    batched_output = False
    ngram = None

    def __init__(
        self, schema: Unischema, schema_data_generator: Callable[[Unischema], dict[str, Any]], ngram: None = None
    ) -> None:
        if ngram is not None:
            raise ConfigError("Sequence argument not supported for ReaderMock")
        self.schema, self.schema_data_generator = schema, schema_data_generator

    def fetch(self) -> Any:
        """A row as a named tuple."""
        return self.schema.make_namedtuple(**self.schema_data_generator(self.schema))

    def __iter__(self) -> ReaderMock:
        return self

    def __next__(self) -> Any:
        return self.fetch()

    next = __next__

    def __enter__(self) -> ReaderMock:
        return self

    def __exit__(self, *error: object) -> None:
        """There is nothing to close."""

    def stop(self) -> None:
        """There is nothing to stop."""

    def join(self) -> None:
        """There is nothing to wait for."""


def schema_data_generator_example(schema: Unischema) -> dict[str, Any]:
    """Zeros for each field, as arrays of its dtype and shape, dimensions of None 10 long."""
    row: dict[str, Any] = {}
    for field in schema.fields.values():
        shape = tuple(10 if size is None else size for size in field.shape)
        row[field.name] = Decimal("0.0") if field.numpy_dtype is Decimal else np.zeros(shape, field.numpy_dtype)
    return row
