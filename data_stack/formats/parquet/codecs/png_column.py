"""Many small PNG files of one shape: what each claims is compared at once, so that little but the decoding is done one by one."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.formats.parquet.codecs.cells import CellViews
from data_stack.formats.parquet.columns import CellColumn, CellError, Rows
from data_stack.formats.records.codecs.opencv_png import END, HEAD_BYTES, PlainPng, opencv, plain_png

__all__ = ["PngColumn"]

#: Between the head and the end of a file with one chunk of pixels: its length and name before it, its checksum behind it.
_BEFORE, _BEHIND = 8, 4


class PngColumn(CellColumn):
    """A column of PNG files of one dtype and shape. What it decodes and refuses is what its codec does.

    In two threads Python's lock is what each waits for, so what is done with it counts twice: files that begin and end like the
    first one, and have one chunk of pixels between, go from the cell to OpenCV and into the batch.

    Args:
        data: the bytes of all cells.
        offsets: where each begins and the last one ends, shape ``(n + 1,)``.
        decode: makes an array of any file.
        decode_into: likewise, into an array.
        dtype: of all images.
        shape: of all images.
    """

    def __init__(
        self,
        data: npt.NDArray[np.uint8],
        offsets: npt.NDArray[np.int64],
        decode: Callable[[Any], Any],
        decode_into: Callable[[Any, npt.NDArray[Any]], None],
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
    ) -> None:
        views = CellViews(data, offsets, None)
        super().__init__(views, decode, views.n_bytes, decode_into, (dtype, shape))
        self._data, self._offsets, self._view = data, offsets, memoryview(data)  # type: ignore[arg-type]
        plain = plain_png(views[0]) if len(views) else None
        self._plain: PlainPng | None = None
        if opencv() is not None and plain is not None and (plain.shape, plain.dtype, plain.has_bgr) == (shape, dtype, False):
            self._plain = plain
            self._is_alike, self._checksums = _alike(data, offsets)

    def take(self, rows: Rows) -> npt.NDArray[Any]:
        plain, cv2 = self._plain, opencv()
        if plain is None or cv2 is None or not self._is_alike[rows].all():
            return super().take(rows)
        images = np.empty((len(rows), *plain.shape), plain.dtype)
        data, view = self._data, self._view
        decode, flags, crc32, shape = cv2.imdecode, plain.flags, zlib.crc32, plain.shape
        starts, ends, checksums = self._offsets[rows].tolist(), self._offsets[rows + 1].tolist(), self._checksums[rows].tolist()
        for place, (start, end, checksum) in enumerate(zip(starts, ends, checksums, strict=True)):
            image = decode(data[start:end], flags)
            if image is None or image.shape != shape or crc32(view[start + HEAD_BYTES + 4 : end - len(END) - 4]) != checksum:
                raise CellError(int(rows[place]), "a png image is damaged: its pixels cannot be decompressed")
            images[place] = image
        return images


def _alike(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.uint32]]:
    """Which files have the head of the first one, one chunk of pixels and nothing else; and the checksum of that chunk.

    Returns:
        Both of shape ``(n,)``.
    """
    starts, ends = offsets[:-1], offsets[1:]
    long_enough = ends - starts >= HEAD_BYTES + _BEFORE + _BEHIND + len(END)
    # those that are not are looked at where it does no harm, and left out
    starts, ends = np.where(long_enough, starts, starts[0]), np.where(long_enough, ends, ends[0])
    if not long_enough[0]:
        return np.zeros(len(starts), bool), np.zeros(len(starts), np.uint32)
    heads = _bytes_at(data, starts, HEAD_BYTES)
    before = _bytes_at(data, starts + HEAD_BYTES, _BEFORE)
    behind = _bytes_at(data, ends - len(END) - _BEHIND, _BEHIND + len(END))
    lengths = before[:, :4].copy().view(">u4")[:, 0].astype(np.int64)
    is_alike = (
        long_enough
        & (heads == heads[0]).all(axis=1)
        & (lengths == ends - starts - HEAD_BYTES - _BEFORE - _BEHIND - len(END))
        & (before[:, 4:] == np.frombuffer(b"IDAT", np.uint8)).all(axis=1)
        & (behind[:, _BEHIND:] == np.frombuffer(END, np.uint8)).all(axis=1)
    )
    return is_alike, behind[:, :_BEHIND].copy().view(">u4")[:, 0].astype(np.uint32)


def _bytes_at(data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.uint8]:
    """So many bytes from each start on, shape ``(n, size)``."""
    found: npt.NDArray[np.uint8] = data[starts[:, None] + np.arange(size)]
    return found
