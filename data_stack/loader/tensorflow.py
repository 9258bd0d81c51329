"""Batches of a loader as TensorFlow's tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from data_stack.exception import ConfigError, MissingDependencyError
from data_stack.loader.collation.ragged import Ragged
from data_stack.loader.conversion import (
    NUMBERS,
    Conversion,
    map_nested,
    parts_of_objects,
    refuse_missing,
)
from data_stack.values.stacking import ColumnArray

try:
    import tensorflow as tf
except ImportError as error:
    raise MissingDependencyError(
        "data_stack.loader.tensorflow", "tensorflow", "tensorflow"
    ) from error

#: The alignment that vector instructions (AVX-512) may need.
_ALIGNMENT_BYTES = 64

#: Values of which TensorFlow makes a tensor if they are in a list.
_PLAIN_TYPES = (bool, int, float, complex, str, bytes)


class TensorFlowConversion(Conversion):
    """Converts the batches of a loader to TensorFlow's tensors: ``loader.tensorflow()``.

    Arrays of numbers become tensors of their shape and dtype, on the same memory if they begin at a
    multiple of 64 bytes, are C-contiguous and writeable; otherwise they are copied. Columns of
    strings and bytes become tensors of ``tf.string``, arrays that differ in their first dimension,
    and :class:`~data_stack.loader.Ragged` become a ``tf.RaggedTensor``, other columns of different
    shapes a list of tensors. Dates and other values without tensors become lists. Containers stay
    as they are.

    Raises (while iterating):
        ConfigError: a column of numbers or arrays has samples without a value (None).
    """

    name = "TensorFlow tensors"

    def convert(self, batch: Any) -> Any:
        refuse_missing(batch, self.name)
        return map_nested(batch, _as_tensor, (Ragged,))


# ---------------------------------------------------------------------- values as tensors


def _as_tensor(value: Any) -> Any:
    """Return an array as a tensor, also a ragged one; a list if TensorFlow has no such tensor.

    Other values stay as they are.
    """
    if isinstance(value, Ragged):
        return tf.RaggedTensor.from_row_splits(
            _as_tensor(value.values),
            _as_tensor(value.offsets),
            validate=False,  # Ragged has checked the offsets
        )
    if isinstance(value, np.generic):
        return tf.constant(value) if value.dtype.kind in "biufcSU" else value
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype == object:
        return _objects_as_tensor(value)
    if value.dtype.kind in "SU":
        return tf.constant(value.tolist(), dtype=tf.string, shape=value.shape)
    if value.dtype.str[1:] in NUMBERS:
        return _numbers_as_tensor(value)
    return list(value) if value.ndim > 0 else value.item()


def _numbers_as_tensor(array: ColumnArray) -> tf.Tensor:
    """Return an array as a tensor, on its own memory where TensorFlow can compute there."""
    if array.size == 0 or array.ndim == 0:
        return tf.convert_to_tensor(array.astype(array.dtype.newbyteorder("="), copy=False))
    # TensorFlow does not check arrays that come by DLPack: an operation on one that is not aligned
    # ends the process. Copying to aligned memory takes half the time of its own copy.
    if not _is_aligned(array):
        array = _align_copy(array)
    return tf.experimental.dlpack.from_dlpack(array.__dlpack__())


def _is_aligned(array: ColumnArray) -> bool:
    """Return whether TensorFlow can compute on the array's own memory."""
    if not array.flags.c_contiguous or not array.flags.writeable or not array.dtype.isnative:
        return False
    return array.ctypes.data % _ALIGNMENT_BYTES == 0


def _align_copy(array: ColumnArray) -> ColumnArray:
    """Return a copy for which :func:`_is_aligned` holds, in this machine's byte order."""
    dtype = array.dtype.newbyteorder("=")
    n_bytes = array.size * dtype.itemsize
    memory = np.empty(n_bytes + _ALIGNMENT_BYTES, dtype=np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT_BYTES
    aligned: ColumnArray = memory[start : start + n_bytes].view(dtype).reshape(array.shape)
    aligned[...] = array
    return aligned


def _objects_as_tensor(column: ColumnArray) -> Any:
    """Return a column of objects as a tensor of strings or a ragged one, or as nested tensors."""
    parts = parts_of_objects(column)
    is_list = isinstance(parts, list) and column.ndim > 0 and len(parts) > 0
    if is_list and all(isinstance(value, (str, bytes)) for value in parts):
        return tf.constant(parts, dtype=tf.string)
    if is_list and _differ_only_in_length(parts):
        lengths = [len(array) for array in parts]
        values = _numbers_as_tensor(np.concatenate(parts))
        return tf.RaggedTensor.from_row_lengths(values, lengths, validate=False)
    return map_nested(parts, _as_tensor, (Ragged,))


def _differ_only_in_length(values: list[Any]) -> bool:
    """Return whether values are arrays of numbers that differ in their first dimension only."""
    row_types = set()
    for value in values:
        is_array = type(value) is np.ndarray and value.ndim > 0
        if not is_array or value.dtype.str[1:] not in NUMBERS:
            return False
        row_types.add((value.shape[1:], value.dtype))
    return len(row_types) == 1


# ---------------------------------------------------------------------- tf.data


def dataset_of(loader: Any, output_signature: Any, *, has_fixed_length: bool) -> tf.data.Dataset:
    """Return the batches of a loader as a dataset.

    See :meth:`data_stack.loader.loader.TensorFlowLoader.dataset`.

    Args:
        loader: the loader.
        output_signature: the form of the batches; None for that of the first one.
        has_fixed_length: whether all epochs have as many batches.
    """
    cardinality = _cardinality_of(loader, has_fixed_length=has_fixed_length)
    signature = output_signature
    if signature is None:
        batch, n_samples = loader.example_batch()
        signature = _signature_of(batch, n_samples)

    def iterate() -> Iterator[Any]:
        if cardinality >= 0 and loader.is_inside:
            raise ConfigError(
                f"this tf.data.Dataset was made for {cardinality} batches, but its loader has "
                "loaded a state in the middle of an epoch since: make the dataset after "
                "load_state_dict()"
            )
        return iter(loader.convert(_FormConversion(signature)))

    # tf.data adds a prefetch at the end of each pipeline, which would let the state run ahead of
    # the consumer.
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    dataset = tf.data.Dataset.from_generator(iterate, output_signature=signature)
    dataset = dataset.with_options(options)
    if cardinality == tf.data.UNKNOWN_CARDINALITY:
        return dataset
    return dataset.apply(tf.data.experimental.assert_cardinality(cardinality))


def _cardinality_of(loader: Any, *, has_fixed_length: bool) -> Any:
    """Return the number of batches of each iteration, or TensorFlow's number for others."""
    if loader.is_inside or not has_fixed_length:
        return tf.data.UNKNOWN_CARDINALITY
    try:
        return len(loader)
    except TypeError:  # it is endless
        return tf.data.INFINITE_CARDINALITY


def _signature_of(batch: Any, n_samples: int) -> Any:
    """Return the form of a batch: nested tuples and dicts of specs.

    The dimension of the samples is None.

    Raises:
        ConfigError: there are no samples.
    """
    tensors = _as_nested_tensors(batch, "the batch") if n_samples else ()
    if not tf.nest.flatten(tensors):
        raise ConfigError(
            "the form of batches cannot be found without samples: pass output_signature="
        )
    return tf.nest.map_structure(lambda tensor: _spec_of(tensor, n_samples), tensors)


def _spec_of(tensor: Any, n_samples: int) -> tf.TypeSpec:
    shape = tensor.shape.as_list()
    if shape and shape[0] == n_samples:
        shape[0] = None
    if isinstance(tensor, tf.RaggedTensor):
        return tf.RaggedTensorSpec(shape, tensor.dtype, tensor.ragged_rank, tf.int64)
    return tf.TensorSpec(shape, tensor.dtype)


def _as_nested_tensors(value: Any, name: str) -> Any:
    """Return a batch, or a part of it, as nested dicts and tuples of tensors.

    Args:
        value: the batch or part.
        name: the name of the part for messages.

    Raises:
        ConfigError: TensorFlow has no tensor for a part.
    """
    is_column = isinstance(value, (np.ndarray, np.generic, Ragged))
    if is_column:
        value = map_nested(value, _as_tensor, (Ragged,))

    # Containers, but for a list of plain numbers or strings, which is a tensor to TensorFlow.
    if isinstance(value, Mapping):
        return {key: _as_nested_tensors(part, f"{name}[{key!r}]") for key, part in value.items()}
    is_list_of_parts = isinstance(value, list) and not is_column and not _begins_plainly(value)
    if isinstance(value, tuple) or is_list_of_parts:
        parts = [
            _as_nested_tensors(part, f"{name}[{position}]") for position, part in enumerate(value)
        ]
        return tuple(parts)

    # Tensors, and what becomes one.
    if isinstance(value, (tf.Tensor, tf.RaggedTensor, tf.SparseTensor)):
        return value
    try:
        if value is None:
            raise TypeError("None")
        return tf.convert_to_tensor(value)
    except (TypeError, ValueError, NotImplementedError) as error:
        raise ConfigError(
            f"{name} is {value!r:.80}, which has no TensorFlow tensor; leave it out by select(…), "
            "or convert it to numbers by map(…) or transform="
        ) from error


def _begins_plainly(values: list[Any]) -> bool:
    """Return whether a list begins with a plain number or string."""
    return len(values) > 0 and isinstance(values[0], _PLAIN_TYPES)


class _FormConversion(Conversion):
    """Converts batches to tensors of the declared form of a dataset.

    Args:
        signature: the form, nested tuples and dicts of specs.
    """

    name = "TensorFlow tensors of one form"

    def __init__(self, signature: Any) -> None:
        self._signature = signature

    def convert(self, batch: Any) -> Any:
        tensors = _as_nested_tensors(batch, "the batch")
        try:
            return tf.nest.map_structure(_fit, tensors, self._signature, check_types=False)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"a batch does not have the form {self._signature} of its tf.data.Dataset "
                f"({error}); pass dataset(output_signature=…) that suits all batches, or make the "
                "batches alike, as collate=Padded(to=…) does"
            ) from error


def _fit(tensor: Any, spec: tf.TypeSpec) -> Any:
    """Return a tensor that has the form of a spec.

    Raises:
        ValueError: it has another form.
    """
    # Values of different lengths may happen to have one shape.
    if isinstance(spec, tf.RaggedTensorSpec) and isinstance(tensor, tf.Tensor):
        tensor = tf.RaggedTensor.from_tensor(tensor, ragged_rank=spec.ragged_rank)
    if not spec.is_compatible_with(tensor):
        raise ValueError(f"{tf.type_spec_from_value(tensor)} is not compatible with {spec}")
    return tensor
