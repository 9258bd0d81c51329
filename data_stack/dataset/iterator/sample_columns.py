"""The columns of samples, and the kind of values of a column."""

from __future__ import annotations

import contextlib
import itertools
import math
import operator
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from data_stack.exception import MissingDependencyError
from data_stack.values.stacking import Batch, Column, as_array

_PYTHON_KINDS = {bool: np.bool_, int: np.int64, float: np.float64}
_SCALAR_KINDS = "biufcmM"  # strings of numpy's are as long as their value, each another dtype
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1


# ------------------------------------------------------------------ how columns make a sample


@dataclass(frozen=True)
class SampleStructure:
    """How samples are put together from the values of their columns.

    Attributes:
        form: ``"tuple"``, ``"dict"``; ``"bare"``: the sample is the only column's value.
        n_columns: at least 1.
        keys: the keys of a dict in their order.
    """

    form: Literal["bare", "tuple", "dict"]
    n_columns: int = 1
    keys: tuple[str, ...] = ()

    @classmethod
    def of(cls, sample: Any) -> SampleStructure:
        """The structure that makes exactly such a sample; of any other type, and of an empty one, ``"bare"``."""
        kind = type(sample)
        if kind is tuple and sample:
            return cls("tuple", len(sample))
        if kind is dict and sample and all(type(key) is str for key in sample):
            return cls("dict", len(sample), tuple(sample))
        return cls("bare")

    def columns_of(self, samples: Sequence[Any]) -> list[Sequence[Any]] | None:
        """The values of each column; None if a sample is of another structure."""
        if self.form == "bare":
            return [samples]
        if set(map(type, samples)) != {dict if self.form == "dict" else tuple}:
            return None
        if self.form == "dict":
            if any(tuple(sample) != self.keys for sample in samples):
                return None
            if set(map(type, itertools.chain.from_iterable(samples))) != {str}:  # equal to a str, but no str
                return None
            return [[sample[key] for sample in samples] for key in self.keys]
        if set(map(len, samples)) != {self.n_columns}:
            return None
        return list(zip(*samples, strict=True))

    def samples_of(self, columns: Sequence[Sequence[Any]]) -> list[Any]:
        """The samples whose columns have these values."""
        if self.form == "bare":
            return list(columns[0])
        rows = zip(*columns, strict=True)
        if self.form == "dict":
            return [dict(zip(self.keys, row, strict=True)) for row in rows]
        return list(rows)

    def reader(self, columns: Sequence[Any]) -> Callable[[int], Any]:
        """A function that returns the sample at a position; ``columns`` are indexed with it."""
        if self.form == "bare":
            read: Callable[[int], Any] = columns[0].__getitem__
            return read
        if self.form == "tuple":
            return sample_reader(columns)
        named = list(zip(self.keys, columns, strict=True))
        return lambda index: {key: column[index] for key, column in named}

    def batch_of(self, columns: Sequence[Column]) -> Batch:
        """Stacked columns as a batch."""
        if self.form == "bare":
            return columns[0]
        if self.form == "dict":
            return dict(zip(self.keys, columns, strict=True))
        return tuple(columns)

    def column_at(self, key: int | str) -> int | None:
        """The number of the column that ``key`` names; None if it does not exist, or if samples are bare."""
        if self.form == "bare":
            return None
        if self.form == "dict":
            return self.keys.index(key) if isinstance(key, str) and key in self.keys else None
        if not hasattr(key, "__index__"):
            return None
        position = operator.index(key)
        return position % self.n_columns if -self.n_columns <= position < self.n_columns else None


def sample_reader(columns: Sequence[Any]) -> Callable[[int], tuple[Any, ...]]:
    """A function that returns the tuple of the columns' values at a position; of a sample and its target in half the time."""
    if len(columns) == 2:
        first, second = columns
        return lambda index: (first[index], second[index])
    return lambda index: tuple([column[index] for column in columns])


# ------------------------------------------------------------------ what a column holds


@dataclass(frozen=True)
class ValueKind:
    """The type, dtype and shape of all values of a column, so that one array can hold them exactly.

    Attributes:
        name: ``"bool"``, ``"int"`` (within 64 bits), ``"float"`` of Python's; ``"scalar"`` and ``"array"`` of numpy's;
            ``"tensor"`` of torch's; ``"object"`` for anything else.
        dtype: of the array; None of objects.
        shape: of each array or tensor.
    """

    name: str
    dtype: Any = None
    shape: tuple[int, ...] = ()


OBJECT = ValueKind("object")


def kind_of(values: Sequence[Any]) -> ValueKind:
    """The kind that all of ``values``, at least one, have; ``"object"`` if they have none in common."""
    types = set(map(type, values))
    if len(types) > 1:
        return OBJECT
    (only,) = types
    if only in _PYTHON_KINDS:
        is_large = only is int and (min(values) < _SMALLEST or max(values) > _LARGEST)
        return OBJECT if is_large else ValueKind(only.__name__, np.dtype(_PYTHON_KINDS[only]))
    if only is np.ndarray or only is np.memmap:  # rows of a mapped file are read: that is what keeping them is for
        if _are_alike(values) and not values[0].dtype.hasobject:
            return ValueKind("array", values[0].dtype, values[0].shape)
    elif issubclass(only, np.generic):
        dtypes = {value.dtype for value in values}
        dtype = values[0].dtype
        # np.longlong is another type than np.int64, of an equal dtype
        if len(dtypes) == 1 and dtype.kind in _SCALAR_KINDS and np.dtype(dtype.str).type is only:
            return ValueKind("scalar", dtype)
    elif all(map(is_plain_tensor, values)) and _are_alike(values):
        with contextlib.suppress(TypeError):  # a dtype that numpy lacks
            return ValueKind("tensor", as_array(values[0]).dtype, tuple(values[0].shape))
    return OBJECT


def _are_alike(arrays: Sequence[Any]) -> bool:
    """Whether arrays or tensors have one shape and one dtype."""
    return len({array.shape for array in arrays}) == 1 and len({array.dtype for array in arrays}) == 1


def is_plain_tensor(value: Any) -> bool:
    """Whether this is a tensor of torch's, and nothing but numbers in this machine's memory."""
    torch = sys.modules.get("torch")  # a tensor can only be there if torch is; importing it takes seconds
    if torch is None or type(value) is not getattr(torch, "Tensor", None):
        return False
    is_dense = value.device.type == "cpu" and value.layout is torch.strided
    return is_dense and not value.requires_grad and not value.is_quantized


def torch_module() -> Any:
    """torch, for values that are tensors.

    Raises:
        MissingDependencyError: it is not installed.
    """
    try:
        import torch  # heavy, optional
    except ImportError as error:
        raise MissingDependencyError("reading kept samples that are tensors", "torch", "torch") from error
    return torch


# ------------------------------------------------------------------ how much memory a sample takes

_ARRAY_BYTES = 112  # of the object around the numbers
_MAX_DEPTH = 8


def estimate_bytes(value: Any, depth: int = 0) -> int:
    """Roughly the memory that ``value`` takes: arrays, tensors, images, strings, containers and dataclasses are measured.

    What several values share is counted for each; what an array is a view of is not counted.
    """
    try:
        n_bytes = getattr(value, "nbytes", None)  # arrays, numpy scalars, tensors, memoryviews
    except Exception:  # noqa: BLE001  # sparse tensors raise, and any other class may
        n_bytes = None
    if isinstance(n_bytes, int):
        own = n_bytes + _ARRAY_BYTES
        items: Iterable[Any] = value.ravel().tolist() if isinstance(value, np.ndarray) and value.dtype == object else ()
    else:
        own = sys.getsizeof(value, _ARRAY_BYTES)
        if isinstance(value, Mapping):
            items = itertools.chain(value, value.values())
        elif isinstance(value, (tuple, list, set, frozenset)):
            items = value
        elif hasattr(value, "getbands") and hasattr(value, "size"):  # an image of PIL
            own += int(math.prod(value.size)) * len(value.getbands())
            items = ()
        elif hasattr(type(value), "__dataclass_fields__"):
            items = [getattr(value, name, None) for name in type(value).__dataclass_fields__]
        else:
            items = ()
    return own + sum(estimate_bytes(item, depth + 1) for item in items) if depth < _MAX_DEPTH else own
