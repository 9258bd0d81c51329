"""Many small PNG files of one shape: what each claims is compared at once, so that little but the decoding is done one by one."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from data_stack.formats.parquet.codecs.cells import CellViews
from data_stack.formats.parquet.codecs.png_streams import LARGEST_IMAGE_BYTES, inflated_images, is_left_filtered, row_bytes_of
from data_stack.formats.parquet.columns import CellColumn, CellError, GroupColumn, Rows
from data_stack.formats.records.codecs.opencv_png import END, HEAD_BYTES, PlainPng, opencv, plain_png, reading_flags
from data_stack.util.request_limit import current_request

__all__ = ["PngColumn"]

#: Between the head and the end of a file with one chunk of pixels: its length and name before it, its checksum behind it.
_BEFORE, _BEHIND = 8, 4
#: A chunk of pixels is a stream of zlib: two bytes, of which the first one says "deflate", and a checksum of four at its end.
_SHORTEST_STREAM = 6
_METHOD_BITS, _DEFLATE = 0x8F, 0x08
#: Fewer files are decoded one by one as fast. Of more, so many bytes are decoded at a time: they are still in the processor's
#: cache when the next step goes over them.
_FEWEST_AT_ONCE: Final = 16
_BYTES_AT_ONCE: Final = 1 << 20


class PngColumn(CellColumn):
    """A column of PNG files of one dtype and shape. What it decodes and refuses is what its codec does.

    In two threads Python's lock is what each waits for, so what is done with it counts twice. Files that begin and end like the
    first one, and have one chunk of pixels between, are decoded many at once where they are stored as OpenCV does it (see
    :mod:`~data_stack.formats.parquet.codecs.png_streams`); otherwise they go from the cell to OpenCV and into the batch.

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
        self._plain: PlainPng | None = None
        self._n_at_once = 0  # files that are decoded together; 0: they are decoded one by one
        plain = plain_png(views[0]) if len(views) else None
        if plain is None or (plain.shape, plain.dtype) != (shape, dtype):
            return
        self._plain = plain
        self._is_alike, self._checksums, self._sums = _alike(data, offsets)
        n_bytes = shape[0] * row_bytes_of(shape, dtype)
        if n_bytes - shape[0] <= LARGEST_IMAGE_BYTES and self._is_alike[0]:
            first = self._streams(np.zeros(1, np.int64))[0]
            self._n_at_once = _BYTES_AT_ONCE // n_bytes if is_left_filtered(first, shape, dtype) else 0

    def take(self, rows: Rows) -> npt.NDArray[Any]:
        plain = self._plain
        if plain is None or not self._is_alike[rows].all():
            return super().take(rows)
        images = self.take_together([self], [rows])
        return self._taken_one_by_one(rows, plain) if images is None else images

    def take_together(self, columns: Sequence[GroupColumn], rows: Sequence[Rows]) -> npt.NDArray[Any] | None:
        plain, n_at_once = self._plain, self._n_at_once
        if plain is None or not n_at_once or sum(map(len, rows)) < _FEWEST_AT_ONCE:
            return None
        current_request().check(sum(map(len, rows)) * row_bytes_of(plain.shape, plain.dtype) * plain.shape[0], "images")
        streams: list[memoryview] = []
        checksums: list[int] = []
        sums = []
        for column, some in zip(columns, rows, strict=True):
            if not isinstance(column, PngColumn) or column._plain != plain or not column._is_alike[some].all():
                return None
            streams += column._streams(some)
            checksums += column._checksums[some].tolist()
            sums.append(column._sums[some])
        crc32, name = zlib.crc32, zlib.crc32(b"IDAT")  # which the checksum of a chunk covers, too
        if [crc32(stream, name) for stream in streams] != checksums:
            return None
        all_sums = np.concatenate(sums)
        parts = []
        for start in range(0, len(streams), n_at_once):
            end = start + n_at_once
            images = inflated_images(streams[start:end], all_sums[start:end], plain.shape, plain.dtype)
            if images is None:
                self._n_at_once = 0  # there may be more such
                return None
            parts.append(images)
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _taken_one_by_one(self, rows: Rows, plain: PlainPng) -> npt.NDArray[Any]:
        """The images of rows whose files are alike, by OpenCV if it is installed."""
        cv2, (flags, has_bgr) = opencv(), reading_flags(plain.shape)
        if cv2 is None or has_bgr:
            return super().take(rows)
        self._reserve(current_request(), len(rows) * math.prod(plain.shape) * plain.dtype.itemsize, rows)
        images = np.empty((len(rows), *plain.shape), plain.dtype)
        data, view = self._data, self._view
        decode, crc32, shape = cv2.imdecode, zlib.crc32, plain.shape
        starts, ends, checksums = self._offsets[rows].tolist(), self._offsets[rows + 1].tolist(), self._checksums[rows].tolist()
        for place, (start, end, checksum) in enumerate(zip(starts, ends, checksums, strict=True)):
            image = decode(data[start:end], flags)
            if image is None or image.shape != shape or crc32(view[start + HEAD_BYTES + 4 : end - len(END) - 4]) != checksum:
                raise CellError(int(rows[place]), "a png image is damaged: its pixels cannot be decompressed")
            images[place] = image
        return images

    def _streams(self, rows: Rows) -> list[memoryview]:
        """The pixels of files that are alike, as they are compressed."""
        starts, ends = self._offsets[rows] + (HEAD_BYTES + _BEFORE), self._offsets[rows + 1] - (_BEHIND + len(END))
        return [self._view[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]


def _alike(
    data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.uint32], npt.NDArray[np.uint16]]:
    """Which files have the head of the first one, one chunk of pixels and nothing else; the checksum of that chunk, and the last
    two bytes of the one in it.

    Returns:
        All of shape ``(n,)``.
    """
    starts, ends = offsets[:-1], offsets[1:]
    n_around = HEAD_BYTES + _BEFORE + _BEHIND + len(END)
    long_enough = ends - starts >= n_around + _SHORTEST_STREAM
    # those that are not are looked at where it does no harm, and left out
    starts, ends = np.where(long_enough, starts, starts[0]), np.where(long_enough, ends, ends[0])
    if not long_enough[0]:
        return np.zeros(len(starts), bool), np.zeros(len(starts), np.uint32), np.zeros(len(starts), np.uint16)
    heads = _bytes_at(data, starts, HEAD_BYTES)
    before = _bytes_at(data, starts + HEAD_BYTES, _BEFORE + 1)
    behind = _bytes_at(data, ends - len(END) - _BEHIND - 2, 2 + _BEHIND + len(END))
    is_alike = (
        long_enough
        & (heads == heads[0]).all(axis=1)
        & (_numbers(before[:, :4], ">u4") == ends - starts - n_around)
        & (before[:, 4:8] == np.frombuffer(b"IDAT", np.uint8)).all(axis=1)
        & (before[:, 8] & _METHOD_BITS == _DEFLATE)
        & (behind[:, 2 + _BEHIND :] == np.frombuffer(END, np.uint8)).all(axis=1)
    )
    return is_alike, _numbers(behind[:, 2 : 2 + _BEHIND], ">u4"), _numbers(behind[:, :2], ">u2")


def _numbers(some: npt.NDArray[np.uint8], dtype: str) -> npt.NDArray[Any]:
    """Bytes of shape ``(n, itemsize)`` as numbers of the machine's order, shape ``(n,)``."""
    stored = np.dtype(dtype)
    numbers: npt.NDArray[Any] = np.ascontiguousarray(some).view(stored)[:, 0].astype(stored.newbyteorder("="))
    return numbers


def _bytes_at(data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.uint8]:
    """So many bytes from each start on, shape ``(n, size)``. All of them lie in ``data``."""
    # Each as one value of so many bytes, which numpy takes ten times as fast as single ones.
    pieces: npt.NDArray[np.void] = np.ndarray((len(data) - size + 1,), np.dtype((np.void, size)), data, strides=(1,))
    return pieces[starts].view(np.uint8).reshape(len(starts), size)
