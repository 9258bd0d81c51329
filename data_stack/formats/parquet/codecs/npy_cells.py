"""``.npy`` files and ``.npz`` files of one array as cells: a thousand of them have one header, which is parsed once."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from data_stack.formats.positional import check_expansion
from data_stack.formats.records.codecs.codec import FixedLayout
from data_stack.formats.records.codecs.npy import NpyCodec

__all__ = ["decode_npy", "decode_npz", "encode_npy", "encode_npz", "layout_of_npy", "npy_header"]

_NPY: Final = NpyCodec()
#: Headers that are remembered, and how long one of them may be: an adversary's are all different.
_MAX_HEADERS, _MAX_HEADER_BYTES = 2048, 1024


@dataclass(frozen=True, slots=True)
class _Layout:
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    order: Any
    header_bytes: int
    n_bytes: int


_LAYOUTS: dict[bytes, _Layout] = {}
_HEADERS: dict[tuple[np.dtype[Any], tuple[int, ...]], bytes] = {}


def encode_npy(array: npt.NDArray[Any]) -> bytes:
    """An array as an ``.npy`` file, in C order."""
    header = npy_header(array.dtype, array.shape)
    return _NPY.encode(array) if header is None else header + array.tobytes()


def npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes | None:
    """What stands before the values in C order; None where only :class:`NpyCodec` knows."""
    key = (dtype, shape)
    header = _HEADERS.get(key)
    if header is None:
        layout = None if dtype.names or dtype.metadata else _NPY.fixed_layout(_column(dtype, shape))
        if layout is None:
            return None
        if len(_HEADERS) >= _MAX_HEADERS:
            _HEADERS.clear()
        header = _HEADERS[key] = layout.header
    return header


def decode_npy(cell: bytes) -> npt.NDArray[Any]:
    """The array of an ``.npy`` file, writable, its memory its own.

    Raises:
        ValueError, DatasetFileCorruptError: it is none, cut short, or holds Python objects.
    """
    # Version 1 has the header's size in two bytes; others are rare, and go the long way.
    header = cell[: 10 + int.from_bytes(cell[8:10], "little")]
    layout = _LAYOUTS.get(header)
    if layout is None:
        return _decoded_at_length(cell)
    if len(cell) != layout.n_bytes:
        return _NPY.decode(cell)  # raises, and says what is wrong
    values: npt.NDArray[Any] = np.ndarray(layout.shape, layout.dtype, bytearray(cell), layout.header_bytes, None, layout.order)
    return values


def layout_of_npy(cell: bytes) -> FixedLayout | None:
    """How the values of an ``.npy`` file in C order lie; None for any other, and for damaged ones."""
    return _NPY.layout_of(cell)


def _decoded_at_length(cell: bytes) -> npt.NDArray[Any]:
    array = _NPY.decode(cell)
    header_bytes = len(cell) - array.nbytes
    if cell[6:8] == b"\x01\x00" and header_bytes == 10 + int.from_bytes(cell[8:10], "little") <= _MAX_HEADER_BYTES:
        if len(_LAYOUTS) >= _MAX_HEADERS:
            _LAYOUTS.clear()
        order = "C" if array.flags.c_contiguous else "F"
        _LAYOUTS[cell[:header_bytes]] = _Layout(array.dtype, array.shape, order, header_bytes, len(cell))
    return array


def _column(dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
    from data_stack.formats.records.codecs.codec import Column

    return Column("npy", dtype, shape)


# ---------------------------------------------------------------------- .npz: a zip file with one member

# https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT, sections 4.3.7, 4.3.12 and 4.3.16
_LOCAL: Final = struct.Struct("<4sHHHHHIIIHH")
_CENTRAL: Final = struct.Struct("<4sHHHHHHIIIHHHHHII")
_END: Final = struct.Struct("<4sHHHHIIH")
_MEMBERS: Final = (b"arr.npy", b"arr_0.npy")
_STORED, _DEFLATED = 0, 8
_VERSION, _FIRST_DAY = 20, 33  # 1980-01-01: the same bytes for the same array
_MAX_ZIP_BYTES = 1 << 31


def encode_npz(array: npt.NDArray[Any]) -> bytes:
    """An array as a compressed ``.npz`` file, as ``numpy.savez_compressed(file, arr=array)`` writes it; always the same bytes."""
    member = encode_npy(array)
    if len(member) >= _MAX_ZIP_BYTES:  # which needs fields of 64 bits
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(zipfile.ZipInfo("arr.npy"), member, zipfile.ZIP_DEFLATED)
        return file.getvalue()
    deflate = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION, zlib.DEFLATED, -zlib.MAX_WBITS)
    data = deflate.compress(member) + deflate.flush()
    name = _MEMBERS[0]
    common = (0, _DEFLATED, 0, _FIRST_DAY, zlib.crc32(member), len(data), len(member), len(name), 0)
    local = _LOCAL.pack(b"PK\x03\x04", _VERSION, *common) + name
    central = _CENTRAL.pack(b"PK\x01\x02", _VERSION, _VERSION, *common, 0, 0, 0, 0, 0) + name
    end = _END.pack(b"PK\x05\x06", 0, 0, 1, 1, len(central), len(local) + len(data), 0)
    return b"".join((local, data, central, end))


def decode_npz(cell: bytes) -> npt.NDArray[Any]:
    """The array of an ``.npz`` file that holds one.

    Raises:
        ValueError, DatasetFileCorruptError, BadZipFile, zlib.error: it is none, or damaged, or expands absurdly.
    """
    member = _only_member(cell)
    return decode_npy(_member_by_zipfile(cell) if member is None else member)


def _only_member(cell: bytes) -> bytes | None:
    """The bytes of the one member of a plain zip file; None for what only zipfile can tell."""
    n_bytes = len(cell)
    if n_bytes < _LOCAL.size + _CENTRAL.size + _END.size:
        return None
    magic, disk, start_disk, on_disk, n_members, central_bytes, central_at, comment = _END.unpack_from(cell, n_bytes - _END.size)
    if (magic, disk, start_disk, on_disk, n_members, comment) != (b"PK\x05\x06", 0, 0, 1, 1, 0):
        return None
    if central_at + central_bytes != n_bytes - _END.size or central_bytes < _CENTRAL.size:
        return None
    # fmt: off
    (magic, _, _, flags, method, _, _, crc, stored, size, name_bytes, extra, note, _, _, _, local_at) = (
        _CENTRAL.unpack_from(cell, central_at)
    )
    # fmt: on
    name_at = central_at + _CENTRAL.size
    if (
        magic != b"PK\x01\x02"
        or flags & ~0x806  # names in UTF-8, and how hard it was tried to compress, are all that is understood
        or method not in (_STORED, _DEFLATED)
        or name_bytes + extra + note + _CENTRAL.size != central_bytes
        or cell[name_at : name_at + name_bytes] not in _MEMBERS
        or local_at != 0
        or cell[:4] != b"PK\x03\x04"
    ):
        return None
    local = _LOCAL.unpack_from(cell, 0)
    start = _LOCAL.size + local[9] + local[10]
    if start + stored != central_at or local[3] != method:
        return None
    check_expansion("an .npz file", size, n_bytes)
    data: Any = memoryview(cell)[start:central_at]
    if method == _STORED:
        member = bytes(data)
    else:
        inflate = zlib.decompressobj(-zlib.MAX_WBITS)
        member = inflate.decompress(data, size + 1)
        if not inflate.eof or inflate.unused_data:
            raise ValueError("the data of an .npz file end elsewhere than it says")
    if len(member) != size or zlib.crc32(member) != crc:
        raise ValueError(f"an .npz file is damaged: its array of {size} bytes has another size or checksum")
    return member


def _member_by_zipfile(cell: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(cell)) as archive:
        members = archive.infolist()
        if len(members) != 1 or members[0].filename.encode() not in _MEMBERS:
            names = ", ".join(repr(member.filename) for member in members[:5])
            raise ValueError(f"an .npz file of one array 'arr.npy' is expected, it holds {names:.200}")
        check_expansion("an .npz file", members[0].file_size, len(cell))
        with archive.open(members[0]) as stream:
            member = stream.read(members[0].file_size + 1)
    if len(member) != members[0].file_size:
        raise ValueError("the array of an .npz file has another size than it says")
    return member
