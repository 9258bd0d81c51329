"""Reads arrays from MATLAB's ``.mat`` files of version 5 as streams, without holding them in memory.

The format: https://www.mathworks.com/help/pdf_doc/matlab/matfile_format.pdf. Only arrays of numbers are read; nothing runs.
"""

from __future__ import annotations

import io
import math
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from data_stack.exception import DatasetFileCorruptError

_NUMBERS = {
    1: "i1",
    2: "u1",
    3: "<i2",
    4: "<u2",
    5: "<i4",
    6: "<u4",
    7: "<f4",
    9: "<f8",
    12: "<i8",
    13: "<u8",
}
_ARRAY, _COMPRESSED = 14, 15
_INPUT_BYTES = 1 << 14
#: Names and shapes are short.
_MAX_PART_BYTES = 1 << 12


def iterate_arrays(
    stream: Any, name: str
) -> Iterator[tuple[str, tuple[int, ...], np.dtype[Any], Any]]:
    """Iterate over the variables of a file.

    Args:
        stream: a seekable binary stream.
        name: its name for messages.

    Yields:
        Name of a variable; its shape, whose first index runs fastest; dtype of the stored values; and a stream at the first
        value, which is valid until the next variable.

    Raises:
        DatasetFileCorruptError: the file is not little-endian version 5, is damaged, or has variables that are not numbers.
    """
    if _read(stream, 128, name)[124:] != b"\0\1IM":
        raise DatasetFileCorruptError(
            f"{name!r} is not a little-endian .mat file of version 5. Fetch it again"
        )
    while stream.read(1):
        stream.seek(-1, io.SEEK_CUR)
        kind, size, _ = _read_tag(stream, name)
        following, body = stream.tell() + size, stream
        if kind == _COMPRESSED:
            body = io.BufferedReader(_Inflated(stream, name))
            kind = _read_tag(body, name)[0]
        if kind != _ARRAY:
            raise DatasetFileCorruptError(
                f"{name!r} has an element of type {kind}, expected an array. Fetch it again"
            )
        _read_part(body, name)  # class and flags
        shape = tuple(np.frombuffer(_read_part(body, name), "<i4").tolist())
        variable = _read_part(body, name).decode("latin-1")
        kind, size, values = _read_tag(body, name)
        dtype = np.dtype(_NUMBERS.get(kind, "V"))
        if size != math.prod(shape) * dtype.itemsize:
            raise DatasetFileCorruptError(
                f"{name!r} has {size} bytes of type {kind} for {variable!r} of shape {shape}, expected numbers. Fetch it again"
            )
        yield variable, shape, dtype, io.BytesIO(values) if values else body
        stream.seek(following)


def _read_tag(stream: Any, name: str) -> tuple[int, int, bytes]:
    """Return type and size of an element, and its data if it has at most four bytes, which are part of the tag."""
    tag = _read(stream, 8, name)
    kind, size = (int.from_bytes(part, "little") for part in (tag[:4], tag[4:]))
    small = kind >> 16
    return kind & 0xFFFF, small or size, tag[4 : 4 + small]


def _read_part(stream: Any, name: str) -> bytes:
    """Read a short element with its padding."""
    _, size, values = _read_tag(stream, name)
    if size > _MAX_PART_BYTES:
        raise DatasetFileCorruptError(
            f"{name!r} is damaged: the header of an array claims {size} bytes. Fetch it again"
        )
    return values or _read(stream, -(-size // 8) * 8, name)[:size]


def _read(stream: Any, n_bytes: int, name: str) -> bytes:
    data = bytes(stream.read(n_bytes))
    if len(data) < n_bytes:
        raise DatasetFileCorruptError(
            f"{name!r} is truncated: {n_bytes - len(data)} bytes are missing. Fetch it again"
        )
    return data


class _Inflated(io.RawIOBase):
    """The content of a compressed element, which marks its own end."""

    def __init__(self, stream: Any, name: str) -> None:
        self._stream, self._name, self._library = stream, name, zlib.decompressobj()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        output, data = b"", b" "
        while data and not output and not self._library.eof:
            data = self._library.unconsumed_tail or self._stream.read(_INPUT_BYTES)
            try:
                output = self._library.decompress(data, len(buffer))
            except zlib.error as error:
                raise DatasetFileCorruptError(
                    f"{self._name!r} is damaged: {error}. Fetch it again"
                ) from error
        buffer[: len(output)] = output
        return len(output)
