"""Converts samples to a TensorFlow dataset."""

from __future__ import annotations

from typing import Any

from data_stack.loader.loader import Loader

_SAMPLES_AT_ONCE = 64


def to_tensorflow(iterator: Any, *, batch_size: int | None = None, **options: Any) -> Any:
    """The samples as a ``tf.data.Dataset`` that reads them when it is iterated, see ``Loader.tensorflow``.

    Args:
        iterator: any iterator.
        batch_size: number of samples in each element; None for single samples, which must have one shape.
        options: options of the loader, such as ``shuffle=True, seed=7, epochs=3``; one epoch by default.

    Raises:
        MissingDependencyError: TensorFlow is not installed.
        ConfigError: TensorFlow has no tensors for a column, or there are no samples to infer its shape from.
    """
    loader = Loader(iterator, batch_size or _SAMPLES_AT_ONCE, **options)
    dataset = loader.tensorflow().dataset()
    return dataset if batch_size is not None else dataset.unbatch()
