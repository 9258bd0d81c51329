"""Gives every iterator the methods that convert its samples for other libraries."""

# mypy: no-warn-unused-ignores
# ``self: Any`` stands for DatasetIteratorIF, whose module imports this one.

from __future__ import annotations

from typing import Any


class ConvertedIterator:
    """Methods that return the samples of an iterator as objects of other libraries.

    Each raises a ``MissingDependencyError`` where its library is not installed.
    """

    def to_pandas(self) -> Any:
        """Return all samples as a ``pandas.DataFrame``, see :func:`data_stack.to_pandas`."""
        from data_stack.exchange.tables.pandas import to_pandas

        return to_pandas(self)

    def to_polars(self) -> Any:
        """Return all samples as a ``polars.DataFrame``, see :func:`data_stack.to_polars`."""
        from data_stack.exchange.tables.polars import to_polars

        return to_polars(self)

    def to_arrow(self, *, lazy: bool = False, schema: Any = None) -> Any:
        """Return all samples as a ``pyarrow.Table``, see :func:`data_stack.to_arrow`.

        Args:
            lazy: return a reader of batches instead.
            schema: a ``pyarrow.Schema``; None: the types are inferred.
        """
        from data_stack.exchange.tables.arrow import to_arrow

        return to_arrow(self, lazy=lazy, schema=schema)

    def to_huggingface(self, *, streaming: bool = False, features: Any = None) -> Any:
        """Return all samples as a ``datasets.Dataset``, see :func:`data_stack.to_huggingface`.

        Args:
            streaming: return a ``datasets.IterableDataset`` instead, which reads lazily.
            features: ``datasets.Features``; None: they are inferred.
        """
        from data_stack.exchange.tables.huggingface import to_huggingface

        return to_huggingface(self, streaming=streaming, features=features)

    def to_tensorflow(self, *, batch_size: int | None = None, **options: Any) -> Any:
        """Return the samples as a lazy ``tf.data.Dataset``, see :func:`data_stack.to_tensorflow`.

        Args:
            batch_size: number of samples in each element; None for single samples.
            options: options of :class:`~data_stack.loader.loader.Loader`, such as ``shuffle=True``.
        """
        from data_stack.exchange.arrays import to_tensorflow

        return to_tensorflow(self, batch_size=batch_size, **options)
