"""Batches of a loader as TensorFlow's tensors, one by one or as a ``tf.data.Dataset``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from data_stack.dataset.iterator.stacking import Column
from data_stack.exception import ConfigError, MissingDependencyError
from data_stack.loader.conversion import (
    NUMBERS,
    Conversion,
    FunctionConversion,
    aligned_copy,
    is_aligned,
    nested,
    parts_of_objects,
)
from data_stack.loader.ragged import Ragged

try:
    import tensorflow as tf
except ImportError as error:
    raise MissingDependencyError("data_stack.loader.tensorflow", "tensorflow", "tensorflow") from error

__all__ = ["Batches", "TensorFlowConversion", "dataset_of"]


class TensorFlowConversion(Conversion):
    """The batches of a loader as TensorFlow's tensors: ``loader.tensorflow()``.

    Arrays of numbers become tensors of their shape and dtype, on the same memory if they begin at a multiple of 64 bytes, are
    C-contiguous and writeable; otherwise they are copied once. Columns of strings and bytes become tensors of ``tf.string``,
    arrays that differ in shape and :class:`~data_stack.loader.ragged.Ragged` a ``tf.RaggedTensor``. Dates and other things that
    TensorFlow has no tensors for stay lists of values. Containers stay as they are.
    """

    name = "TensorFlow tensors"

    def convert(self, batch: Any) -> Any:
        return nested(batch, _as_tensor, (Ragged,))


class Batches(Protocol):
    """What is needed of a :class:`~data_stack.loader.loader.Loader` to make a dataset of it."""

    def __len__(self) -> int: ...

    @property
    def is_inside(self) -> bool: ...

    def example_batches(self) -> list[tuple[Any, int]]: ...

    def converted(self, conversion: Conversion) -> Iterable[Any]: ...


def dataset_of(loader: Batches, output_signature: Any = None) -> tf.data.Dataset:
    """The batches of a loader as a dataset, see :meth:`data_stack.loader.loader.TensorFlowLoader.dataset`."""
    try:
        cardinality = len(loader)
    except TypeError:
        cardinality = tf.data.INFINITE_CARDINALITY
    if loader.is_inside:
        cardinality = tf.data.UNKNOWN_CARDINALITY
    signature = _signature(loader.example_batches(), "the batch") if output_signature is None else output_signature

    def batches() -> Iterator[Any]:
        if cardinality >= 0 and loader.is_inside:
            raise ConfigError(
                f"this tf.data.Dataset was made for {cardinality} batches, and its loader has been given a state in the "
                f"middle of an epoch since: make the dataset after load_state_dict()"
            )
        return iter(loader.converted(FunctionConversion(lambda batch: _fitted(batch, signature, "the batch"))))

    options = tf.data.Options()
    # tf.data puts a prefetch at the end of each pipeline by itself, which would let the state run ahead of the consumer
    options.experimental_optimization.inject_prefetch = False
    dataset = tf.data.Dataset.from_generator(batches, output_signature=signature).with_options(options)
    if cardinality == tf.data.UNKNOWN_CARDINALITY:
        return dataset
    return dataset.apply(tf.data.experimental.assert_cardinality(cardinality))


def _as_tensor(value: Any) -> Any:
    """What TensorFlow makes of an array, ragged ones too; a list if it has no tensors for it. Anything else stays as it is."""
    if isinstance(value, Ragged):
        # its own constructor has looked at the offsets
        return tf.RaggedTensor.from_row_splits(_as_tensor(value.values), _as_tensor(value.offsets), validate=False)
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
    if value.dtype.kind == "V" and value.dtype.names is None:
        try:
            return tf.convert_to_tensor(value)  # bfloat16 and its like
        except (TypeError, ValueError, NotImplementedError):
            pass
    return list(value) if value.ndim else value.item()


def _of_numbers(array: Column) -> tf.Tensor:
    """An array as a tensor, on its own memory where TensorFlow can compute there."""
    if array.size == 0 or array.ndim == 0:
        return tf.convert_to_tensor(array.astype(array.dtype.newbyteorder("="), copy=False))
    # TensorFlow does not check what it is given by DLPack: it ends the process once an operation meets an array that is not
    # aligned. To copy to an aligned place takes half the time of its own copy.
    if not is_aligned(array):
        array = aligned_copy(array)
    return tf.experimental.dlpack.from_dlpack(array.__dlpack__())


def _of_objects(column: Column) -> Any:
    parts = parts_of_objects(column)
    if not isinstance(parts, list):
        return nested(parts, _as_tensor, (Ragged,)) if column.ndim else parts
    if parts and all(isinstance(value, (str, bytes)) for value in parts):
        return tf.constant(parts, dtype=tf.string)
    if (n_ragged := _n_ragged(parts)) is not None:
        return _ragged_tensor(parts, n_ragged)
    return nested(parts, _as_tensor, (Ragged,))


def _n_ragged(values: Sequence[Any]) -> int | None:
    """In how many of their first dimensions arrays of numbers differ; None for what is no such array, or differs otherwise."""
    if not values or not all(isinstance(value, np.ndarray) and value.ndim and value.dtype.str[1:] in NUMBERS for value in values):
        return None
    if len({(value.ndim, value.dtype) for value in values}) > 1 or any(isinstance(value, np.ma.MaskedArray) for value in values):
        return None
    n_ragged = 1
    for axis in range(1, values[0].ndim):
        if len({value.shape[axis] for value in values}) > 1:
            n_ragged = axis + 1
    return n_ragged


def _ragged_tensor(values: Sequence[Column], n_ragged: int) -> tf.RaggedTensor:
    """Arrays of one dtype as a tensor that is ragged in so many of their first dimensions, at least one."""
    flat = [value.reshape(-1, *value.shape[n_ragged:]) for value in values]
    lengths = [
        np.concatenate([np.full(int(np.prod(value.shape[:axis])), value.shape[axis], dtype=np.int64) for value in values])
        for axis in range(n_ragged)
    ]
    return tf.RaggedTensor.from_nested_row_lengths(_of_numbers(np.concatenate(flat)), lengths, validate=False)


def _signature(examples: Sequence[tuple[Any, int]], where: str) -> Any:
    """The form that several batches have together: nested tuples and dicts of specs.

    Args:
        examples: batches, or the same part of each, with their numbers of samples.
        where: the part in the words of a message.
    """
    values = [value for value, _ in examples]
    first = values[0]
    if isinstance(first, Mapping):
        if all(isinstance(value, Mapping) and value.keys() == first.keys() for value in values):
            return {key: _signature([(value[key], n) for value, n in examples], f"{where}[{key!r}]") for key in first}
        raise ConfigError(f"{where} has other keys from batch to batch; tf.data needs one form")
    if isinstance(first, (tuple, list)) and not _is_tensor_like(first):
        if any(not isinstance(value, (tuple, list)) or len(value) != len(first) for value in values):
            raise ConfigError(f"{where} has another length from batch to batch; tf.data needs one form")
        if len(first) == 0:
            raise ConfigError("there is no sample to find the form of batches from: give output_signature=")
        return tuple(
            [_signature([(value[place], n) for value, n in examples], f"{where}[{place}]") for place in range(len(first))]
        )
    tensors = [nested(value, _as_tensor, (Ragged,)) for value in values]
    if isinstance(tensors[0], (Mapping, tuple)):  # a column of dicts, which are columns in their turn
        return _signature([(tensor, n) for tensor, (_, n) in zip(tensors, examples, strict=True)], where)
    return _spec([(_tensor_of_plain(tensor, where), n) for tensor, (_, n) in zip(tensors, examples, strict=True)], where)


def _spec(tensors: Sequence[tuple[Any, int]], where: str) -> tf.TypeSpec:
    if len({tensor.dtype for tensor, _ in tensors}) > 1:
        found = " and ".join(sorted({tensor.dtype.name for tensor, _ in tensors}))
        raise ConfigError(
            f"{where} is {found} from batch to batch; tf.data needs one dtype, see map() and the transform of a loader"
        )
    dtype = tensors[0][0].dtype
    n_dimensions = {tensor.shape.rank for tensor, _ in tensors}
    if len(n_dimensions) > 1:
        return tf.TensorSpec(None, dtype)
    shapes = [tensor.shape.as_list() for tensor, _ in tensors]
    shape = [extents[0] if len(set(extents)) == 1 else None for extents in zip(*shapes, strict=True)]
    if shape and all(extents[0] == n for extents, (_, n) in zip(shapes, tensors, strict=True)):
        shape[0] = None
    if ragged := [tensor.ragged_rank for tensor, _ in tensors if isinstance(tensor, tf.RaggedTensor)]:
        n_ragged = max(ragged)
        return tf.RaggedTensorSpec([None] * (n_ragged + 1) + shape[n_ragged + 1 :], dtype, n_ragged, tf.int64)
    return tf.TensorSpec(shape, dtype)


def _fitted(value: Any, signature: Any, where: str) -> Any:
    """A batch as tensors of the form that tf.data was told.

    Raises:
        ConfigError: it has another one.
    """
    if isinstance(signature, Mapping):
        value = _parts(value)
        if not isinstance(value, Mapping) or value.keys() != signature.keys():
            raise _unfit(value, signature, where)
        return {key: _fitted(value[key], spec, f"{where}[{key!r}]") for key, spec in signature.items()}
    if isinstance(signature, (tuple, list)):
        value = _parts(value)
        if not isinstance(value, (tuple, list)) or len(value) != len(signature):
            raise _unfit(value, signature, where)
        return tuple([_fitted(value[place], spec, f"{where}[{place}]") for place, spec in enumerate(signature)])
    if isinstance(value, np.ndarray) and value.dtype.str[1:] in NUMBERS and isinstance(signature, tf.TensorSpec):
        # tf.data copies arrays itself, to memory that it uses again: in its thread that is faster than to new memory
        is_same = signature.dtype == value.dtype and signature.shape.is_compatible_with(value.shape)
        tensor = value if is_same and not is_aligned(value) else _of_numbers(value)
        if is_same:
            return tensor
    elif isinstance(value, np.ndarray) and isinstance(signature, tf.RaggedTensorSpec):
        rows = parts_of_objects(value) if value.dtype == object else list(value)
        n_ragged = _n_ragged(rows) if isinstance(rows, list) else None
        fits = n_ragged is not None and n_ragged <= signature.ragged_rank <= rows[0].ndim
        tensor = _ragged_tensor(rows, signature.ragged_rank) if fits else _as_tensor(value)
    else:
        tensor = _tensor_of_plain(nested(value, _as_tensor, (Ragged,)), where)
    if not signature.is_compatible_with(tensor):
        raise _unfit(tensor, signature, where)
    return tensor


def _parts(value: Any) -> Any:
    """A column of objects as what is in them."""
    return parts_of_objects(value) if isinstance(value, np.ndarray) and value.dtype == object else value


def _is_tensor_like(values: Sequence[Any]) -> bool:
    """Whether a list is one of plain numbers or strings, which is a tensor to TensorFlow."""
    return isinstance(values, list) and len(values) > 0 and isinstance(values[0], (bool, int, float, complex, str, bytes))


def _tensor_of_plain(value: Any, where: str) -> Any:
    """What has become of a part of a batch, as a tensor if it is none: of lists, numbers and strings.

    Raises:
        ConfigError: TensorFlow has none of it.
    """
    if isinstance(value, (tf.Tensor, tf.RaggedTensor, tf.SparseTensor)):
        return value
    try:
        if value is None:
            raise TypeError("None")
        return tf.convert_to_tensor(value)
    except (TypeError, ValueError, NotImplementedError) as error:
        raise ConfigError(
            f"{where} is {value!r:.80}, which TensorFlow has no tensor for; leave it out by select(…), or make numbers of it by "
            f"map(…) or the transform of the loader"
        ) from error


def _unfit(value: Any, signature: Any, where: str) -> ConfigError:
    found = tf.type_spec_from_value(value) if tf.is_tensor(value) else type(value).__name__
    return ConfigError(
        f"{where} is {found}, but the tf.data.Dataset was made for {signature}, which other batches have; give "
        f"dataset(output_signature=…) a form that suits all of them, or bring them into one form, as collate=Padded(to=…) does"
    )
