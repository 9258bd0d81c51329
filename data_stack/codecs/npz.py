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

_NPY: Final = NpyCodec()
_MEMBERS: Final = ("arr.npy", "arr_0.npy")


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
        member, file = _NPY.encode(value), io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr(
                zipfile.ZipInfo(_MEMBERS[0]), member, zipfile.ZIP_DEFLATED
            )  # of 1980: the same bytes for the same array
        return file.getvalue()

    def decode(self, record: bytes) -> npt.NDArray[Any]:
        try:
            with zipfile.ZipFile(io.BytesIO(record)) as archive:
                members = archive.infolist()
                if len(members) != 1 or members[0].filename not in _MEMBERS:
                    names = ", ".join(repr(member.filename) for member in members[:5])
                    raise ValueError(f"expected an .npz file of one array 'arr.npy', it contains {names:.200}")
                size = members[0].file_size
                check_expansion("an .npz file", size, len(record))
                with archive.open(members[0]) as stream:
                    member = stream.read(size + 1)
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, struct.error) as error:
            raise ValueError(f"an .npz file is damaged: {error!s:.200}") from error
        if len(member) != size:
            raise ValueError("the array of an .npz file differs from its stated size")
        return _NPY.decode(member)
