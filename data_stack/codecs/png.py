"""Images as PNG files: by OpenCV if it is installed and the file is plain, by Pillow otherwise.

Images of 28 x 28 pixels a second in one thread, one of two busy cores: OpenCV alone 110,000,
through this module 90,000, Pillow 24,000. OpenCV releases the GIL while it decodes.

The format: https://www.w3.org/TR/png-3/
"""

from __future__ import annotations

import functools
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from data_stack.codecs.codec import Codec, ColumnType, check_range
from data_stack.codecs.images import ImageCodec, as_native, encode_by_pillow
from data_stack.codecs.registry import register_codec
from data_stack.exception import MissingDependencyError

SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
#: The head of a file: the signature and the chunk IHDR with its checksum.
_HEAD_BYTES: Final = 33
_HEAD: Final = struct.Struct(">8sI4sIIBBBBBI")
#: The size and the name of a chunk, which stand before its content.
_CHUNK_START: Final = struct.Struct(">I4s")
#: The CRC-32 of a chunk's name and content, which stands after its content.
_CHECKSUM: Final = struct.Struct(">I")
#: The chunk IEND, which has no content, with its size and checksum.
_END_CHUNK: Final = b"\x00\x00\x00\x00IEND\xaeB`\x82"

#: Chunks that change no pixel, neither in OpenCV nor in Pillow.
_HARMLESS_CHUNKS: Final = frozenset((b"IDAT", b"pHYs", b"tEXt", b"tIME"))
#: The number of channels by the type of colors of a plain file: grey, RGB and RGBA.
_CHANNELS: Final = {0: 1, 2: 3, 6: 4}
#: Pillow's modes by the last dimension of a plain file's shape.
_MODES: Final = {(): "L", (3,): "RGB", (4,): "RGBA"}

#: Images of up to this number of pixels are decoded without asking for the limit of a request.
_SMALL_PIXELS: Final = 1 << 20


class _PlainHead(NamedTuple):
    """The head of a plain file, which states the type of its pixels.

    Attributes:
        shape: ``(height, width)``, ``(height, width, 3)`` or ``(height, width, 4)``.
        dtype: uint8 or uint16.
        is_deep_color: whether the pixels are colors of 16 bits a channel, which Pillow reads as
            8 bits.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    is_deep_color: bool


@register_codec
@dataclass(frozen=True, kw_only=True, repr=False)
class PngCodec(ImageCodec):
    """PNG (Granular's ``png``), without loss.

    Stores uint8 of shape ``(h, w)``, ``(h, w, 2)`` (grey and alpha), ``(h, w, 3)`` and
    ``(h, w, 4)``; uint16 and bool of shape ``(h, w)``. Decoded arrays are those of Pillow: the
    indices of palette files (``mode="RGB"`` converts them), and the upper 8 bits of color images of
    16 bits. OpenCV decodes plain files if it is installed.

    Args:
        mode: convert to ``"L"``, ``"RGB"`` or ``"RGBA"`` when reading; None for the stored mode.
        max_pixels: maximum number of pixels of a record.
        compress_level: 0 (none) to 9.
        deep: store and read all 16 bits of images of shape ``(h, w, 3)`` and ``(h, w, 4)`` too,
            which needs OpenCV.
    """

    compress_level: int = 6
    deep: bool = False

    name = "png"
    extensions = ("png",)
    media_type = "image/png"

    _pillow_module = "PngImagePlugin"
    _pillow_class = "PngImageFile"
    _signature = SIGNATURE
    _channels = {"uint8": (1, 2, 3, 4), "uint16": (1,), "bool": (1,)}

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("compress_level", self.compress_level, 0, 9)

    def _decode(self, record: bytes) -> npt.NDArray[Any]:
        head = _parse_head(record[:_HEAD_BYTES])
        if head is None:
            return super()._decode(record)
        height, width = head.shape[:2]
        if height * width > min(self.max_pixels, _SMALL_PIXELS):
            self._check_size(width, height)

        # Pillow converts to other modes, and reduces deep colors to 8 bits.
        is_own_mode = self.mode is None or self.mode == _MODES[head.shape[2:]]
        if not is_own_mode or (head.is_deep_color and not self.deep):
            return super()._decode(record)

        pixels = _decode_by_opencv(record, head)
        if pixels is not None:
            return pixels
        if head.is_deep_color:
            raise _missing_opencv_error()
        return super()._decode(record)

    def adapt(self, column: ColumnType) -> Codec:
        if column.dtype == np.uint16 and column.shape is not None:
            return ImageCodec.adapt(replace(self, deep=True), column)
        return super().adapt(column)

    def open(self, record: bytes) -> Any:
        # Pillow ignores the checksums of the pixels, and accepts truncated files.
        if record.startswith(self._signature):
            _check_chunks(record)
        return super().open(record)

    def _encode(self, pixels: npt.NDArray[Any]) -> bytes:
        pixels = as_native(pixels)
        is_deep_color = pixels.dtype == np.uint16 and pixels.ndim == 3
        if not is_deep_color:
            return encode_by_pillow(pixels, "PNG", {"compress_level": self.compress_level})
        # Pillow cannot write deep colors.
        cv2 = _opencv()
        if cv2 is None:
            raise _missing_opencv_error()
        options = [cv2.IMWRITE_PNG_COMPRESSION, self.compress_level]
        _, data = cv2.imencode(".png", _swap_red_and_blue(pixels), options)
        return bytes(data)

    def _storable_channels(self) -> Mapping[str, tuple[int, ...]]:
        if self.deep:
            return {**self._channels, "uint16": (1, 3, 4)}
        return self._channels


def _missing_opencv_error() -> MissingDependencyError:
    """Make the error of colors of 16 bits, which Pillow neither reads nor writes."""
    return MissingDependencyError(
        "a colored PNG image of 16 bits", "opencv-python-headless", "images"
    )


@functools.cache
def _opencv() -> Any:
    """Return OpenCV, or None if it is not installed.

    It is imported on first use, as that takes a fifth of a second.
    """
    try:
        import cv2
    except ImportError:
        return None
    return cv2


def _decode_by_opencv(record: bytes, head: _PlainHead) -> npt.NDArray[Any] | None:
    """Decode a plain file, of which ``head`` is the head.

    None: OpenCV is not installed, or would not return the pixels that Pillow returns.

    Raises:
        ValueError: the file is damaged.
    """
    cv2 = _opencv()
    if cv2 is None or not _check_chunks(record):
        return None

    # OpenCV 4.11 and later returns RGB if asked to; otherwise it returns BGR or BGRA.
    flags = cv2.IMREAD_UNCHANGED
    is_red_first = False
    if head.shape[2:] == (3,):
        is_red_first = hasattr(cv2, "IMREAD_COLOR_RGB")
        color = cv2.IMREAD_COLOR_RGB if is_red_first else cv2.IMREAD_COLOR
        flags = color | cv2.IMREAD_ANYDEPTH | cv2.IMREAD_IGNORE_ORIENTATION

    try:
        pixels: npt.NDArray[Any] | None = cv2.imdecode(np.frombuffer(record, np.uint8), flags)
    except cv2.error:  # the image is larger than OpenCV's limits
        return None
    if pixels is None:
        raise ValueError("damaged PNG: its pixels cannot be decompressed")
    if pixels.shape != head.shape or pixels.dtype != head.dtype:
        return None
    if is_red_first or pixels.ndim == 2:
        return pixels
    return _swap_red_and_blue(pixels)


def _swap_red_and_blue(pixels: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a copy of RGB or RGBA pixels as BGR or BGRA, and the other way round.

    Not by OpenCV's ``cvtColor``, whose threads do not survive a fork.
    """
    swapped: npt.NDArray[Any] = pixels.copy()
    swapped[..., 0] = pixels[..., 2]
    swapped[..., 2] = pixels[..., 0]
    return swapped


def _check_chunks(record: bytes) -> bool:
    """Check the CRC-32 of all chunks, of which OpenCV and Pillow check some only.

    The checksums: https://www.w3.org/TR/png-3/#5Chunk-layout

    Returns:
        Whether OpenCV decodes the file as Pillow does: no chunk changes pixels, and no bytes follow
        the end.

    Raises:
        ValueError: the file is cut short or damaged.
    """
    is_plain = True
    offset = len(SIGNATURE)
    if _parse_head(record[:_HEAD_BYTES]) is not None:  # which checked this checksum
        offset = _HEAD_BYTES
    # The usual end: the chunk IEND need not be parsed.
    end_offset = None
    if record.endswith(_END_CHUNK):
        end_offset = len(record) - len(_END_CHUNK)

    view = memoryview(record)
    while True:
        name, content, next_offset = _check_chunk(view, offset)
        if name == b"IEND":  # bytes follow the end, or there are no pixels
            return False
        if not _is_harmless(name, content):
            is_plain = False
        if next_offset == end_offset:
            return is_plain
        offset = next_offset


def _check_chunk(record: memoryview, offset: int) -> tuple[bytes, memoryview, int]:
    """Check the checksum of the chunk at ``offset``.

    Returns:
        The name and the content of the chunk, and the offset of the next chunk.

    Raises:
        ValueError: the chunk is cut short or damaged.
    """
    try:
        size, name = _CHUNK_START.unpack_from(record, offset)
        start = offset + _CHUNK_START.size
        end = start + size
        (checksum,) = _CHECKSUM.unpack_from(record, end)
    except struct.error as error:
        n_bytes = len(record)
        raise ValueError(
            f"truncated PNG: its {n_bytes} bytes end within the chunk "
            f"at byte {min(offset, n_bytes)}"
        ) from error
    # The checksum is that of the name, which follows the size of 4 bytes, and of the content.
    if zlib.crc32(record[offset + 4 : end]) != checksum:
        raise ValueError(f"damaged PNG: wrong checksum of the chunk {name!r} at byte {offset}")
    return name, record[start:end], end + _CHECKSUM.size


def _is_harmless(name: bytes, content: memoryview) -> bool:
    """Return whether a chunk changes no pixel.

    ImageMagick stores EXIF metadata, and so the orientation, in a text that begins with "Raw".
    """
    if name == b"tEXt" and bytes(content[:3]) == b"Raw":
        return False
    return name in _HARMLESS_CHUNKS


@functools.lru_cache(maxsize=1024)
def _parse_head(head: bytes) -> _PlainHead | None:
    """Return the pixels that the head of a plain file states; None for other files.

    A file is plain if it is not interlaced, and if its pixels are grey, RGB or RGBA of 8 or 16
    bits a channel.
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
        color_type,
        compression,
        filters,
        interlace,
        checksum,
    ) = _HEAD.unpack(head)
    if signature != SIGNATURE or size != 13 or name != b"IHDR":
        return None
    if compression != 0 or filters != 0 or interlace != 0:
        return None
    if depth not in (8, 16) or color_type not in _CHANNELS:
        return None
    if width == 0 or height == 0 or zlib.crc32(head[12:29]) != checksum:
        return None

    dtype = np.dtype(np.uint8 if depth == 8 else np.uint16)
    n_channels = _CHANNELS[color_type]
    if n_channels == 1:
        return _PlainHead((height, width), dtype, is_deep_color=False)
    return _PlainHead((height, width, n_channels), dtype, is_deep_color=depth == 16)
