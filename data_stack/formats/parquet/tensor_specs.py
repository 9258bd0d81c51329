"""What fields are as tensors: of PyTorch, of TensorFlow."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import numpy as np

from data_stack.exception import MissingDependencyError
from data_stack.formats.parquet.types import FieldLike

__all__ = ["tensorflow_specs", "torch_specs"]


def torch_specs(fields: Iterable[FieldLike]) -> dict[str, tuple[Any, tuple[int | None, ...]]]:
    """As :meth:`Schema.torch_specs`."""
    try:
        import torch
    except ImportError as error:
        raise MissingDependencyError("specs of PyTorch's tensors", "torch", "torch") from error

    def dtype_of(field: FieldLike) -> Any:
        if not isinstance(field.dtype, np.dtype) or field.dtype.kind not in "biufc":
            return None
        try:
            return torch.from_numpy(np.empty(0, field.dtype)).dtype
        except TypeError:  # such as longdouble
            return None

    return {field.name: (dtype_of(field), field.shape) for field in fields}


def tensorflow_specs(fields: Iterable[FieldLike]) -> dict[str, Any]:
    """As :meth:`Schema.tensorflow_specs`."""
    try:
        import tensorflow as tf
    except ImportError as error:
        raise MissingDependencyError("specs of TensorFlow's tensors", "tensorflow", "tensorflow") from error

    def dtype_of(field: FieldLike) -> Any:
        if field.dtype is Decimal or not isinstance(field.dtype, np.dtype) or field.dtype.kind in "USO":
            return tf.string
        return tf.int64 if field.dtype.kind in "mM" else tf.dtypes.as_dtype(field.dtype)

    return {field.name: tf.TensorSpec(field.shape, dtype_of(field), field.name) for field in fields}
