"""What samples are made of: the columns of a sample, and the one kind of value that a column has."""

from __future__ import annotations

import functools
import itertools
import math
import operator
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.stacking import Batch, Column, as_array, stack_values
from data_stack.exception import MissingDependencyError

__all__ = [
    "OBJECT",
    "Rows",
    "SampleStructure",
    "ValueKind",
    "accessible",
    "estimated_bytes",
    "is_plain_tensor",
    "kind_of",
    "rows_of",
    "sample_reader",
    "stacked_rows",
    "tensors_of",
    "values_of",
]

Rows = npt.NDArray[Any]
"""Values of one fixed kind, shape ``(n, *kind.row_shape)``, dtype ``kind.row_dtype``."""

_PYTHON_KINDS: dict[type, str] = {
    type(None): "none",
    bool: "bool",
    int: "int",
    float: "float",
    complex: "complex",
    str: "str",
    bytes: "bytes",
}
_PYTHON_DTYPES: dict[str, np.dtype[Any]] = {
    "bool": np.dtype(np.bool_),
    "int": np.dtype(np.int64),
    "float": np.dtype(np.float64),
    "complex": np.dtype(np.complex128),
}
_SCALAR_KINDS = "biufcmM"  # strings of numpy's are as long as their value, each another dtype
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1


# ------------------------------------------------------------------ how columns make a sample


@dataclass(frozen=True)
class SampleStructure:
    """How samples are put together from the values of their columns.

    Attributes:
        form: ``"tuple"``, ``"list"``, ``"named"`` (a named tuple), ``"dict"``; ``"bare"``: the sample is the only column's value.
        n_columns: at least 1.
        keys: the keys of a dict in their order, the fields of a named tuple.
        made_by: the class of a named tuple.
    """

    form: Literal["bare", "tuple", "list", "named", "dict"]
    n_columns: int = 1
    keys: tuple[str, ...] = ()
    made_by: type[Any] | None = None

    @classmethod
    def of(cls, sample: Any) -> SampleStructure:
        """The structure that gives back exactly such a sample; of any other type, and of an empty one, ``"bare"``."""
        kind = type(sample)
        if kind is tuple and sample:
            return cls("tuple", len(sample))
        if kind is list and sample:
            return cls("list", len(sample))
        if kind is dict and sample and all(type(key) is str for key in sample):
            return cls("dict", len(sample), tuple(sample))
        fields = getattr(kind, "_fields", None)
        if issubclass(kind, tuple) and sample and isinstance(fields, tuple) and len(fields) == len(sample):
            return cls("named", len(sample), fields, kind)
        return cls("bare")

    def columns_of(self, samples: Sequence[Any]) -> list[Sequence[Any]] | None:
        """The values of each column; None if a sample is of another structure."""
        if self.form == "bare":
            return [samples]
        if set(map(type, samples)) != {self._type()}:
            return None
        if self.form == "dict":
            if any(tuple(sample) != self.keys for sample in samples):
                return None
            if set(map(type, itertools.chain.from_iterable(samples))) != {str}:  # equal to a str, but no str
                return None
            return [[sample[key] for sample in samples] for key in self.keys]
        if set(map(len, samples)) != {self.n_columns}:
            return None
        if self.form == "named" and any(getattr(sample, "__dict__", None) for sample in samples):
            return None  # it carries more than its fields
        return list(zip(*samples, strict=True))

    def samples_of(self, columns: Sequence[Sequence[Any]]) -> list[Any]:
        """The samples whose columns have these values."""
        if self.form == "bare":
            return list(columns[0])
        rows = zip(*columns, strict=True)
        if self.form == "tuple":
            return list(rows)
        return list(map(self._assembly(), rows))

    def reader(self, columns: Sequence[Any]) -> Callable[[int], Any]:
        """A function that gives the sample at a position; ``columns`` are indexed with it."""
        if self.form == "bare":
            read: Callable[[int], Any] = columns[0].__getitem__
            return read
        if self.form == "tuple":
            return sample_reader(columns)
        if self.form == "dict":
            named = list(zip(self.keys, columns, strict=True))
            return lambda index: {key: column[index] for key, column in named}
        if self.form == "list":
            return lambda index: [column[index] for column in columns]
        assemble = self._assembly()
        return lambda index: assemble([column[index] for column in columns])

    def batch_of(self, columns: Sequence[Column]) -> Batch:
        """Stacked columns as a batch."""
        if self.form == "bare":
            return columns[0]
        if self.form == "dict":
            return dict(zip(self.keys, columns, strict=True))
        return tuple(columns)

    def column_at(self, key: int | str) -> int | None:
        """The number of the column that ``key`` names; None if there is none, or if a sample is bare."""
        if self.form == "bare":
            return None
        if self.form == "dict":
            return self.keys.index(key) if isinstance(key, str) and key in self.keys else None
        if not hasattr(key, "__index__"):
            return None
        position = operator.index(key)
        return position % self.n_columns if -self.n_columns <= position < self.n_columns else None

    def _type(self) -> type[Any]:
        return self.made_by or {"tuple": tuple, "list": list, "dict": dict}[self.form]

    def _assembly(self) -> Callable[[Any], Any]:
        """What makes a sample of the sequence of its values."""
        if self.form == "dict":
            keys = self.keys
            return lambda values: dict(zip(keys, values, strict=True))
        if self.made_by is not None:
            return functools.partial(tuple.__new__, self.made_by)  # as _make() does, whatever the class makes of __new__
        return self._type()


def sample_reader(columns: Sequence[Any]) -> Callable[[int], tuple[Any, ...]]:
    """A function that gives the tuple of the columns' values at a position; of a sample and its target in half the time."""
    if len(columns) == 2:
        first, second = columns
        return lambda index: (first[index], second[index])
    return lambda index: tuple([column[index] for column in columns])


# ------------------------------------------------------------------ what a column holds


@dataclass(frozen=True)
class ValueKind:
    """What all values of a column have in common, so that they come back from one array the same, type and all.

    Attributes:
        name: ``"none"``, ``"bool"``, ``"int"`` (within 64 bits), ``"float"``, ``"complex"``, ``"str"``, ``"bytes"`` of Python's;
            ``"scalar"`` and ``"array"`` of numpy's; ``"tensor"`` of torch's; ``"object"`` for anything else.
        dtype: of a kind with rows; of tensors the name of torch's.
        shape: of each array or tensor.
    """

    name: str
    dtype: Any = None
    shape: tuple[int, ...] = ()

    @property
    def is_fixed(self) -> bool:
        """Whether each value takes the same number of bytes, one row."""
        return self.dtype is not None

    @property
    def row_shape(self) -> tuple[int, ...]:
        """The shape of one row; tensors are kept as bytes, for numpy lacks some of their dtypes."""
        return (self.row_bytes,) if self.name == "tensor" else self.shape

    @property
    def row_dtype(self) -> np.dtype[Any]:
        """The dtype of rows."""
        dtype: np.dtype[Any] = np.dtype(np.uint8) if self.name == "tensor" else self.dtype
        return dtype

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        if self.name == "tensor":
            return math.prod(self.shape) * int(_torch().empty(0, dtype=self.torch_dtype).element_size())
        return math.prod(self.shape) * int(self.dtype.itemsize)

    @property
    def torch_dtype(self) -> Any:
        """The dtype of tensors."""
        return getattr(_torch(), self.dtype)


OBJECT = ValueKind("object")


def kind_of(values: Sequence[Any]) -> ValueKind:
    """The kind that all of ``values``, at least one, have; ``"object"`` if they have none in common."""
    types = set(map(type, values))
    if len(types) > 1:
        return OBJECT
    (only,) = types
    name = _PYTHON_KINDS.get(only)
    if name is not None:
        if name == "int" and (min(values) < _SMALLEST or max(values) > _LARGEST):
            return OBJECT
        return ValueKind(name, _PYTHON_DTYPES.get(name))
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
        return ValueKind("tensor", str(values[0].dtype).removeprefix("torch."), tuple(values[0].shape))
    return OBJECT


def _are_alike(arrays: Sequence[Any]) -> bool:
    """Whether arrays or tensors have one shape and one dtype."""
    return len({array.shape for array in arrays}) == 1 and len({array.dtype for array in arrays}) == 1


def rows_of(kind: ValueKind, values: Sequence[Any], out: Rows | None = None) -> Rows:
    """Values of a fixed kind as rows, written to ``out`` if given."""
    rows: Rows = np.empty((len(values), *kind.row_shape), dtype=kind.row_dtype) if out is None else out
    if rows.size == 0:
        return rows
    if kind.name == "tensor":
        torch = _torch()
        stacked = torch.stack(list(values)).resolve_conj().resolve_neg().contiguous()
        rows[...] = stacked.reshape(len(values), -1).view(torch.uint8).numpy()
    elif kind.name == "array" and kind.shape:
        # three times as fast as np.stack, which reshapes each of them
        np.concatenate(values, out=rows.reshape(len(values) * kind.shape[0], *kind.shape[1:]))
    elif kind.name == "array":
        for row, value in enumerate(values):
            rows[row] = value
    else:
        rows[...] = np.array(values, dtype=kind.dtype)
    return rows


def values_of(kind: ValueKind, rows: Rows) -> list[Any]:
    """The values that rows were made of; arrays and tensors share the memory of ``rows``."""
    if kind.name == "tensor":
        return list(tensors_of(kind, rows).unbind(0)) if len(rows) else []
    if kind.name == "array" and not kind.shape:
        return [rows[row, ...] for row in range(len(rows))]  # rows[row] would be a scalar
    return list(rows) if kind.name in ("array", "scalar") else rows.tolist()


def tensors_of(kind: ValueKind, rows: Rows) -> Any:
    """Rows of tensors as one tensor of shape ``(n, *kind.shape)``, which shares their memory."""
    torch = _torch()
    if rows.size == 0:
        return torch.empty((len(rows), *kind.shape), dtype=kind.torch_dtype)
    if not rows.flags.writeable:  # torch knows no such memory
        rows = rows.copy()
    return torch.from_numpy(rows).view(kind.torch_dtype).reshape((len(rows), *kind.shape))


def stacked_rows(kind: ValueKind, rows: Rows) -> Column:
    """What :func:`stack_values` makes of the values of ``rows``; shares their memory where it can."""
    if kind.name != "tensor":
        return rows
    tensors = tensors_of(kind, rows)
    try:
        return as_array(tensors)
    except TypeError:  # a dtype that numpy lacks
        return stack_values(list(tensors)) if len(rows) else np.empty(0, dtype=object)


def accessible(kind: ValueKind, rows: Rows) -> Any:
    """``rows`` as what gives a value by position the fastest, for positions in ``[0, len(rows))``."""
    if kind.name in ("bool", "int", "float"):
        return rows.data  # gives a Python number, in half the time of item()
    if kind.name == "complex":
        return rows.tolist()
    if kind.name == "tensor":
        return tensors_of(kind, rows)
    return values_of(kind, rows) if kind.name == "array" and not kind.shape else rows


def is_plain_tensor(value: Any) -> bool:
    """Whether this is a tensor of torch's, and nothing but numbers in this machine's memory."""
    torch = sys.modules.get("torch")  # a tensor can only be there if torch is; importing it takes seconds
    if torch is None or type(value) is not getattr(torch, "Tensor", None):
        return False
    is_dense = value.device.type == "cpu" and value.layout is torch.strided
    return is_dense and not value.requires_grad and not value.is_quantized


def _torch() -> Any:
    module = sys.modules.get("torch")
    if module is None:
        try:
            import torch as module  # heavy, optional
        except ImportError as error:
            raise MissingDependencyError("reading kept samples that are tensors", "torch", "torch") from error
    return module


# ------------------------------------------------------------------ how much memory a sample takes

_ARRAY_BYTES = 112  # of the object around the numbers
_MOST_DEPTH = 8


def estimated_bytes(value: Any, depth: int = 0) -> int:
    """Roughly the memory that ``value`` takes: arrays, tensors, images, strings, containers and dataclasses are measured.

    What several values share is counted for each; what an array is a view of is not counted.
    """
    try:
        n_bytes = getattr(value, "nbytes", None)  # arrays, numpy scalars, tensors, memoryviews
    except Exception:  # noqa: BLE001  # sparse tensors have none, and any other class may be anybody's
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
    return own + sum(estimated_bytes(item, depth + 1) for item in items) if depth < _MOST_DEPTH else own
