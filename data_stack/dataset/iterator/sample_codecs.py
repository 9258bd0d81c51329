"""How the values of a column of samples become bytes, and the same values again.

==============================  ============================================================================================
``none``                        no bytes: all values are None
``bool`` ``int`` ``float``      rows of 1, 8, 8 and 16 bytes: Python's values
``complex``
``scalar`` ``array``            rows of numpy's values, of the ``dtype`` and ``shape`` stated, in C order
``tensor``                      rows of torch's, likewise
``utf8`` ``bytes``              values: UTF-8 (surrogates too), bytes
``arrays`` ``tensors``          values: the extents (i64 each) of ``n_dimensions``, then the numbers in C order
``sample``                      values: JSON of :mod:`data_stack.codecs.plain_data`
==============================  ============================================================================================
"""

from __future__ import annotations

import base64
import functools
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Union

import numpy as np
import numpy.typing as npt

from data_stack.codecs.codec import Codec
from data_stack.codecs.plain import BytesCodec, Utf8Codec
from data_stack.codecs.python_values import PythonCodec
from data_stack.dataset.iterator.sample_columns import Rows, ValueKind, is_plain_tensor, kind_of, rows_of, tensors_of, values_of

__all__ = ["MALFORMED", "RowsCodec", "SampleCodec", "codec_for", "codec_of"]

MALFORMED = (ValueError, TypeError, LookupError, AttributeError, OverflowError, RuntimeError, MemoryError, struct.error)
"""What decoding raises of bytes that nobody encoded; RecursionError is a RuntimeError."""

_DTYPE = re.compile(r"[<>|][biufcmMSU]\d+(\[\w+\])?")
_MOST_DIMENSIONS = 32


@dataclass(frozen=True)
class RowsCodec:
    """Values of one size, or of none."""

    kind: ValueKind

    @functools.cached_property
    def row_bytes(self) -> int:
        """Bytes of one value."""
        return self.kind.row_bytes if self.kind.is_fixed else 0

    def value(self, data: memoryview) -> Any:
        """The value of ``row_bytes`` bytes."""
        name = self.kind.name
        if name == "none":
            return None
        if name == "array" and self.row_bytes:
            return np.frombuffer(bytearray(data), dtype=self.kind.dtype).reshape(self.kind.shape)
        if name in ("array", "tensor"):
            return values_of(self.kind, self.rows(np.frombuffer(bytearray(data), dtype=np.uint8).reshape(1, -1)))[0]
        value = np.frombuffer(data, dtype=self.kind.dtype)
        return value[0] if name == "scalar" else value.item()

    def encoded(self, values: Sequence[Any]) -> bytes:
        return rows_of(self.kind, values).tobytes() if self.row_bytes else b""

    def rows(self, data: npt.NDArray[np.uint8]) -> Rows:
        """The rows of bytes of shape ``(n, row_bytes)``, which must be this process's own."""
        if self.row_bytes == 0:
            return np.empty((len(data), *self.kind.row_shape), dtype=self.kind.row_dtype)
        return data.reshape(-1).view(self.kind.row_dtype).reshape(len(data), *self.kind.row_shape)

    def to_json(self) -> dict[str, Any]:
        """What :func:`codec_of` makes the same codec of."""
        if self.kind.name == "tensor":
            return {"codec": "tensor", "dtype": self.kind.dtype, "shape": list(self.kind.shape)}
        if self.kind.name in ("array", "scalar"):
            return {"codec": self.kind.name, "dtype": self.kind.dtype.str, "shape": list(self.kind.shape)}
        return {"codec": self.kind.name}


@dataclass(frozen=True, repr=False)
class _ArraysCodec(Codec):
    """Arrays or tensors of one dtype and number of dimensions, but not of one shape."""

    kind: ValueKind
    n_dimensions: int

    def encode(self, value: Any) -> bytes:
        shape = tuple(value.shape)
        return struct.pack(f"<{len(shape)}q", *shape) + rows_of(replace(self.kind, shape=shape), [value]).tobytes()

    def decode(self, record: Any) -> Any:
        data = memoryview(record)
        shape = struct.unpack_from(f"<{self.n_dimensions}q", data)
        kind = _checked_kind(replace(self.kind, shape=shape))
        numbers = np.frombuffer(bytearray(data[8 * self.n_dimensions :]), dtype=np.uint8)
        if len(numbers) != kind.row_bytes:
            raise ValueError(f"an array of shape {shape} in {len(numbers)} bytes")
        return values_of(kind, RowsCodec(kind).rows(numbers.reshape(1, -1)))[0]

    def to_json(self) -> dict[str, Any]:
        dtype = self.kind.dtype if self.kind.name == "tensor" else self.kind.dtype.str
        return {"codec": self.kind.name + "s", "dtype": dtype, "n_dimensions": self.n_dimensions}


@dataclass(frozen=True, repr=False)
class _SampleCodec(PythonCodec):
    """Any values of Python's, numpy's and torch's."""

    name = "sample"

    def _described(self, value: Any) -> dict[str, Any] | None:
        if not is_plain_tensor(value):
            return super()._described(value)
        kind = kind_of([value])
        data = rows_of(kind, [value]).tobytes()
        return {"tensor": {"dtype": kind.dtype, "shape": list(kind.shape), "base64": base64.b64encode(data).decode("ascii")}}

    def _makers(self) -> Mapping[str, Callable[[Any], Any]]:
        return {**super()._makers(), "tensor": _tensor}

    def _is_exact(self, value: Any) -> bool:
        return super()._is_exact(value) or is_plain_tensor(value)


SampleCodec = Union[RowsCodec, Codec]

_SIMPLE: dict[str, SampleCodec] = {
    "none": RowsCodec(ValueKind("none")),
    "bool": RowsCodec(ValueKind("bool", np.dtype(np.bool_))),
    "int": RowsCodec(ValueKind("int", np.dtype("<i8"))),
    "float": RowsCodec(ValueKind("float", np.dtype("<f8"))),
    "complex": RowsCodec(ValueKind("complex", np.dtype("<c16"))),
    "str": Utf8Codec(errors="surrogatepass"),
    "bytes": BytesCodec(),
    "plain": _SampleCodec(),
}


def _tensor(content: Any) -> Any:
    kind = _checked_kind(ValueKind("tensor", _checked_torch_dtype(content["dtype"]), tuple(content["shape"])))
    data = np.frombuffer(bytearray(base64.b64decode(content["base64"], validate=True)), dtype=np.uint8)
    return tensors_of(kind, data.reshape(1, kind.row_bytes))[0]


def codec_for(values: Sequence[Any], before: SampleCodec | None) -> SampleCodec:
    """How to write these values of a column whose last piece was written like ``before``."""
    kind = kind_of(values)
    if kind.is_fixed and kind.name != "scalar" and kind.name in _SIMPLE:
        return _SIMPLE[kind.name]
    if kind.is_fixed and _is_writable(kind):
        codec = RowsCodec(kind)
        # large arrays come few to a block; were each shape a kind of its own, there would be as many kinds as blocks
        if isinstance(before, _ArraysCodec) and before == _of_any_shape(kind):
            return before
        if isinstance(before, RowsCodec) and before != codec and _of_any_shape(before.kind) == _of_any_shape(kind):
            return _of_any_shape(kind)
        return codec
    if kind.name in _SIMPLE:
        return _SIMPLE[kind.name]
    kinds = {_of_any_shape(kind_of([value])) for value in values} if _are_arrays(values) else set()
    if len(kinds) == 1 and _is_writable(next(iter(kinds)).kind):
        return kinds.pop()
    return _SIMPLE["plain"]


def _are_arrays(values: Sequence[Any]) -> bool:
    return all(type(value) in (np.ndarray, np.memmap) or is_plain_tensor(value) for value in values)


def _of_any_shape(kind: ValueKind) -> _ArraysCodec:
    return _ArraysCodec(replace(kind, shape=()), len(kind.shape))


def _is_writable(kind: ValueKind) -> bool:
    return kind.name == "tensor" or (kind.dtype is not None and _DTYPE.fullmatch(kind.dtype.str) is not None)


def codec_of(described: Any) -> SampleCodec:
    """The codec that the header describes.

    Raises:
        ValueError, TypeError, LookupError: it describes none.
    """
    name = described["codec"]
    known = next((codec for codec in _SIMPLE.values() if codec.to_json() == described), None)
    if known is not None:
        return known
    kind_name, is_ragged = str(name).removesuffix("s"), str(name).endswith("s")
    if kind_name not in ("array", "tensor", "scalar") or (is_ragged and kind_name == "scalar"):
        raise ValueError(f"values of an unknown kind {name!r:.40}")
    dtype = _checked_torch_dtype(described["dtype"]) if kind_name == "tensor" else _checked_dtype(described["dtype"])
    if is_ragged:
        n_dimensions = described["n_dimensions"]
        if type(n_dimensions) is not int or not 0 <= n_dimensions <= _MOST_DIMENSIONS:
            raise ValueError(f"arrays of {n_dimensions!r:.40} dimensions")
        return _ArraysCodec(ValueKind(kind_name, dtype), n_dimensions)
    return RowsCodec(_checked_kind(ValueKind(kind_name, dtype, tuple(described["shape"]))))


def _checked_dtype(text: Any) -> np.dtype[Any]:
    if not isinstance(text, str) or not _DTYPE.fullmatch(text):
        raise ValueError(f"the dtype {text!r:.40}")
    return np.dtype(text)


def _checked_torch_dtype(text: Any) -> str:
    if not isinstance(text, str) or not re.fullmatch(r"[a-z]+[0-9a-z_]*", text):
        raise ValueError(f"the dtype {text!r:.40}")
    return text


def _checked_kind(kind: ValueKind) -> ValueKind:
    if len(kind.shape) > _MOST_DIMENSIONS or any(type(extent) is not int or extent < 0 for extent in kind.shape):
        raise ValueError(f"the shape {kind.shape!r:.80}")
    np.empty((0, *kind.shape), dtype=kind.row_dtype)  # refuses what no array can be, which zeros would hide
    return kind
