"""Arrays as compressed ``.npz`` files of one array each, as Petastorm's ``CompressedNdarrayCodec`` stores them."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from dataclasses import dataclass
from typing import Any, Final

import numpy.typing as npt

from data_stack.codecs.codec import Codec, Column
from data_stack.codecs.npy import NpyCodec, check_array_column
from data_stack.codecs.registry import register_codec
from data_stack.io.positional import check_expansion

__all__ = ["NpzCodec"]

_NPY: Final = NpyCodec()
# https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT, sections 4.3.7, 4.3.12 and 4.3.16
_LOCAL: Final = struct.Struct("<4sHHHHHIIIHH")
_CENTRAL: Final = struct.Struct("<4sHHHHHHIIIHHHHHII")
_END: Final = struct.Struct("<4sHHHHIIH")
_MEMBERS: Final = (b"arr.npy", b"arr_0.npy")
_STORED, _DEFLATED = 0, 8
_VERSION, _FIRST_DAY = 20, 33  # 1980-01-01: the same bytes for the same array
_MAX_ZIP_BYTES = 1 << 31


@register_codec
@dataclass(frozen=True, repr=False)
class NpzCodec(Codec):
    """Arrays of any dtype and shape, each a compressed ``.npz`` file as ``numpy.savez_compressed(file, arr=array)`` writes it.

    Never Python objects, never pickle; the same bytes for the same array.
    """

    name = "npz"
    is_compressed = True

    def adapt(self, column: Column) -> Codec:
        check_array_column(self, column)
        return self

    def encode(self, value: Any) -> bytes:
        member = _NPY.encode(value)
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

    def decode(self, record: bytes) -> npt.NDArray[Any]:
        member = _only_member(record)
        return _NPY.decode(_member_by_zipfile(record) if member is None else member)


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
