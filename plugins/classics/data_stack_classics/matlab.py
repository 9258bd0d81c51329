"""Reads arrays from MATLAB's ``.mat`` files of version 5 as streams.

``scipy.io.loadmat`` holds a whole variable in memory, which is 1.6 GB for the largest file of SVHN.
For 50,000 images, it needs 150 MB, and this module 4 MB, in the same time. Besides, SciPy is an
installation of 110 MB, which a package of datasets does not need otherwise.

The format: https://www.mathworks.com/help/pdf_doc/matlab/matfile_format.pdf. A file is a header,
and then elements. An element is a tag with its type and its size, and then its data. A variable is
an element that contains elements: its flags, its shape, its name, its values.

Arrays of real numbers are read. Texts, cells, structures, objects, functions, and sparse or complex
arrays are errors.
"""

from __future__ import annotations

import io
import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from data_stack.exception import DatasetFileCorruptError

#: The dtype of numbers by the type of their element.
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

#: The type of an element that is a variable.
_ARRAY = 14
#: The type of an element whose data is another element, compressed by zlib.
_COMPRESSED = 15

#: The classes of variables that are numbers, from double to uint64. The class is the first byte of
#: the flags.
_CLASSES_OF_NUMBERS = range(6, 16)
#: The bit of the second byte of the flags that says that the numbers are complex.
_COMPLEX_BIT = 0x08

_HEADER_BYTES = 128
_TAG_BYTES = 8
#: A tag has room for the data of an element of at most so many bytes.
_MAX_DATA_BYTES_OF_TAG = 4
#: Data is padded to a multiple of so many bytes.
_ALIGNMENT_BYTES = 8

#: How the header ends: version 1.0 of the format, and its byte order.
_LITTLE_ENDIAN_VERSION_5 = b"\0\1IM"

#: How much compressed data is read at once.
_INPUT_BYTES = 1 << 14

#: Limit of the size of flags, shape and name of a variable, which are read into memory.
_MAX_PART_BYTES = 1 << 12

#: Number of bytes of damaged data in a message.
_MAX_SHOWN_BYTES = 40


@dataclass(frozen=True, slots=True)
class StoredArray:
    """A variable of a file.

    Attributes:
        name: name of the variable.
        shape: shape of the variable, of which the first index runs fastest.
        dtype: dtype of the stored values. MATLAB stores doubles as small integers if they fit.
        stream: a binary stream at the first value. It is valid until the next variable is read.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    stream: io.BufferedIOBase


@dataclass(frozen=True, slots=True)
class _Tag:
    """What precedes the data of an element.

    Attributes:
        kind: type of the data.
        size: length of the data in bytes.
        data: the data, if the tag itself contains it; else empty, and the data follows the tag.
    """

    kind: int
    size: int
    data: bytes


def iterate_arrays(stream: io.BufferedIOBase, name: str) -> Iterator[StoredArray]:
    """Iterate over the variables of a file.

    Args:
        stream: a seekable binary stream.
        name: name of the file, for messages.

    Raises:
        DatasetFileCorruptError: the file is not little-endian version 5, is damaged, or has a
            variable that is no array of real numbers.
    """
    header = _read(stream, _HEADER_BYTES, name)
    if not header.endswith(_LITTLE_ENDIAN_VERSION_5):
        raise DatasetFileCorruptError(
            f"{name!r} is not a little-endian .mat file of version 5. Fetch it again"
        )
    while _has_more(stream):
        tag = _read_tag(stream, name)
        next_element = stream.tell() + tag.size

        # Each variable is compressed on its own.
        element: io.BufferedIOBase = stream
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


def _has_more(stream: io.BufferedIOBase) -> bool:
    """Return whether a stream goes on, without moving it."""
    position = stream.tell()
    next_byte = stream.read(1)
    stream.seek(position)
    return bool(next_byte)


def _read_array(stream: io.BufferedIOBase, name: str) -> StoredArray:
    """Read the flags, the shape and the name of a variable, and the tag of its values.

    Raises:
        DatasetFileCorruptError: the variable is damaged, or no array of real numbers.
    """
    flags = _read_part(stream, name)
    shape = _parse_shape(_read_part(stream, name), name)
    variable = _read_part(stream, name).decode("latin-1")
    _check_flags(flags, variable, name)

    tag = _read_tag(stream, name)
    type_of_values = _DTYPES.get(tag.kind)
    if type_of_values is None:
        raise DatasetFileCorruptError(
            f"{name!r} has values of type {tag.kind} for {variable!r}, expected numbers. "
            f"Fetch it again"
        )
    dtype = np.dtype(type_of_values)
    if tag.size != math.prod(shape) * dtype.itemsize:
        raise DatasetFileCorruptError(
            f"{name!r} has {tag.size} bytes of {dtype} for {variable!r} of shape {shape}. "
            f"Fetch it again"
        )
    values = stream
    if tag.data:
        values = io.BytesIO(tag.data)
    return StoredArray(variable, shape, dtype, values)


def _check_flags(flags: bytes, variable: str, name: str) -> None:
    """Check that a variable is an array of real numbers.

    The values do not tell: a structure or a text begins with numbers, too, and the imaginary parts
    of complex numbers follow the real ones.

    Args:
        flags: flags of the variable.
        variable: name of the variable, for the message.
        name: name of the file, for the message.

    Raises:
        DatasetFileCorruptError: the variable is something else.
    """
    if len(flags) < 2:
        raise DatasetFileCorruptError(f"{name!r} has no flags for {variable!r}. Fetch it again")
    class_of_variable = flags[0]
    is_complex = bool(flags[1] & _COMPLEX_BIT)
    if class_of_variable not in _CLASSES_OF_NUMBERS or is_complex:
        raise DatasetFileCorruptError(
            f"{name!r} has the variable {variable!r} of class {class_of_variable}"
            f"{' with complex numbers' if is_complex else ''}, expected an array of real numbers"
        )


def _parse_shape(data: bytes, name: str) -> tuple[int, ...]:
    """Return the shape of a variable from its stored form, int32 of each dimension.

    Raises:
        DatasetFileCorruptError: the form is damaged.
    """
    sizes: list[int] = []
    if len(data) % 4 == 0:
        sizes = np.frombuffer(data, "<i4").tolist()
    if not sizes or min(sizes) < 0:
        raise DatasetFileCorruptError(
            f"{name!r} is damaged: {data[:_MAX_SHOWN_BYTES]!r} is no shape. Fetch it again"
        )
    return tuple(sizes)


def _read_tag(stream: io.BufferedIOBase, name: str) -> _Tag:
    """Read the tag of an element.

    Raises:
        DatasetFileCorruptError: the tag is truncated, or claims more data than it has room for.
    """
    tag = _read(stream, _TAG_BYTES, name)
    first_word = int.from_bytes(tag[:4], "little")
    second_word = int.from_bytes(tag[4:], "little")
    kind = first_word & 0xFFFF
    # A tag with data has the size in the upper half of the first word, and the data in the second.
    size_of_data = first_word >> 16
    if size_of_data == 0:
        return _Tag(kind, second_word, b"")
    if size_of_data > _MAX_DATA_BYTES_OF_TAG:
        raise DatasetFileCorruptError(
            f"{name!r} is damaged: a tag claims {size_of_data} bytes of data. Fetch it again"
        )
    return _Tag(kind, size_of_data, tag[4 : 4 + size_of_data])


def _read_part(stream: io.BufferedIOBase, name: str) -> bytes:
    """Return the data of the next element of a variable, which precedes the values.

    Raises:
        DatasetFileCorruptError: the element is truncated, or too large for a shape or a name.
    """
    tag = _read_tag(stream, name)
    if tag.size > _MAX_PART_BYTES:
        raise DatasetFileCorruptError(
            f"{name!r} is damaged: the header of an array claims {tag.size} bytes. Fetch it again"
        )
    if tag.data:
        return tag.data
    padding = -tag.size % _ALIGNMENT_BYTES
    padded_size = tag.size + padding
    return _read(stream, padded_size, name)[: tag.size]


def _read(stream: io.BufferedIOBase, n_bytes: int, name: str) -> bytes:
    """Return the next bytes of a file.

    Raises:
        DatasetFileCorruptError: the file ends before.
    """
    data = bytes(stream.read(n_bytes))
    if len(data) < n_bytes:
        n_missing = n_bytes - len(data)
        raise DatasetFileCorruptError(
            f"{name!r} is truncated: {n_missing} bytes are missing. Fetch it again"
        )
    return data


class _InflatedStream(io.RawIOBase):
    """The decompressed data of an element. The compressed data marks its own end.

    Args:
        stream: the file, at the compressed data.
        name: name of the file, for messages.
    """

    _stream: io.BufferedIOBase
    _name: str
    #: A decompressor of zlib, whose type has no public name.
    _decompressor: Any

    def __init__(self, stream: io.BufferedIOBase, name: str) -> None:
        self._stream = stream
        self._name = name
        self._decompressor = zlib.decompressobj()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer, as far as there is data at hand.

        Returns:
            The number of bytes. It is 0 at the end of the element, and where the file is cut off.
        """
        output = b""
        # Some compressed data may give no output yet.
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
