"""Batches of a loader as JAX arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.codecs.fitting import as_dtype
from data_stack.exception import ConfigError, MissingDependencyError
from data_stack.loader.collation.ragged import Ragged
from data_stack.loader.conversion import (
    Conversion,
    Pairs,
    map_nested,
    one_ahead,
    parts_of_objects,
    refuse_missing,
)

try:
    import jax
except ImportError as error:
    raise MissingDependencyError("data_stack.loader.jax", "jax", "jax") from error

#: Larger numbers, long doubles, are unknown to JAX.
_MAX_NUMBER_BYTES = 8
_MAX_COMPLEX_BYTES = 16


@dataclass(frozen=True)
class JaxConversion(Conversion):
    """Converts the batches of a loader to JAX arrays: ``loader.jax()``.

    Arrays of numbers become JAX arrays of their shape. On the CPU they share memory if they begin
    at a multiple of 64 bytes and are C-contiguous; otherwise they are copied. As always in JAX,
    64-bit types become 32-bit ones unless ``jax_enable_x64`` is on; floats are rounded, but a
    number beyond the range of 32 bits is an error, where JAX alone wraps it. Strings, dates and
    other types that JAX lacks become lists of values; values that differ in shape become a list of
    arrays. Containers stay as they are; a :class:`~data_stack.loader.Ragged` has JAX arrays for
    values and offsets, and is a pytree.

    With a device, the copy of each batch starts one batch ahead, so that it overlaps with the
    training step.

    Args:
        device: a device or sharding of JAX's; None for JAX's default device, without committing the
            arrays to it.

    Raises (while iterating):
        ConfigError: a column of numbers or arrays has samples without a value (None), or a number
            that JAX cannot hold.
    """

    name = "JAX arrays"
    device: Any = None

    def convert(self, batch: Any) -> Any:
        refuse_missing(batch, self.name)
        try:
            return map_nested(batch, self._convert_value)
        except _BeyondJaxError as error:
            column = _column_of(batch, error.values)
            place = "a value of the batch" if column is None else f"column {column!r}"
            raise ConfigError(
                f"{place} cannot become a JAX array: {error}. Set "
                "jax.config.update('jax_enable_x64', True), or map the values to smaller ones"
            ) from error

    def convert_all(self, pairs: Pairs) -> Pairs:
        converted = super().convert_all(pairs)
        if self.device is None:
            return converted
        return one_ahead(converted)  # device_put does not wait for its copy

    def _convert_value(self, value: Any) -> Any:
        """Return a value as a JAX array, or as a list if JAX has no such array."""
        if isinstance(value, np.generic):
            return self._put(np.asarray(value)) if _is_number(value.dtype) else value
        if isinstance(value, np.ndarray):
            return self._convert_array(value)
        if isinstance(value, jax.Array) and self.device is not None:
            return jax.device_put(value, self.device)
        return value

    def _convert_array(self, array: npt.NDArray[Any]) -> Any:
        if array.dtype == object:
            return map_nested(parts_of_objects(array), self._convert_value)
        if not _is_number(array.dtype):
            is_text = array.dtype.kind in "SU"
            return array.tolist() if is_text or array.ndim == 0 else list(array)
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        return self._put(array)

    def _put(self, array: npt.NDArray[Any]) -> Any:
        # Not jax.dlpack.from_dlpack: it shares memory under the same conditions, but commits the
        # array to the CPU, which excludes computations with arrays on other devices.
        return jax.device_put(_narrow(array), self.device)


class _BeyondJaxError(ValueError):
    """An array has a number beyond the range of JAX's 32-bit types.

    Attributes:
        values: the array.
    """

    def __init__(self, why: str, values: npt.NDArray[Any]) -> None:
        super().__init__(why)
        self.values = values


def _narrow(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array of the dtype that JAX makes of its dtype, where numbers fit.

    Raises:
        _BeyondJaxError: one does not.
    """
    if array.dtype.kind not in "iufc" or array.dtype.itemsize < 8:
        return array
    dtype = jax.dtypes.canonicalize_dtype(array.dtype)
    if dtype == array.dtype:
        return array
    try:
        return as_dtype(array, dtype, rounds=True)
    except ValueError as error:
        raise _BeyondJaxError(str(error), array) from error


def _column_of(batch: Any, values: npt.NDArray[Any]) -> Any:
    """Return the key or position of the column that holds an array; None if none is the array."""
    columns: list[tuple[Any, Any]] = []
    if isinstance(batch, Mapping):
        columns = list(batch.items())
    elif isinstance(batch, tuple):
        columns = list(enumerate(batch))
    for key, column in columns:
        if column is values:
            return key
        if isinstance(column, np.ndarray) and np.shares_memory(column, values):
            return key
    return None


def _is_number(dtype: np.dtype[Any]) -> bool:
    """Return whether JAX has a dtype: numpy's numbers but long doubles, or one of ml_dtypes."""
    if dtype.kind == "c":
        return dtype.itemsize <= _MAX_COMPLEX_BYTES
    if dtype.kind in "biuf":
        return dtype.itemsize <= _MAX_NUMBER_BYTES
    return dtype.kind == "V" and bool(jax.dtypes.issubdtype(dtype, jax.numpy.number))


# ---------------------------------------------------------------------- ragged values as pytrees


def _flatten(ragged: Ragged) -> tuple[tuple[Any, Any], None]:
    return (ragged.values, ragged.offsets), None


def _unflatten(_: None, parts: Iterator[Any]) -> Ragged:
    """Make a ragged value without its constructor, which checks its arrays.

    Here they may be tracers, or None.
    """
    ragged = object.__new__(Ragged)
    values, offsets = parts
    object.__setattr__(ragged, "values", values)
    object.__setattr__(ragged, "offsets", offsets)
    return ragged


jax.tree_util.register_pytree_node(Ragged, _flatten, _unflatten)
