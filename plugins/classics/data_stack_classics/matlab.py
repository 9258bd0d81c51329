"""Reads arrays from MATLAB's ``.mat`` files of version 5 as streams.

``scipy.io.loadmat`` holds a whole variable in memory: 1.6 GB for the largest file of SVHN, and
150 MB for 50,000 of its images, of which this module needs 4 MB in the same time. It would also
bring SciPy, which has 110 MB, to those who install a package of datasets.

The format: https://www.mathworks.com/help/pdf_doc/matlab/matfile_format.pdf. A file is a header and
elements; an element is a tag, which has its type and size, and its data. Only arrays of numbers
are read: the classes, functions and objects that a file may hold are errors.
"""

from __future__ import annotations

import io
import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from data_stack.exception import DatasetFileCorruptError

#: dtypes of numbers by the type of their element.
_DTYPES = {
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

#: Types of the elements that a file consists of: a variable, and an element compressed by zlib.
_ARRAY = 14
_COMPRESSED = 15

_HEADER_BYTES = 128

#: How the header ends: version 1.0 of the format, and its byte order.
_LITTLE_ENDIAN_VERSION_5 = b"\0\1IM"

#: How much compressed data is read at once.
_INPUT_BYTES = 1 << 14

#: Names and shapes are short.
_MAX_PART_BYTES = 1 << 12


@dataclass(frozen=True, slots=True)
class StoredArray:
    """A variable of a file.

    Attributes:
        name: name of the variable.
        shape: its shape; the first index runs fastest.
        dtype: dtype of the stored values.
        stream: a binary stream at the first value, valid until the next variable is asked for.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    stream: IO[bytes]


@dataclass(frozen=True, slots=True)
class _Tag:
    """What precedes the data of an element.

    Attributes:
        kind: type of the data.
        size: length of the data in bytes.
        short_data: the data, if it is part of the tag; it has at most four bytes then.
    """

    kind: int
    size: int
    short_data: bytes


def iterate_arrays(stream: Any, name: str) -> Iterator[StoredArray]:
    """Iterate over the variables of a file.

    Args:
        stream: a seekable binary stream.
        name: its name for messages.

    Raises:
        DatasetFileCorruptError: the file is not little-endian version 5, is damaged, or has
            variables that are not numbers.
    """
    header = _read(stream, _HEADER_BYTES, name)
    if not header.endswith(_LITTLE_ENDIAN_VERSION_5):
        raise DatasetFileCorruptError(
            f"{name!r} is not a little-endian .mat file of version 5. Fetch it again"
        )
    while stream.read(1):
        stream.seek(-1, io.SEEK_CUR)
        tag = _read_tag(stream, name)
        next_element = stream.tell() + tag.size

        # Each variable is compressed on its own.
        element = stream
        kind = tag.kind
        if kind == _COMPRESSED:
            element = io.BufferedReader(_InflatedStream(stream, name))
            kind = _read_tag(element, name).kind
        if kind != _ARRAY:
            raise DatasetFileCorruptError(
                f"{name!r} has an element of type {kind}, expected an array. Fetch it again"
            )
        yield _read_array(element, name)
        stream.seek(next_element)


def _read_array(stream: Any, name: str) -> StoredArray:
    """Read what precedes the values of a variable."""
    _read_part(stream, name)  # its class and flags, which the type of the values repeats
    shape = tuple(np.frombuffer(_read_part(stream, name), "<i4").tolist())
    variable = _read_part(stream, name).decode("latin-1")

    tag = _read_tag(stream, name)
    # Of what is no number, the dtype has no bytes, so that the size is wrong.
    dtype = np.dtype(_DTYPES.get(tag.kind, "V"))
    if tag.size != math.prod(shape) * dtype.itemsize:
        raise DatasetFileCorruptError(
            f"{name!r} has {tag.size} bytes of type {tag.kind} for {variable!r} of shape {shape}, "
            f"expected numbers. Fetch it again"
        )
    values = stream
    if tag.short_data:
        values = io.BytesIO(tag.short_data)
    return StoredArray(variable, shape, dtype, values)


def _read_tag(stream: Any, name: str) -> _Tag:
    tag = _read(stream, 8, name)
    first_word = int.from_bytes(tag[:4], "little")
    second_word = int.from_bytes(tag[4:], "little")
    kind = first_word & 0xFFFF
    # A short element has its size in the upper half of the first word, and its data in the second.
    short_size = first_word >> 16
    if short_size:
        return _Tag(kind, short_size, tag[4 : 4 + short_size])
    return _Tag(kind, second_word, b"")


def _read_part(stream: Any, name: str) -> bytes:
    """Return the data of a short element, and skip its padding to a multiple of eight bytes."""
    tag = _read_tag(stream, name)
    if tag.size > _MAX_PART_BYTES:
        raise DatasetFileCorruptError(
            f"{name!r} is damaged: the header of an array claims {tag.size} bytes. Fetch it again"
        )
    if tag.short_data:
        return tag.short_data
    padded_size = math.ceil(tag.size / 8) * 8
    return _read(stream, padded_size, name)[: tag.size]


def _read(stream: Any, n_bytes: int, name: str) -> bytes:
    data = bytes(stream.read(n_bytes))
    if len(data) < n_bytes:
        n_missing = n_bytes - len(data)
        raise DatasetFileCorruptError(
            f"{name!r} is truncated: {n_missing} bytes are missing. Fetch it again"
        )
    return data


class _InflatedStream(io.RawIOBase):
    """The data of a compressed element; the compressed data marks its own end.

    Args:
        stream: the file, at the compressed data.
        name: its name for messages.
    """

    _stream: Any
    _name: str
    _decompressor: Any

    def __init__(self, stream: Any, name: str) -> None:
        self._stream = stream
        self._name = name
        self._decompressor = zlib.decompressobj()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer in part; 0 at the end of the element, or of a file that is cut off."""
        output = b""
        while not output and not self._decompressor.eof:
            data = self._decompressor.unconsumed_tail or self._stream.read(_INPUT_BYTES)
            if not data:
                break
            try:
                output = self._decompressor.decompress(data, len(buffer))
            except zlib.error as error:
                raise DatasetFileCorruptError(
                    f"{self._name!r} is damaged: {error}. Fetch it again"
                ) from error
        buffer[: len(output)] = output
        return len(output)
