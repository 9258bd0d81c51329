"""Batches of a loader as JAX arrays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from data_stack.exception import MissingDependencyError
from data_stack.loader.collation import Ragged
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


@dataclass(frozen=True)
class JaxConversion(Conversion):
    """Converts the batches of a loader to JAX arrays: ``loader.jax()``.

    Arrays of numbers become JAX arrays of their shape. On the CPU they share memory if they begin at a multiple of 64 bytes and
    are C-contiguous; otherwise they are copied. As always in JAX, 64-bit types become 32-bit ones unless ``jax_enable_x64``
    is on. Strings, dates and other types that JAX lacks become lists of values; values that differ in shape become a list of
    arrays. Containers stay as they are; a :class:`~data_stack.loader.Ragged` has JAX arrays for values and offsets, and is
    a pytree.

    With a device, the copy of each batch starts one batch ahead, so that it overlaps with the training step.

    Args:
        device: a device or sharding of JAX's; None for JAX's default device, without committing the arrays to it.

    Raises (while iterating):
        ConfigError: a column of numbers or arrays has samples without a value (None).
    """

    name = "JAX arrays"
    device: Any = None

    def convert(self, batch: Any) -> Any:
        refuse_missing(batch, self.name)
        return map_nested(batch, self._as_jax_array)

    def convert_all(self, pairs: Pairs) -> Pairs:
        converted = super().convert_all(pairs)
        return (
            converted if self.device is None else one_ahead(converted)
        )  # device_put does not wait for its copy

    def _as_jax_array(self, value: Any) -> Any:
        if isinstance(value, np.generic):
            return jax.device_put(value, self.device) if _is_number(value.dtype) else value
        if not isinstance(value, np.ndarray):
            return (
                jax.device_put(value, self.device)
                if isinstance(value, jax.Array) and self.device is not None
                else value
            )
        if value.dtype == object:
            return map_nested(parts_of_objects(value), self._as_jax_array)
        if not _is_number(value.dtype):
            return value.tolist() if value.dtype.kind in "SU" or value.ndim == 0 else list(value)
        if not value.dtype.isnative:
            value = value.astype(value.dtype.newbyteorder("="))
        # Not jax.dlpack.from_dlpack: it shares memory under the same conditions, but commits the array to the CPU, which
        # excludes computations with arrays on other devices.
        return jax.device_put(value, self.device)


def _is_number(dtype: np.dtype[Any]) -> bool:
    """Whether JAX has the dtype: numpy's numbers except for long doubles, and those of ml_dtypes."""
    if dtype.kind in "biufc":
        return dtype.itemsize <= (16 if dtype.kind == "c" else 8)
    return bool(dtype.kind == "V" and jax.dtypes.issubdtype(dtype, jax.numpy.number))


def _flatten(ragged: Ragged) -> tuple[tuple[Any, Any], None]:
    return (ragged.values, ragged.offsets), None


def _unflatten(_: None, parts: Iterator[Any]) -> Ragged:
    # not by the constructor, which checks its arrays: here they may be tracers, or None
    ragged = object.__new__(Ragged)
    for name, part in zip(("values", "offsets"), parts, strict=True):
        object.__setattr__(ragged, name, part)
    return ragged


jax.tree_util.register_pytree_node(Ragged, _flatten, _unflatten)
