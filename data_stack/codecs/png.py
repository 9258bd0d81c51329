"""Images as PNG files: by OpenCV if it is installed and the file is plain, by Pillow otherwise.

Images of 28 x 28 pixels a second in one thread, one of two busy cores: OpenCV alone 110,000, through this module 90,000,
Pillow 24,000. OpenCV releases the GIL while it decodes.
"""

from __future__ import annotations

import functools
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from data_stack.codecs.codec import Codec, Column, check_range
from data_stack.codecs.images import ImageCodec, save
from data_stack.codecs.registry import register_codec
from data_stack.exception import MissingDependencyError

#: The head of a file: the signature and the chunk IHDR with its checksum.
_HEAD_BYTES: Final = 33
_HEAD: Final = struct.Struct(">8sI4sIIBBBBBI")
SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_CHUNK: Final = struct.Struct(">I4s")
_CHECKSUM: Final = struct.Struct(">I")
#: Chunks that change no pixel, neither in OpenCV nor in Pillow.
_HARMLESS: Final = frozenset((b"IDAT", b"pHYs", b"tEXt", b"tIME"))
_CHANNELS: Final = {0: 1, 2: 3, 6: 4}
#: Pillow's modes by the last dimension of a plain PNG file's shape.
_MODES = {(): "L", (3,): "RGB", (4,): "RGBA"}


@register_codec
@dataclass(frozen=True, kw_only=True, repr=False)
class PngCodec(ImageCodec):
    """PNG (Granular's ``png``), without loss.

    Stores uint8 of shape ``(h, w)``, ``(h, w, 2)`` (grey and alpha), ``(h, w, 3)`` and ``(h, w, 4)``; uint16 and bool of shape
    ``(h, w)``. Decoded arrays are those of Pillow: of palette files the indices (``mode="RGB"`` converts them), of colour images
    of 16 bits the upper 8. OpenCV decodes plain files if it is installed.

    Args:
        mode: convert to ``"L"``, ``"RGB"`` or ``"RGBA"`` when reading; None for the stored mode.
        max_pixels: maximum number of pixels of a record.
        compress_level: 0 (none) to 9.
        deep: store and read the 16 bits of images of shape ``(h, w, 3)`` and ``(h, w, 4)`` too, which needs OpenCV.
    """

    compress_level: int = 6
    deep: bool = False

    name, extensions, media_type = "png", ("png",), "image/png"

    _module, _class = "PngImagePlugin", "PngImageFile"
    _signature = SIGNATURE
    _channels = {"uint8": (1, 2, 3, 4), "uint16": (1,), "bool": (1,)}

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("compress_level", self.compress_level, 0, 9)

    def _decode(self, record: bytes) -> npt.NDArray[Any]:
        plain = _parse_head(record[:_HEAD_BYTES])
        if plain is None:
            return super()._decode(record)
        shape, dtype = plain
        # Images of up to this number of pixels are decoded without checking the limit of a request first.
        if shape[0] * shape[1] > min(self.max_pixels, 1 << 20):
            self._check_pixels(shape[1], shape[0])
        is_deep = dtype == np.uint16 and len(shape) == 3
        if self.mode not in (None, _MODES[shape[2:]]) or (is_deep and not self.deep):
            return super()._decode(record)
        pixels = _decode_plain(record, shape, dtype)
        if pixels is None and is_deep:
            raise _needs_opencv()
        return super()._decode(record) if pixels is None else pixels

    def adapt(self, column: Column) -> Codec:
        is_deep = column.dtype == np.uint16 and column.shape is not None
        return ImageCodec.adapt(replace(self, deep=True) if is_deep else self, column)

    def open(self, record: bytes) -> Any:
        # Pillow ignores the checksums of the pixels, and accepts truncated files.
        if record.startswith(self._signature):
            _check_chunks(record)
        return super().open(record)

    def _encode(self, pixels: npt.NDArray[Any]) -> bytes:
        pixels = pixels.astype(pixels.dtype.newbyteorder("="), copy=False)
        if pixels.dtype != np.uint16 or pixels.ndim == 2:
            return save(pixels, "PNG", compress_level=self.compress_level)
        cv2 = _opencv()  # Pillow cannot write these
        if cv2 is None:
            raise _needs_opencv()
        _, data = cv2.imencode(
            ".png", _exchange(pixels), [cv2.IMWRITE_PNG_COMPRESSION, self.compress_level]
        )
        return bytes(data)

    def _storable(self) -> Mapping[str, tuple[int, ...]]:
        return {**self._channels, "uint16": (1, 3, 4)} if self.deep else self._channels


def _needs_opencv() -> MissingDependencyError:
    return MissingDependencyError(
        "a coloured PNG image of 16 bits", "opencv-python-headless", "images"
    )


@functools.cache
def _opencv() -> Any:
    """OpenCV, or None if it is not installed; imported on first use, as that takes a fifth of a second."""
    try:
        import cv2
    except ImportError:
        return None
    return cv2


def _decode_plain(
    record: bytes, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> npt.NDArray[Any] | None:
    """Decode a file whose shape and dtype are those of its head; None if Pillow must decode it.

    Raises:
        ValueError: the file is damaged.
    """
    cv2 = _opencv()
    if cv2 is None or not _check_chunks(record):
        return None
    is_rgb = shape[2:] == (3,)
    as_rgb = getattr(cv2, "IMREAD_COLOR_RGB", None)  # from OpenCV 4.11 on
    colour = cv2.IMREAD_COLOR if as_rgb is None else as_rgb
    flags = (
        colour | cv2.IMREAD_ANYDEPTH | cv2.IMREAD_IGNORE_ORIENTATION
        if is_rgb
        else cv2.IMREAD_UNCHANGED
    )
    try:
        pixels: npt.NDArray[Any] | None = cv2.imdecode(np.frombuffer(record, np.uint8), flags)
    except cv2.error:  # its limits of size
        return None
    if pixels is None:
        raise ValueError("damaged PNG: its pixels cannot be decompressed")
    if pixels.shape != shape or pixels.dtype != dtype:
        return None
    return pixels if is_rgb and as_rgb is not None else _exchange(pixels)


def _exchange(pixels: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Swap red and blue. (Not by cvtColor, whose threads do not survive a fork.)"""
    if pixels.ndim < 3:
        return pixels
    turned: npt.NDArray[Any] = pixels.copy()
    turned[..., 0], turned[..., 2] = pixels[..., 2], pixels[..., 0]
    return turned


def _check_chunks(record: bytes) -> bool:
    """Check all chunks of a PNG file; return whether none of them changes pixels.

    OpenCV and Pillow check the CRC-32 (https://www.w3.org/TR/png-3/#5Chunk-layout) of some chunks only.

    Raises:
        ValueError: the file is cut short or damaged.
    """
    offset, name, is_plain, n_bytes, crc32 = 8, b"", True, len(record), zlib.crc32
    if _parse_head(record[:_HEAD_BYTES]) is not None:  # whose checksum was checked
        offset = _HEAD_BYTES
    view = memoryview(record)
    try:
        while name != b"IEND":
            size, name = _CHUNK.unpack_from(record, offset)
            end = offset + 8 + size
            is_raw_profile = (
                record[offset + 8 : offset + 11] == b"Raw"
            )  # as ImageMagick stores EXIF
            is_harmless = name in _HARMLESS and not (name == b"tEXt" and is_raw_profile)
            if crc32(view[offset + 4 : end]) != _CHECKSUM.unpack_from(record, end)[0]:
                raise ValueError(
                    f"damaged PNG: wrong checksum of the chunk {name!r} at byte {offset}"
                )
            offset = end + 4
            if offset + 12 == n_bytes and record.endswith(b"\x00\x00\x00\x00IEND\xaeB`\x82"):
                return is_plain and is_harmless
            is_plain = is_plain and is_harmless
    except struct.error as error:
        raise ValueError(
            f"truncated PNG: its {n_bytes} bytes end within the chunk at byte {min(offset, n_bytes)}"
        ) from error
    return False  # bytes after the end


@functools.lru_cache(maxsize=1024)
def _parse_head(head: bytes) -> tuple[tuple[int, ...], np.dtype[Any]] | None:
    """Shape and dtype of the pixels of a file of 8 or 16 bits, grey, RGB or RGBA, not interlaced; None for others.

    The shape of RGB and RGBA includes the channels.
    """
    if len(head) < _HEAD_BYTES:
        return None
    (
        signature,
        size,
        name,
        width,
        height,
        depth,
        colours,
        compression,
        filters,
        interlace,
        checksum,
    ) = _HEAD.unpack(head)
    if (signature, size, name, compression, filters, interlace) != (
        SIGNATURE,
        13,
        b"IHDR",
        0,
        0,
        0,
    ):
        return None
    if (
        depth not in (8, 16)
        or colours not in _CHANNELS
        or not width
        or not height
        or zlib.crc32(head[12:29]) != checksum
    ):
        return None
    channels = _CHANNELS[colours]
    shape = (height, width) if channels == 1 else (height, width, channels)
    return shape, np.dtype(np.uint8 if depth == 8 else np.uint16)
