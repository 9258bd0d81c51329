"""Arrays as NumPy's ``.npy`` and ``.npz`` files, read without pickle.

Memory grows with the bytes of a file, not with the size that its header claims.

The format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
"""

from __future__ import annotations

import ast
import functools
import io
import math
import os
import struct
import zipfile
import zlib
from dataclasses import dataclass
from typing import IO, Any, Literal

import numpy as np
import numpy.typing as npt

from data_stack.codecs.arrays import to_exact_array
from data_stack.codecs.codec import Codec, ColumnType, FixedLayout, fixed_shape, value_errors
from data_stack.codecs.registry import register_codec
from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.io.parsing import (
    Readable,
    check_expansion,
    check_unpacked,
    lend_or_open,
    name_of,
    reading,
)
from data_stack.io.stand_ins import HEAD_BYTES, check_no_stand_in
from data_stack.values.dtype_texts import check_time_units

_MAGIC = b"\x93NUMPY"
#: The sizes of what stands before the header of version 1, and of the later versions: the magic
#: bytes, two bytes of the version, and the size of the header.
_START_BYTES_OF_VERSION_1 = 10
_START_BYTES = 12
#: The maximum size of a header in bytes.
_MAX_HEADER_BYTES = 1 << 16
#: The maximum number of cached headers: those of an attacker are all different, and of 64 KiB.
_MAX_HEADERS = 256
#: The maximum number of dimensions, that of numpy before 2.0.
_MAX_DIMENSIONS = 32
#: The names of the array in a ``.npz`` file: that of Petastorm, and numpy's own.
_NPZ_MEMBERS = ("arr.npy", "arr_0.npy")
#: What zipfile raises of damaged files.
_ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, struct.error)
#: The number of bytes that are read at once.
_PIECE_BYTES = 1 << 20


@dataclass(frozen=True)
class NpyHeader:
    """The header of a ``.npy`` file.

    Attributes:
        dtype: the dtype of the values.
        shape: the shape of the array.
        fortran_order: whether the first index varies fastest.
        offset: where the values begin in the file, in bytes.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran_order: bool
    offset: int

    @property
    def order(self) -> Literal["C", "F"]:
        """The memory order of the values, as in numpy."""
        return "F" if self.fortran_order else "C"

    @property
    def n_bytes(self) -> int:
        """The size of the values in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


class _NumpyCodec(Codec):
    """Refuses columns of Python objects; the base of the codecs of ``.npy`` and ``.npz``."""

    def adapt(self, column: ColumnType) -> Codec:
        if column.shape is None:
            return self
        if column.dtype is None or column.dtype.hasobject:
            raise ConfigError(
                f"{type(self).__name__} holds arrays of numbers, text or bytes, "
                f"not of {column.dtype or 'objects'}"
            )
        return self


@register_codec
class NpyCodec(_NumpyCodec):
    """Arrays as ``.npy`` files, which ``numpy.load`` reads.

    Arrays of any dtype can be stored, with fields too, except those of Python objects, which
    would need pickle. Arrays in any memory order are stored in C order. Decoded arrays are new and
    writable. Petastorm's ``NdarrayCodec`` stores the same bytes.
    """

    name = "npy"
    extensions = ("npy",)
    media_type = "application/x-npy"

    def encode(self, value: Any) -> bytes:
        array = value if type(value) is np.ndarray else to_exact_array(value)
        if _has_one_header(array.dtype):
            header = _make_cached_header(array.dtype, array.shape)
            if header is not None:
                return header + array.tobytes()
        file = io.BytesIO()
        write_npy(file, array)
        return file.getvalue()

    def decode(self, record: bytes) -> npt.NDArray[Any]:
        header = _header_of_record(record)
        n_bytes = header.offset + header.n_bytes
        if len(record) != n_bytes:
            raise ValueError(f"an .npy file must have {n_bytes} bytes, but has {len(record)}")
        array: npt.NDArray[Any] = np.ndarray(
            header.shape, header.dtype, bytearray(record), header.offset, order=header.order
        )
        return array

    def derive_layout(self, column: ColumnType) -> FixedLayout | None:
        dtype = column.dtype
        shape = fixed_shape(column)
        if dtype is None or shape is None or dtype.hasobject or dtype.itemsize == 0:
            return None
        if _has_one_header(dtype):
            header = _make_cached_header(dtype, shape)
        else:
            header = _make_header(dtype, shape)
        if header is None:
            return None
        return FixedLayout(header, dtype, shape)

    def layout_of(self, record: bytes) -> FixedLayout | None:
        """Return the layout of this record.

        None: it is in Fortran order, or damaged; :meth:`decode` then raises.
        """
        try:
            header = _header_of_record(record)
        except (ValueError, DatasetFileCorruptError):
            return None
        if len(record) != header.offset + header.n_bytes:
            return None
        # With one long dimension both orders are the same.
        n_long_dimensions = sum(size > 1 for size in header.shape)
        if header.fortran_order and n_long_dimensions >= 2:
            return None
        return FixedLayout(bytes(record[: header.offset]), header.dtype, header.shape)


@register_codec
class NpzCodec(_NumpyCodec):
    """Arrays of any dtype and shape, each as a compressed ``.npz`` file.

    ``numpy.savez_compressed(file, arr=array)`` writes such files. The same array has the same
    bytes. Arrays of Python objects, which would need pickle, are refused.
    """

    name = "npz"
    is_compressed = True

    def encode(self, value: Any) -> bytes:
        member = NpyCodec().encode(value)
        # Its date is in 1980, so that the same array has the same bytes.
        member_info = zipfile.ZipInfo(_NPZ_MEMBERS[0])
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr(member_info, member, zipfile.ZIP_DEFLATED)
        return file.getvalue()

    def decode(self, record: bytes) -> npt.NDArray[Any]:
        with (
            value_errors("an .npz file is damaged", _ZIP_ERRORS),
            zipfile.ZipFile(io.BytesIO(record)) as archive,
        ):
            members = archive.infolist()
            if len(members) != 1 or members[0].filename not in _NPZ_MEMBERS:
                names = ", ".join(repr(member.filename) for member in members[:5])
                raise ValueError(
                    f"expected an .npz file of one array 'arr.npy', it contains {names:.200}"
                )
            n_bytes = members[0].file_size
            check_expansion("an .npz file", n_bytes, len(record))
            with archive.open(members[0]) as stream:
                member = stream.read(n_bytes + 1)
        if len(member) != n_bytes:
            raise ValueError("the array of an .npz file differs from its stated size")
        return NpyCodec().decode(member)


# ------------------------------------------------------------------ headers of records
# Records often share a header, so those that were read and those that were made are cached.


def _header_of_record(record: bytes) -> NpyHeader:
    """Return the header of a record, parsed or from the cache.

    Raises:
        DatasetFileCorruptError: the header is damaged, or of an array that is not read.
    """
    version_offset = len(_MAGIC)
    size_offset = version_offset + 2
    is_version_1 = record[version_offset : version_offset + 1] == b"\1"
    start_bytes = _START_BYTES_OF_VERSION_1 if is_version_1 else _START_BYTES
    header_bytes = int.from_bytes(record[size_offset:start_bytes], "little")
    return _parse_cached_header(record[: start_bytes + header_bytes])


@functools.lru_cache(maxsize=_MAX_HEADERS)
def _parse_cached_header(start: bytes) -> NpyHeader:
    return read_npy_header(io.BytesIO(start))


def _has_one_header(dtype: np.dtype[Any]) -> bool:
    """Return whether all dtypes that equal this one have the same header, which may be cached."""
    return not (dtype.names or dtype.metadata or dtype.hasobject)


@functools.lru_cache(maxsize=_MAX_HEADERS)
def _make_cached_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes | None:
    return _make_header(dtype, shape)


def _make_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes | None:
    """Return the header of an array in C order.

    None: it is too long for version 1, for example with a thousand fields.
    """
    file = io.BytesIO()
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    try:
        np.lib.format.write_array_header_1_0(file, header)
    except ValueError:
        return None
    return file.getvalue()


# ------------------------------------------------------------------ files of any size


def read_npy(file: Readable | str | os.PathLike[str]) -> npt.NDArray[Any]:
    """Read one array from a path, or from a binary stream whose position is its start.

    The stream may decompress. Memory grows with the bytes read, not with the size that the header
    claims.

    Raises:
        DatasetFileCorruptError: the file is not an ``.npy`` file, is cut short, or holds an array
            of Python objects.
        RequestLimitError: the file would unpack to more than a request may take.
    """
    with lend_or_open(file) as opened:
        header = read_npy_header(opened)
        name = name_of(opened)
        data = bytearray()
        with reading(name, ".npy file"):
            while len(data) < header.n_bytes:
                piece = opened.read(min(_PIECE_BYTES, header.n_bytes - len(data)))
                if not piece:
                    raise DatasetFileCorruptError(
                        f"{name!r} is cut short: {len(data)} of {header.n_bytes} bytes"
                    )
                data += piece
                check_unpacked(opened, len(data))
            array: npt.NDArray[Any] = np.ndarray(
                header.shape, header.dtype, data, order=header.order
            )
            return array


def write_npy(file: IO[bytes] | Any, array: npt.ArrayLike) -> None:
    """Write an array as a ``.npy`` file.

    Raises:
        ConfigError: its dtype holds Python objects.
    """
    values = np.asarray(array)
    if values.dtype.hasobject:
        raise ConfigError(
            f"cannot store an array of dtype {values.dtype}, which holds Python objects; convert it"
        )
    in_c_order = np.asarray(values, order="C")
    np.lib.format.write_array(file, in_c_order, version=(1, 0), allow_pickle=False)


def read_npy_header(file: Readable) -> NpyHeader:
    """Read the header of a stream whose position is its start.

    numpy's own parser lets SyntaxError, TokenError, EOFError and others through, and believes any
    shape.

    Raises:
        DatasetFileCorruptError: the stream is not an ``.npy`` file, ends within its header, or
            holds an array that is not read, such as one of Python objects.
    """
    name = name_of(file)
    with reading(name, ".npy file"):
        version = _read_version(file, name)
        n_size_bytes = 2 if version == 1 else 4
        encoding = "utf-8" if version == 3 else "latin-1"
        n_bytes = int.from_bytes(file.read(n_size_bytes), "little")
        if n_bytes > _MAX_HEADER_BYTES:
            raise DatasetFileCorruptError(
                f"{name!r} claims a header of {n_bytes} bytes; the maximum is {_MAX_HEADER_BYTES}"
            )
        text = file.read(n_bytes)
        if len(text) < n_bytes or not text:
            raise DatasetFileCorruptError(f"{name!r} is cut short: it ends within its header")
        fields = _parse_fields(text.decode(encoding), name)
        shape = fields["shape"]
        if not _is_shape(shape):
            raise DatasetFileCorruptError(f"{name!r} has the invalid shape {str(shape)[:80]}")
        _check_descr(fields["descr"])
        dtype = np.lib.format.descr_to_dtype(fields["descr"])
        _check_dtype(dtype, shape, name)
        offset = len(_MAGIC) + 2 + n_size_bytes + n_bytes
        return NpyHeader(dtype, shape, bool(fields["fortran_order"]), offset)


def _read_version(file: Readable, name: str) -> int:
    """Read the magic bytes and the version; return the major version, 1 to 3.

    Raises:
        DatasetFileCorruptError: the stream is not an ``.npy`` file of these versions.
    """
    head = file.read(len(_MAGIC) + 2)
    is_npy = head.startswith(_MAGIC) and len(head) == len(_MAGIC) + 2
    if not is_npy or head[len(_MAGIC)] not in (1, 2, 3):
        check_no_stand_in(head + file.read(HEAD_BYTES), repr(name))
        raise DatasetFileCorruptError(
            f"{name!r} is not an .npy file of version 1, 2 or 3: it begins with {head!r}"
        )
    return head[len(_MAGIC)]


def _parse_fields(text: str, name: str) -> dict[str, Any]:
    """Parse the text of a header, the literal of a dict.

    Raises:
        DatasetFileCorruptError: the text cannot be parsed, or lacks an entry.
    """
    try:
        fields = ast.literal_eval(text)
    except (MemoryError, RecursionError) as error:
        # The parser raises these for a thousand brackets.
        raise DatasetFileCorruptError(f"{name!r} has a header that cannot be parsed") from error
    if not isinstance(fields, dict) or set(fields) != {"descr", "fortran_order", "shape"}:
        raise DatasetFileCorruptError(
            f"{name!r} has a header without the three entries descr, fortran_order and shape"
        )
    return fields


def _is_shape(shape: object) -> bool:
    """Return whether an entry of a header is the shape of an array."""
    if not isinstance(shape, tuple) or len(shape) > _MAX_DIMENSIONS:
        return False
    return all(type(size) is int and size >= 0 for size in shape)


def _check_descr(descr: Any) -> None:
    """Refuse units of time at which numpy would end the process, also those of fields.

    Args:
        descr: the text of a dtype, a pair of a dtype and a shape, or a list of fields: tuples that
            begin with the name of the field and its dtype.

    Raises:
        ValueError: a unit has a divisor or no length.
    """
    if isinstance(descr, str):
        check_time_units(descr)
    elif isinstance(descr, tuple):
        for dtype in descr[:1]:
            _check_descr(dtype)
    elif isinstance(descr, list):
        for field in descr:
            for dtype in field[1:2]:
                _check_descr(dtype)


def _check_dtype(dtype: np.dtype[Any], shape: tuple[int, ...], name: str) -> None:
    """Refuse dtypes whose values must not or cannot be read.

    Raises:
        DatasetFileCorruptError: it is such a dtype.
    """
    if dtype.hasobject:
        raise DatasetFileCorruptError(
            f"{name!r} holds Python objects (dtype {dtype}), and unpickling could run any code"
        )
    # numpy would allocate one uninitialized byte for each value without a size.
    has_values_without_size = dtype.itemsize == 0 and 0 not in shape
    if dtype.subdtype is not None or has_values_without_size:
        raise DatasetFileCorruptError(
            f"{name!r} has the dtype {dtype}, which cannot be values of an array"
        )
