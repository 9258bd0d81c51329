"""Batches of a loader as TensorFlow's tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from data_stack.exception import ConfigError, MissingDependencyError
from data_stack.loader.collation import Ragged
from data_stack.loader.conversion import (
    NUMBERS,
    Conversion,
    map_nested,
    parts_of_objects,
    refuse_missing,
)
from data_stack.values.stacking import Column

try:
    import tensorflow as tf
except ImportError as error:
    raise MissingDependencyError(
        "data_stack.loader.tensorflow", "tensorflow", "tensorflow"
    ) from error

# the alignment that vector instructions (AVX-512) may need
_ALIGNMENT_BYTES = 64
_PLAIN = (bool, int, float, complex, str, bytes)


class TensorFlowConversion(Conversion):
    """Converts the batches of a loader to TensorFlow's tensors: ``loader.tensorflow()``.

    Arrays of numbers become tensors of their shape and dtype, on the same memory if they begin at a multiple of 64 bytes, are
    C-contiguous and writeable; otherwise they are copied. Columns of strings and bytes become tensors of ``tf.string``, arrays
    that differ in their first extent, and :class:`~data_stack.loader.Ragged` become a ``tf.RaggedTensor``, other columns
    of different shapes a list of tensors. Dates and other values without tensors become lists. Containers stay as they are.

    Raises (while iterating):
        ConfigError: a column of numbers or arrays has samples without a value (None).
    """

    name = "TensorFlow tensors"

    def convert(self, batch: Any) -> Any:
        refuse_missing(batch, self.name)
        return map_nested(batch, _as_tensor, (Ragged,))


def dataset_of(loader: Any, output_signature: Any, *, has_fixed_length: bool) -> tf.data.Dataset:
    """The batches of a loader as a dataset, see :meth:`data_stack.loader.loader.TensorFlowLoader.dataset`."""
    try:
        cardinality = len(loader)
    except TypeError:
        cardinality = tf.data.INFINITE_CARDINALITY
    if loader.is_inside or not has_fixed_length:
        cardinality = tf.data.UNKNOWN_CARDINALITY
    signature = (
        _signature(*loader.example_batch()) if output_signature is None else output_signature
    )

    def batches() -> Iterator[Any]:
        if cardinality >= 0 and loader.is_inside:
            raise ConfigError(
                f"this tf.data.Dataset was made for {cardinality} batches, but its loader has loaded a state in the "
                f"middle of an epoch since: make the dataset after load_state_dict()"
            )
        return iter(loader.convert(_FormConversion(signature)))

    options = tf.data.Options()
    # tf.data adds a prefetch at the end of each pipeline, which would let the state run ahead of the consumer
    options.experimental_optimization.inject_prefetch = False
    dataset = tf.data.Dataset.from_generator(batches, output_signature=signature).with_options(
        options
    )
    if cardinality == tf.data.UNKNOWN_CARDINALITY:
        return dataset
    return dataset.apply(tf.data.experimental.assert_cardinality(cardinality))


def _as_tensor(value: Any) -> Any:
    """An array as a tensor, also a ragged one; a list if TensorFlow has no such tensor. Other values stay as they are."""
    if isinstance(value, Ragged):
        # Ragged has checked the offsets
        return tf.RaggedTensor.from_row_splits(
            _as_tensor(value.values), _as_tensor(value.offsets), validate=False
        )
    if isinstance(value, np.generic):
        return tf.constant(value) if value.dtype.kind in "biufcSU" else value
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype == object:
        return _of_objects(value)
    if value.dtype.kind in "SU":
        return tf.constant(value.tolist(), dtype=tf.string, shape=value.shape)
    if value.dtype.str[1:] in NUMBERS:
        return _of_numbers(value)
    return list(value) if value.ndim else value.item()


def _of_numbers(array: Column) -> tf.Tensor:
    """An array as a tensor, on its own memory where TensorFlow can compute there."""
    if array.size == 0 or array.ndim == 0:
        return tf.convert_to_tensor(array.astype(array.dtype.newbyteorder("="), copy=False))
    # TensorFlow does not check arrays that come by DLPack: an operation on one that is not aligned ends the process. Copying to
    # aligned memory takes half the time of its own copy.
    if not _is_aligned(array):
        array = _align_copy(array)
    return tf.experimental.dlpack.from_dlpack(array.__dlpack__())


def _is_aligned(array: Column) -> bool:
    """Whether TensorFlow can compute on the array's own memory."""
    flags = array.flags
    return (
        flags.c_contiguous
        and flags.writeable
        and array.dtype.isnative
        and array.ctypes.data % _ALIGNMENT_BYTES == 0
    )


def _align_copy(array: Column) -> Column:
    """A copy for which :func:`_is_aligned` holds, in this machine's byte order."""
    dtype = array.dtype.newbyteorder("=")
    n_bytes = array.size * dtype.itemsize
    memory = np.empty(n_bytes + _ALIGNMENT_BYTES, dtype=np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT_BYTES
    aligned: Column = memory[start : start + n_bytes].view(dtype).reshape(array.shape)
    aligned[...] = array
    return aligned


def _of_objects(column: Column) -> Any:
    parts = parts_of_objects(column)
    if isinstance(parts, list) and column.ndim and parts:
        if all(isinstance(value, (str, bytes)) for value in parts):
            return tf.constant(parts, dtype=tf.string)
        if all(
            type(value) is np.ndarray and value.ndim and value.dtype.str[1:] in NUMBERS
            for value in parts
        ) and (len({(value.shape[1:], value.dtype) for value in parts}) == 1):
            return tf.RaggedTensor.from_row_lengths(
                _of_numbers(np.concatenate(parts)), list(map(len, parts)), validate=False
            )
    return map_nested(parts, _as_tensor, (Ragged,))


def _tensors(value: Any, where: str) -> Any:
    """A batch, or a part of it, as nested dicts and tuples of tensors.

    Args:
        value: the batch or part.
        where: the name of the part for messages.

    Raises:
        ConfigError: TensorFlow has no tensor for a part.
    """
    is_column = isinstance(value, (np.ndarray, np.generic, Ragged))
    if is_column:
        value = map_nested(value, _as_tensor, (Ragged,))
    if isinstance(value, Mapping):
        return {key: _tensors(item, f"{where}[{key!r}]") for key, item in value.items()}
    # a list of plain numbers or strings is a tensor to TensorFlow
    is_plain = is_column or isinstance(
        next(iter(value), None) if isinstance(value, list) else None, _PLAIN
    )
    if isinstance(value, tuple) or (isinstance(value, list) and not is_plain):
        return tuple([_tensors(item, f"{where}[{place}]") for place, item in enumerate(value)])
    if isinstance(value, (tf.Tensor, tf.RaggedTensor, tf.SparseTensor)):
        return value
    try:
        if value is None:
            raise TypeError("None")
        return tf.convert_to_tensor(value)
    except (TypeError, ValueError, NotImplementedError) as error:
        raise ConfigError(
            f"{where} is {value!r:.80}, which has no TensorFlow tensor; leave it out by select(…), or convert it to numbers "
            f"by map(…) or transform="
        ) from error


def _signature(batch: Any, n_samples: int) -> Any:
    """The form of a batch: nested tuples and dicts of specs, in which the dimension of the samples is None."""
    tensors = _tensors(batch, "the batch") if n_samples else ()
    if not tf.nest.flatten(tensors):
        raise ConfigError(
            "the form of batches cannot be found without samples: pass output_signature="
        )
    return tf.nest.map_structure(lambda tensor: _spec(tensor, n_samples), tensors)


def _spec(tensor: Any, n_samples: int) -> tf.TypeSpec:
    shape = tensor.shape.as_list()
    if shape and shape[0] == n_samples:
        shape[0] = None
    if isinstance(tensor, tf.RaggedTensor):
        return tf.RaggedTensorSpec(shape, tensor.dtype, tensor.ragged_rank, tf.int64)
    return tf.TensorSpec(shape, tensor.dtype)


class _FormConversion(Conversion):
    """Converts batches to tensors of the declared form of a dataset."""

    name = "TensorFlow tensors of one form"

    def __init__(self, signature: Any) -> None:
        self._signature = signature

    def convert(self, batch: Any) -> Any:
        tensors = _tensors(batch, "the batch")
        try:
            return tf.nest.map_structure(_fit, tensors, self._signature, check_types=False)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"a batch does not have the form {self._signature} of its tf.data.Dataset ({error}); pass "
                f"dataset(output_signature=…) that suits all batches, or make the batches alike, as collate=Padded(to=…) does"
            ) from error


def _fit(tensor: Any, spec: tf.TypeSpec) -> Any:
    if isinstance(spec, tf.RaggedTensorSpec) and isinstance(
        tensor, tf.Tensor
    ):  # values that happen to have one shape
        tensor = tf.RaggedTensor.from_tensor(tensor, ragged_rank=spec.ragged_rank)
    if not spec.is_compatible_with(tensor):
        raise ValueError(f"{tf.type_spec_from_value(tensor)} is not compatible with {spec}")
    return tensor
