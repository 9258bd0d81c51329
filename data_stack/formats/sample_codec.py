"""Encodes whole samples of any structure as records, for caches.

A record is the length of a text (u64, little-endian), the text, and after it the *parts*: the bytes
of the arrays, tensors and bytes in the sample. The text is JSON
(:mod:`data_stack.codecs.plain_data`), and refers to each part by its offset behind the text::

    {"part": {"dtype": "<f4", "shape": [28, 28], "offset": 0}}
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from data_stack.codecs.codec import import_optional
from data_stack.codecs.plain_data import PythonCodec, canonical_json, from_plain, to_plain
from data_stack.dataset.iterator.blocks import is_plain_tensor

#: The length of the text.
_LENGTH = struct.Struct("<Q")

#: The dtypes of arrays that are parts, as numpy writes them.
_DTYPE = re.compile(r"[<>|][biufcmMSU]\d+(\[\w+\])?")

#: The dtype of a part that is bytes, not an array.
_BYTES = "bytes"


def _import_torch() -> ModuleType:
    return import_optional("torch", "reading kept samples that are tensors", "torch", "torch")


class SampleCodec(PythonCodec):
    """Encodes the values of Python, numpy and torch that a stored cache keeps."""

    name = "sample"

    def encode(self, value: Any) -> bytes:
        self._check(value)
        parts = _PartsWriter()
        text = canonical_json(to_plain(value, self._describe, parts.put)).encode("ascii")
        return b"".join([_LENGTH.pack(len(text)), text, *parts.parts])

    def decode(self, record: bytes) -> Any:
        (n_text_bytes,) = _LENGTH.unpack_from(record)
        end_of_text = _LENGTH.size + n_text_bytes
        text = record[_LENGTH.size : end_of_text]
        parts = _PartsReader(record, end_of_text)
        return from_plain(json.loads(text), {**self._makers(), "part": parts.read})

    def _is_exact(self, value: Any) -> bool:
        return super()._is_exact(value) or is_plain_tensor(value)


class _PartsWriter:
    """Collects the parts of a sample.

    Attributes:
        parts: the bytes of each part.
    """

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self._n_bytes = 0

    def put(self, value: Any) -> dict[str, Any] | None:
        """Put a value aside, and return what refers to it; None if the value is no part."""
        if type(value) is bytes:
            return self._add(_BYTES, [len(value)], value)
        if type(value) in (np.ndarray, np.memmap) and _DTYPE.fullmatch(value.dtype.str):
            return self._add(value.dtype.str, value.shape, value.tobytes())
        if is_plain_tensor(value):
            return self._add(str(value.dtype), value.shape, _bytes_of_tensor(value))
        return None

    def _add(self, dtype: str, shape: Sequence[int], data: bytes) -> dict[str, Any]:
        reference = {"part": {"dtype": dtype, "shape": list(shape), "offset": self._n_bytes}}
        self.parts.append(data)
        self._n_bytes += len(data)
        return reference


def _bytes_of_tensor(tensor: Any) -> bytes:
    """Return the numbers of a tensor of torch's in C order."""
    # Conjugated and negated views share the memory of their tensor.
    values = tensor.resolve_conj().resolve_neg().contiguous().reshape(-1)
    data: bytes = values.view(_import_torch().uint8).numpy().tobytes()
    return data


class _PartsReader:
    """Makes values of the parts of a record, which may be a stranger's.

    Args:
        record: the record.
        start: the offset of the first part in bytes.
    """

    def __init__(self, record: bytes, start: int) -> None:
        self._record = record
        self._start = start

    def read(self, reference: Any) -> Any:
        """Return the value of the part that a reference names.

        Raises:
            Exception: the reference is invalid; a ValueError, or what numpy or torch raises for it.
        """
        dtype = reference["dtype"]
        shape = reference["shape"]
        offset = reference["offset"]
        if not all(type(number) is int and number >= 0 for number in (*shape, offset)):
            raise ValueError(f"a part of the shape {shape!r:.80} at {offset!r:.40}")
        start = self._start + offset
        if dtype == _BYTES:
            return self._record[start : start + math.prod(shape)]
        if _DTYPE.fullmatch(dtype):
            return np.ndarray(shape, dtype, self._record, start).copy()
        return self._read_tensor(dtype, shape, start)

    def _read_tensor(self, dtype_name: str, shape: Sequence[int], start: int) -> Any:
        """Return a tensor of torch's.

        Raises:
            ValueError: torch has no such dtype.
        """
        torch = _import_torch()
        dtype = getattr(torch, dtype_name.removeprefix("torch."))
        if not isinstance(dtype, torch.dtype):
            raise ValueError(f"no dtype {dtype_name!r:.40}")
        n_bytes = math.prod(shape) * dtype.itemsize
        # A copy, as the memory of a tensor must be writable, and bytes are not.
        data = bytearray(memoryview(self._record)[start : start + n_bytes])
        if data:
            values = torch.frombuffer(data, dtype=dtype)
        else:
            values = torch.empty(0, dtype=dtype)
        return values.reshape(shape)
