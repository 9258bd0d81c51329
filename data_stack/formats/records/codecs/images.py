"""Images as records, by Pillow: PNG and WebP, and what JPEG shares with them."""

from __future__ import annotations

import io
import zlib
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from data_stack.exception import ConfigError, MissingDependencyError
from data_stack.formats.records.codecs.codec import Codec
from data_stack.formats.records.codecs.opencv_png import check_chunks, decoded_png, plain_png
from data_stack.util.request_limit import check_request

try:
    from PIL import Image, ImageFile, PngImagePlugin, WebPImagePlugin
except ImportError as error:
    raise MissingDependencyError("a column of images", "Pillow", "images") from error

__all__ = ["MAX_PIXELS", "ImageCodec", "PngCodec", "WebpCodec", "check_range"]

#: Pillow's modes by the channels that a plain PNG file has behind its height and width.
_MODES = {(): "L", (3,): "RGB", (4,): "RGBA"}
#: What Pillow warns from on: a quarter of a GiB of RGB.
MAX_PIXELS = 89_478_485


#: Images of no more are not looked at before they are decoded, for that takes time too.
_FEW_PIXELS = 1 << 20


@dataclass(frozen=True, kw_only=True)
class ImageCodec(Codec):
    """Images of one file format as arrays.

    A value to be stored is an array of pixels, uint8 of shape ``(height, width)`` or ``(height, width, channels)``, or what
    numpy takes for one, such as a Pillow image; one channel is stored like none. Or it is the bytes of such a file, which are
    stored as they are.

    A record is of this file format and holds one image; any other, animations and images that are cut short are refused.
    """

    #: Modes that are read as they are; None takes all.
    mode: str | None = None
    max_pixels: int = MAX_PIXELS

    releases_lock = True
    is_compressed = True

    _name: ClassVar[str]
    _signature: ClassVar[bytes]
    _channels: ClassVar[tuple[int, ...]]

    def __post_init__(self) -> None:
        if self.mode not in (None, "L", "RGB", "RGBA"):
            raise ConfigError(f"mode of an image is 'L', 'RGB', 'RGBA' or None for what is stored, not {self.mode!r:.60}")
        if type(self.max_pixels) is not int or self.max_pixels < 1:
            raise ConfigError(f"max_pixels is a positive number, not {self.max_pixels!r:.60}")

    def encode(self, value: Any) -> bytes:
        if isinstance(value, (bytes, bytearray, memoryview)):
            record = bytes(value)
            with self._opened(record):
                return record
        return self._encoded(self._pixels(value))

    def decode(self, record: bytes) -> npt.NDArray[Any]:
        return self._by_pillow(record)

    def _converted(self, image: ImageFile.ImageFile) -> Image.Image:
        return image if self.mode in (None, image.mode) else image.convert(self.mode)

    @abstractmethod
    def _file(self, stream: io.BytesIO) -> ImageFile.ImageFile:
        """The file by the one class that reads this format: ``Image.open`` would look for others, and has limits of its own."""

    @abstractmethod
    def _encoded(self, pixels: npt.NDArray[Any]) -> bytes:
        """The record of an array that :meth:`_pixels` gave."""

    def _pixels(self, value: Any) -> npt.NDArray[Any]:
        """An array of shape (h, w) or (h, w, channels), C-contiguous, of a dtype that the format has."""
        if isinstance(value, Image.Image) and value.mode not in ("1", "L", "LA", "RGB", "RGBA", "I;16"):
            raise TypeError(f"an image of mode {value.mode} is to be converted before: image.convert('RGB')")
        pixels = np.asarray(value)
        if pixels.ndim == 3 and pixels.shape[2] == 1:
            pixels = pixels[:, :, 0]
        channels = pixels.shape[2] if pixels.ndim == 3 else 1
        if not self._takes(pixels.dtype, channels) or pixels.ndim not in (2, 3) or not pixels.size:
            raise TypeError(
                f"a column of {self._name} images stores {self._wanted()}, not {type(value).__name__} of dtype {pixels.dtype}, "
                f"shape {pixels.shape}"
            )
        if pixels.shape[0] * pixels.shape[1] > self.max_pixels:
            raise ValueError(
                f"an image of shape {pixels.shape} has more than max_pixels={self.max_pixels}, and could not be read"
            )
        return np.ascontiguousarray(pixels)

    def _takes(self, dtype: np.dtype[Any], channels: int) -> bool:
        return dtype == np.uint8 and channels in self._channels

    def _wanted(self) -> str:
        return f"uint8 of shape (height, width) or (height, width, channels) with {self._channels} channels"

    def _check_pixels(self, width: int, height: int) -> None:
        if width * height > self.max_pixels:
            raise ValueError(
                f"an image of {width} x {height} pixels is larger than max_pixels={self.max_pixels}; give its codec more if "
                f"it is meant: codecs={{{self._name!r}: {type(self).__name__}(max_pixels=…)}}"
            )
        check_request(3 * width * height, f"an image of {width} x {height} pixels")

    def _opened(self, record: bytes) -> ImageFile.ImageFile:
        if not record.startswith(self._signature):
            raise ValueError(f"this is no {self._name} image: it begins with {record[:12]!r}")
        try:
            image = self._file(io.BytesIO(record))
        except Exception as error:  # Pillow's parsers raise SyntaxError, struct.error, OverflowError and others
            raise ValueError(f"this is no whole {self._name} image: {error!s:.200}") from error
        self._check_pixels(*image.size)
        if getattr(image, "n_frames", 1) > 1:
            raise ValueError(f"a record of {self._name} holds one image, not an animation")
        return image

    def _by_pillow(self, record: bytes) -> npt.NDArray[Any]:
        with self._opened(record) as image:
            try:
                image.load()
                # A copy, since Pillow's own is read-only.
                return np.array(self._converted(image))
            except Exception as error:
                raise ValueError(f"a {self._name} image is damaged: {error!s:.200}") from error


@dataclass(frozen=True, kw_only=True)
class PngCodec(ImageCodec):
    """PNG (Granular's ``png``), without loss.

    Stores uint8 of shape ``(h, w)``, ``(h, w, 2)`` (grey and alpha), ``(h, w, 3)`` and ``(h, w, 4)``; uint16 and bool of shape
    ``(h, w)``. What comes back is what Pillow makes of a file: the same, and for files from elsewhere the indices of a palette
    (``mode="RGB"`` looks them up), 8 of the 16 bits of coloured ones. Plain files are decoded by OpenCV where it is installed.

    Args:
        mode: convert to ``"L"``, ``"RGB"`` or ``"RGBA"`` when reading; None for what is stored.
        max_pixels: what a record may claim to hold.
        compress_level: 0 (none) to 9.
        deep: store and read the 16 bits of images of shape ``(h, w, 3)`` and ``(h, w, 4)`` too; reading them needs OpenCV.
    """

    compress_level: int = 6
    deep: bool = False

    _name = "png"
    _signature = b"\x89PNG\r\n\x1a\n"
    _channels = (1, 2, 3, 4)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("compress_level", self.compress_level, 0, 9)

    def decode(self, record: bytes) -> npt.NDArray[Any]:
        plain = plain_png(record)
        if plain is not None:
            if plain.n_pixels > min(self.max_pixels, _FEW_PIXELS):
                self._check_pixels(plain.shape[1], plain.shape[0])
            is_as_stored = self.mode is None or self.mode == _MODES[plain.shape[2:]]
            if is_as_stored and (self.deep or not plain.is_deep_colour):
                pixels = decoded_png(record, plain)
                if pixels is not None:
                    return pixels
                if plain.is_deep_colour:
                    raise MissingDependencyError("a coloured PNG image of 16 bits", "opencv-python-headless", "images")
        return self._by_pillow(record)

    def decode_into(self, record: bytes, out: npt.NDArray[Any]) -> None:
        pixels = self.decode(record)
        if pixels.shape != out.shape or pixels.dtype != out.dtype:
            raise ValueError(f"an image of shape {pixels.shape}, dtype {pixels.dtype} where {out.shape}, {out.dtype} belongs")
        out[...] = pixels

    def _opened(self, record: bytes) -> ImageFile.ImageFile:
        # Pillow skips the checksums of the pixels, and takes a file without its end.
        if record.startswith(self._signature):
            check_chunks(record)
        return super()._opened(record)

    def _file(self, stream: io.BytesIO) -> ImageFile.ImageFile:
        return PngImagePlugin.PngImageFile(stream)

    def _takes(self, dtype: np.dtype[Any], channels: int) -> bool:
        name = dtype.newbyteorder("=").name
        if self.deep and name == "uint16" and channels in (3, 4):
            return True
        return super()._takes(dtype, channels) or (channels == 1 and name in ("uint16", "bool"))

    def _wanted(self) -> str:
        return f"{super()._wanted()}, or uint16 or bool of shape (height, width)"

    def _encoded(self, pixels: npt.NDArray[Any]) -> bytes:
        if pixels.dtype.newbyteorder("=") == np.uint16:
            if pixels.ndim == 3:  # which Pillow cannot write
                return _deep_png(pixels, self.compress_level)
            pixels = pixels.astype("<u2", copy=False)
        stream = io.BytesIO()
        Image.fromarray(pixels).save(stream, format="PNG", compress_level=self.compress_level)
        return stream.getvalue()


@dataclass(frozen=True, kw_only=True)
class WebpCodec(ImageCodec):
    """WebP of shape ``(h, w, 3)`` or ``(h, w, 4)``, uint8; it has no greyscale, and at most 16383 pixels in a row or column.

    Args:
        mode: convert to ``"L"``, ``"RGB"`` or ``"RGBA"`` when reading; None for what is stored (an image without a transparent
            pixel is stored as RGB).
        max_pixels: what a record may claim to hold.
        quality: 0 to 100; of the effort if ``lossless``.
        lossless: keep each pixel as it is.
    """

    quality: int = 90
    lossless: bool = False

    _name = "webp"
    _signature = b"RIFF"
    _channels = (3, 4)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("quality", self.quality, 0, 100)

    def _opened(self, record: bytes) -> ImageFile.ImageFile:
        # libwebp makes room for the pixels before Pillow tells how many there are.
        self._check_pixels(*_webp_size(record))
        return super()._opened(record)

    def _file(self, stream: io.BytesIO) -> ImageFile.ImageFile:
        return WebPImagePlugin.WebPImageFile(stream)

    def _encoded(self, pixels: npt.NDArray[Any]) -> bytes:
        stream = io.BytesIO()
        # exact: else the colours of transparent pixels are lost
        Image.fromarray(pixels).save(stream, format="WEBP", quality=self.quality, lossless=self.lossless, exact=self.lossless)
        return stream.getvalue()


def _deep_png(pixels: npt.NDArray[Any], compress_level: int) -> bytes:
    """A PNG file of uint16 pixels of shape (h, w, 3) or (h, w, 4) (https://www.w3.org/TR/png-3/)."""
    height, width, channels = pixels.shape
    rows = pixels.astype(">u2").reshape(height, -1).view(np.uint8)
    # Each row less the one above, filter 2, which compresses best of those that need no choice.
    filtered = np.full((height, 1 + rows.shape[1]), 2, np.uint8)
    filtered[0, 1:], filtered[1:, 1:] = rows[0], rows[1:] - rows[:-1]
    head = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes((16, 2 if channels == 3 else 6, 0, 0, 0))
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(filtered.tobytes(), compress_level)), (b"IEND", b""))
    return PngCodec._signature + b"".join(
        len(data).to_bytes(4, "big") + name + data + zlib.crc32(name + data).to_bytes(4, "big") for name, data in chunks
    )


def _webp_size(record: bytes) -> tuple[int, int]:
    """Width and height of a WebP file, RFC 9649 section 2; both 1 where there is none, which libwebp tells."""
    kind, bits = record[12:16], int.from_bytes(record[21:25], "little")
    if kind == b"VP8X":
        return 1 + int.from_bytes(record[24:27], "little"), 1 + int.from_bytes(record[27:30], "little")
    if kind == b"VP8L":
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    return int.from_bytes(record[26:28], "little") & 0x3FFF or 1, int.from_bytes(record[28:30], "little") & 0x3FFF or 1


def check_range(name: str, value: object, low: int, high: int) -> None:
    """Refuse an option that is no integer between two others."""
    if type(value) is not int or not low <= value <= high:
        raise ConfigError(f"{name} is a number from {low} to {high}, not {value!r:.60}")
