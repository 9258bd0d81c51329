"""What the columns of stored samples are: rows of one dtype and shape, or values that a codec writes."""

from __future__ import annotations

import base64
import functools
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union

import numpy as np

from data_stack.codecs.codec import Codec
from data_stack.codecs.plain import BytesCodec, Utf8Codec
from data_stack.codecs.python_values import PythonCodec
from data_stack.dataset.iterator.sample_columns import SampleStructure, ValueKind, is_plain_tensor, kind_of, rows_of, values_of

__all__ = ["MALFORMED", "ColumnKind", "described_schema", "kind_for", "kind_of_description", "structure_of"]

_DTYPE = re.compile(r"[<>|][biufcmMSU]\d+(\[\w+\])?")
_TORCH_DTYPE = re.compile(r"[a-z]+[0-9a-z_]*")
_NUMBERS = ("bool", "int", "float", "complex")

MALFORMED = (ValueError, TypeError, LookupError, AttributeError, OverflowError, RuntimeError, MemoryError, struct.error)
"""What decoding raises of bytes that nobody encoded; RecursionError is a RuntimeError."""


@dataclass(frozen=True, repr=False)
class _SampleCodec(PythonCodec):
    """Any values of Python's, numpy's and torch's."""

    name = "sample"

    def _described(self, value: Any) -> dict[str, Any] | None:
        if not is_plain_tensor(value):
            return super()._described(value)
        kind = kind_of([value])
        data = rows_of(kind, [value]).tobytes()
        return {"tensor": {**_kind_described(kind), "base64": base64.b64encode(data).decode("ascii")}}

    def _makers(self) -> Mapping[str, Callable[[Any], Any]]:
        return {**super()._makers(), "tensor": _tensor}

    def _is_exact(self, value: Any) -> bool:
        return super()._is_exact(value) or is_plain_tensor(value)


def _tensor(content: Any) -> Any:
    kind = _checked_kind("tensor", content["dtype"], content["shape"])
    data = np.frombuffer(bytearray(base64.b64decode(content["base64"], validate=True)), dtype=np.uint8)
    return values_of(kind, data.reshape(1, kind.row_bytes))[0]


ColumnKind = Union[ValueKind, Codec]
"""Rows of that kind, or values that the codec writes."""


@functools.cache
def _codec(name: str) -> Codec:
    from data_stack.codecs.npy import NpyCodec  # brings msgpack, which few programs need

    known = (Utf8Codec(errors="surrogatepass"), BytesCodec(), NpyCodec(), _SampleCodec())
    return {codec.name: codec for codec in known}[name]


def kind_for(values: Sequence[Any], rows_before: ValueKind | None) -> ColumnKind:
    """How to write these values of a column; ``rows_before``: the rows that it began with, if these are rows of arrays."""
    kind = kind_of(values)
    # large arrays come few to a block; were each shape a kind of its own, there would be as many kinds as blocks
    if kind.is_fixed and (kind.name in _NUMBERS or (_is_writable(kind) and rows_before in (None, kind))):
        return kind
    if kind.name in ("str", "bytes"):
        return _codec("utf8" if kind.name == "str" else "bytes")
    are_arrays = all(type(value) in (np.ndarray, np.memmap) and _DTYPE.fullmatch(value.dtype.str) for value in values)
    return _codec("npy" if are_arrays else "sample")


def _is_writable(kind: ValueKind) -> bool:
    return kind.name == "tensor" or _DTYPE.fullmatch(kind.dtype.str) is not None


def _kind_described(kind: ColumnKind) -> dict[str, Any]:
    if isinstance(kind, Codec):
        return {"codec": kind.name}
    return {
        "rows": kind.name,
        "dtype": kind.dtype if kind.name == "tensor" else kind.dtype.str,
        "shape": list(kind.shape),
    }


def kind_of_description(described: Any) -> ColumnKind:
    """The kind that a header describes.

    Raises:
        ValueError, TypeError, LookupError: it describes none.
    """
    if "codec" in described:
        return _codec(described["codec"])
    return _checked_kind(described["rows"], described["dtype"], described["shape"])


def _checked_kind(name: Any, dtype: Any, extents: Any) -> ValueKind:
    is_tensor, shape = name == "tensor", tuple(extents)
    if name not in ("array", "scalar", "tensor", *_NUMBERS) or not (_TORCH_DTYPE if is_tensor else _DTYPE).fullmatch(dtype):
        raise ValueError(f"rows of {name!r:.40} and dtype {dtype!r:.40}")
    if any(type(extent) is not int or extent < 0 for extent in shape) or (shape and name in ("scalar", *_NUMBERS)):
        raise ValueError(f"rows of the shape {shape!r:.80}")
    kind = ValueKind(name, dtype if is_tensor else np.dtype(dtype), shape)
    np.empty((0, *kind.shape), dtype=kind.row_dtype)  # refuses what no array can be, which zeros would hide
    return kind


def described_schema(structure: SampleStructure, kinds: Sequence[ColumnKind]) -> dict[str, Any]:
    """What :func:`structure_of` and :func:`kind_of_description` make the same of."""
    made_by = structure.made_by
    return {
        "form": structure.form,
        "keys": list(structure.keys),
        "made_by": None if made_by is None else f"{made_by.__module__}.{made_by.__qualname__}",
        "columns": list(map(_kind_described, kinds)),
    }


def structure_of(described: Any) -> SampleStructure:
    """How samples are put together; of a named tuple without its class."""
    form, keys, n_columns = described["form"], tuple(described["keys"]), len(described["columns"])
    expected = {"bare": 1, "dict": len(keys), "named": len(keys), "tuple": n_columns, "list": n_columns}[form]
    if n_columns != expected or n_columns < 1 or not all(isinstance(key, str) for key in keys) or len(set(keys)) != len(keys):
        raise ValueError(f"samples of {n_columns} columns {keys!r:.80}")
    return SampleStructure(form, n_columns, keys)
