"""Arrays as NumPy's ``.npy`` or ``.npz`` files, without pickle, without trusting their headers.

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

from data_stack.codecs.arrays import exactly_array
from data_stack.codecs.codec import Codec, Column, FixedLayout, value_errors
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

_MAX_HEADER_BYTES = 1 << 16
#: Number of cached headers: those of an attacker are all different, and of 64 KiB.
_MAX_HEADERS = 256
_NPZ_MEMBERS = ("arr.npy", "arr_0.npy")


@dataclass(frozen=True)
class NpyHeader:
    """The header of a ``.npy`` file, and the offset of its values."""

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
        """Size of the values."""
        return math.prod(self.shape) * self.dtype.itemsize


class _NumpyCodec(Codec):
    """The base of both codecs."""

    def adapt(self, column: Column) -> Codec:
        if column.shape is not None and (column.dtype is None or column.dtype.hasobject):
            kind = type(self).__name__
            raise ConfigError(
                f"{kind} holds arrays of numbers, text or bytes, not of {column.dtype or 'objects'}"
            )
        return self


@register_codec
class NpyCodec(_NumpyCodec):
    """Arrays as ``.npy`` files (``numpy.load`` reads each record), also with fields; never Python objects, never pickle.

    Arrays in any memory order are stored in C order. Decoded arrays are new and writable. Petastorm's ``NdarrayCodec`` stores
    the same bytes.
    """

    name, extensions, media_type = "npy", ("npy",), "application/x-npy"

    def encode(self, value: Any) -> bytes:
        array = value if type(value) is np.ndarray else exactly_array(value)
        header = _header_in_c_order(array.dtype, array.shape) if _is_plain(array.dtype) else None
        if header is not None:
            return header + array.tobytes()
        file = io.BytesIO()
        write_npy(file, array)
        return file.getvalue()

    def decode(self, record: bytes) -> npt.NDArray[Any]:
        header = _header_of(record)
        if len(record) != header.offset + header.n_bytes:
            raise ValueError(
                f"an .npy file must have {header.offset + header.n_bytes} bytes, but has {len(record)}"
            )
        array: npt.NDArray[Any] = np.ndarray(
            header.shape, header.dtype, bytearray(record), header.offset, order=header.order
        )
        return array

    def derive_layout(self, column: Column) -> FixedLayout | None:
        dtype, shape = column.dtype, column.shape
        if (
            dtype is None
            or shape is None
            or any(size is None for size in shape)
            or dtype.hasobject
            or not dtype.itemsize
        ):
            return None
        sizes = tuple(int(size) for size in shape if size is not None)
        header = (
            _header_in_c_order(dtype, sizes) if _is_plain(dtype) else _make_header(dtype, sizes)
        )
        return None if header is None else FixedLayout(header, dtype, sizes)

    def layout_of(self, record: bytes) -> FixedLayout | None:
        """The layout of this record; None if it is in Fortran order, or damaged; :meth:`decode` then raises."""
        try:
            header = _header_of(record)
        except (ValueError, DatasetFileCorruptError):
            return None
        is_flat = sum(size > 1 for size in header.shape) < 2
        if len(record) != header.offset + header.n_bytes or (header.fortran_order and not is_flat):
            return None
        return FixedLayout(bytes(record[: header.offset]), header.dtype, header.shape)


@register_codec
class NpzCodec(_NumpyCodec):
    """Arrays of any dtype and shape, each a compressed ``.npz`` file as ``numpy.savez_compressed(file, arr=array)`` writes it.

    Never Python objects, never pickle; the same bytes for the same array.
    """

    name = "npz"
    is_compressed = True

    def encode(self, value: Any) -> bytes:
        member, file = NpyCodec().encode(value), io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            # Of 1980: the same bytes for the same array.
            archive.writestr(zipfile.ZipInfo(_NPZ_MEMBERS[0]), member, zipfile.ZIP_DEFLATED)
        return file.getvalue()

    def decode(self, record: bytes) -> npt.NDArray[Any]:
        damage = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, struct.error)
        with (
            value_errors("an .npz file is damaged", damage),
            zipfile.ZipFile(io.BytesIO(record)) as archive,
        ):
            members = archive.infolist()
            if len(members) != 1 or members[0].filename not in _NPZ_MEMBERS:
                names = ", ".join(repr(member.filename) for member in members[:5])
                raise ValueError(
                    f"expected an .npz file of one array 'arr.npy', it contains {names:.200}"
                )
            size = members[0].file_size
            check_expansion("an .npz file", size, len(record))
            with archive.open(members[0]) as stream:
                member = stream.read(size + 1)
        if len(member) != size:
            raise ValueError("the array of an .npz file differs from its stated size")
        return NpyCodec().decode(member)


# ---------------------------------------------------------------------- headers, cached: records often share one


def _header_of(record: bytes) -> NpyHeader:
    n_bytes = (
        10 + int.from_bytes(record[8:10], "little")
        if record[6:7] == b"\1"
        else 12 + int.from_bytes(record[8:12], "little")
    )
    return _parse_header(record[:n_bytes])


@functools.lru_cache(maxsize=_MAX_HEADERS)
def _parse_header(start: bytes) -> NpyHeader:
    return read_npy_header(io.BytesIO(start))


def _is_plain(dtype: np.dtype[Any]) -> bool:
    """Whether all equal dtypes have the same header."""
    return not (dtype.names or dtype.metadata or dtype.hasobject)


def _make_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes | None:
    """The header of an array in C order; None if it is too long for version 1, for example with a thousand fields."""
    file = io.BytesIO()
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    try:
        np.lib.format.write_array_header_1_0(file, header)
    except ValueError:
        return None
    return file.getvalue()


_header_in_c_order = functools.lru_cache(maxsize=_MAX_HEADERS)(_make_header)


# ---------------------------------------------------------------------- files of any size


def read_npy(file: Readable | str | os.PathLike[str]) -> npt.NDArray[Any]:
    """Read one array from a path, or from a binary stream at its start, which may decompress.

    Memory grows with the bytes read, not with the size that the header claims.

    Raises:
        DatasetFileCorruptError: no ``.npy`` file, cut short, or an array of Python objects.
        RequestLimitError: it would unpack to more than a request may take.
    """
    with lend_or_open(file) as opened:
        header = read_npy_header(opened)
        data, name = bytearray(), name_of(opened)
        with reading(name, ".npy file"):
            while len(data) < header.n_bytes:
                piece = opened.read(min(1 << 20, header.n_bytes - len(data)))
                if not piece:
                    raise DatasetFileCorruptError(
                        f"{name!r} is cut short: {len(data)} of {header.n_bytes} bytes"
                    )
                data += piece
                check_unpacked(opened, len(data))
            return np.ndarray(header.shape, header.dtype, data, order=header.order)  # type: ignore[no-any-return]


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
    np.lib.format.write_array(
        file, np.asarray(values, order="C"), version=(1, 0), allow_pickle=False
    )


def read_npy_header(file: Readable) -> NpyHeader:
    """Parse the header of a stream that stands at its start.

    numpy's own parser lets SyntaxError, TokenError, EOFError and others through, and believes any shape.
    """
    name = name_of(file)
    with reading(name, ".npy file"):
        head = file.read(8)
        if head[:6] != b"\x93NUMPY" or len(head) < 8 or head[6] not in (1, 2, 3):
            check_no_stand_in(head + file.read(HEAD_BYTES), repr(name))
            raise DatasetFileCorruptError(
                f"{name!r} is not an .npy file of version 1, 2 or 3: it begins with {head!r}"
            )
        size_bytes = file.read(2 if head[6] == 1 else 4)
        n_bytes = int.from_bytes(size_bytes, "little")
        if n_bytes > _MAX_HEADER_BYTES:
            raise DatasetFileCorruptError(
                f"{name!r} claims a header of {n_bytes} bytes; the maximum is {_MAX_HEADER_BYTES}"
            )
        text = file.read(n_bytes)
        if len(text) < n_bytes or not text:
            raise DatasetFileCorruptError(f"{name!r} is cut short: it ends within its header")
        try:
            fields = ast.literal_eval(text.decode("utf-8" if head[6] == 3 else "latin-1"))
        except (
            MemoryError,
            RecursionError,
        ) as error:  # the parser raises these for a thousand brackets
            raise DatasetFileCorruptError(f"{name!r} has a header that cannot be parsed") from error
        if not isinstance(fields, dict) or set(fields) != {"descr", "fortran_order", "shape"}:
            raise DatasetFileCorruptError(
                f"{name!r} has a header without the three entries descr, fortran_order and shape"
            )
        shape, fortran_order = fields["shape"], fields["fortran_order"]
        if (
            not isinstance(shape, tuple)
            or len(shape) > 32
            or any(type(size) is not int or size < 0 for size in shape)
        ):
            raise DatasetFileCorruptError(f"{name!r} has the invalid shape {str(shape)[:80]}")
        dtype = np.lib.format.descr_to_dtype(fields["descr"])
        if dtype.hasobject:
            raise DatasetFileCorruptError(
                f"{name!r} holds Python objects (dtype {dtype}), and unpickling could run any code"
            )
        if dtype.subdtype is not None or (dtype.itemsize == 0 and 0 not in shape):
            # numpy would allocate one uninitialized byte for each value
            raise DatasetFileCorruptError(
                f"{name!r} has the dtype {dtype}, which cannot be values of an array"
            )
        return NpyHeader(dtype, shape, bool(fortran_order), len(head) + len(size_bytes) + n_bytes)
