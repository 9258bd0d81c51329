"""The base of image codecs, and decoding by Pillow.

An array has the type of the picture, as in ``numpy.asarray(PIL.Image.open(file))``; nothing is converted unless a mode is
requested:

==========================  =======================  ==================================================
mode of Pillow              dtype                    shape
==========================  =======================  ==================================================
``1``                       bool                     ``(height, width)``
``L``                       uint8                    ``(height, width)``
``P``                       uint8                    ``(height, width)``, indices of the palette
``LA``, ``PA``              uint8                    ``(height, width, 2)``
``RGB``, ``YCbCr``, ...     uint8                    ``(height, width, 3)``
``RGBA``, ``CMYK``          uint8                    ``(height, width, 4)``
``I;16``                    uint16                   ``(height, width)``
``I``                       int32                    ``(height, width)``
``F``                       float32                  ``(height, width)``
==========================  =======================  ==================================================

Every picture is turned as the orientation in its EXIF or XMP metadata says, as viewers show it and
as Hugging Face's ``datasets`` reads it: in folders, records, archives and tables alike. A codec
with ``orient=False`` returns the pixels as they are stored, as torchvision does. Of an animation
or a file of several pages the first picture is read, and a LeftOutWarning says so.
"""

from __future__ import annotations

import contextlib
import functools
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from data_stack.codecs.codec import Codec, Column, check_range, import_optional, value_errors
from data_stack.codecs.registry import codec_of, type_of_bytes
from data_stack.exception import ConfigError, LeftOutWarning
from data_stack.util.program_lines import warn_program
from data_stack.util.request_limit import check_request

#: Pillow warns of more pixels: a quarter of a GiB of RGB.
MAX_PIXELS = 89_478_485

#: The tag of EXIF that says how to turn a picture, https://exiftool.org/TagNames/EXIF.html
_ORIENTATION = 0x0112

#: Cached: to search the path takes as long as to decode a small picture.
_find_spec = functools.cache(find_spec)


def pillow(module: str = "Image") -> ModuleType:
    """A module of Pillow."""
    return import_optional(f"PIL.{module}", "a column of images", "Pillow", "images")


def decode_image(data: bytes, mode: str | None = None) -> npt.NDArray[Any]:
    """Decode an image file of any format that Pillow reads, rotated by its EXIF orientation; of an animation the first frame.

    Args:
        data: the file.
        mode: Pillow's mode to convert to; None for the mode of the file.

    Raises:
        ValueError: the image cannot be decoded.
        RequestLimitError: the image is too large for the current request.
    """
    kind = type_of_bytes(data[:16])
    if mode is None and kind in ("jpg", "png"):  # their codecs are faster
        with contextlib.suppress(ValueError):  # Pillow reads some damaged ones
            return _codec(kind).decode(data)  # type: ignore[no-any-return]  # an array
    with (
        value_errors("the image cannot be decoded"),
        pillow().open(io.BytesIO(data), formats=_formats()) as image,
    ):
        check_request(
            3 * math.prod(image.size), f"an image of {image.width} x {image.height} pixels"
        )
        image.load()  # which turns TIFF files
        converted = image if mode in (None, image.mode) else image.convert(mode)
        return turned(pixels_of(converted), orientation_of(image))


def orientation_of(image: Any) -> int:
    """How a Pillow image must be turned, 1 to 8 as in EXIF; 1, as it is, if its metadata are missing or broken."""
    try:
        orientation = image.getexif().get(_ORIENTATION, 1)
    except Exception:  # noqa: BLE001  # Pillow raises many kinds of errors of broken metadata
        return 1
    return orientation if orientation in range(1, 9) else 1


def turned(pixels: npt.NDArray[Any], orientation: int) -> npt.NDArray[Any]:
    """Pixels of shape ``(height, width, ...)`` turned upright, in C order; for 5 to 8 height and width are exchanged.

    Args:
        pixels: as they are stored.
        orientation: 1 to 8 as in EXIF.
    """
    if orientation == 1:
        return pixels
    if orientation in (5, 6, 7, 8):
        pixels = pixels.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return np.ascontiguousarray(pixels)


_codec = functools.cache(codec_of)


@functools.cache
def _formats() -> tuple[str, ...]:
    image_module = pillow()
    image_module.preinit()  # the common ones come first
    image_module.init()
    # Formats for which Pillow starts Ghostscript, or calls Windows.
    return tuple(name for name in image_module.ID if name not in ("EPS", "WMF"))


def pixels_of(image: Any) -> npt.NDArray[Any]:
    """The pixels of an image of Pillow in its own type; the array is a copy, in the byte order of this machine."""
    image.load()  # whose errors numpy would hide
    pixels = np.array(image)
    return pixels.astype(pixels.dtype.newbyteorder("="), copy=False)


@dataclass(frozen=True, kw_only=True, repr=False)
class ImageCodec(Codec):
    """Images of one file format as arrays in the type of the picture, see the table of this module.

    To store, pass an array of pixels, uint8 of shape ``(height, width)`` or ``(height, width, channels)``, or an object that
    numpy converts to one, such as a Pillow image; a last dimension of one channel is dropped. Or pass the bytes of such a file,
    which are stored unchanged.

    A record holds one image of this file format; other formats and truncated images are refused. Of an animation, or a file of
    several pages, the first image is read, with a LeftOutWarning.
    """

    #: The mode to convert to; None keeps the stored mode.
    mode: str | None = None
    max_pixels: int = MAX_PIXELS
    #: Turn images as their EXIF metadata say; False returns the pixels as they are stored.
    orient: bool = True
    #: Return images of one channel with the shape ``(height, width, 1)``.
    channel_axis: bool = False

    releases_gil = True
    is_compressed = True

    #: Pillow's module and class for the format, its name and the options of saving.
    _module: ClassVar[str]
    _class: ClassVar[str]
    _format: ClassVar[str]
    _save_options: ClassVar[Mapping[str, Any]] = {}
    _signature: ClassVar[bytes | tuple[bytes, ...]]
    #: The numbers of channels that can be stored, by dtype.
    _channels: ClassVar[Mapping[str, tuple[int, ...]]]
    #: Modes of Pillow images that can be stored without conversion.
    _modes: ClassVar[tuple[str, ...]] = ("1", "L", "LA", "RGB", "RGBA", "I;16")

    def __post_init__(self) -> None:
        if _find_spec("PIL") is None:
            pillow()  # which raises the error: another decoder may do without it, so it is imported when it is used
        if self.mode not in (None, "L", "RGB", "RGBA"):
            raise ConfigError(f"mode must be 'L', 'RGB', 'RGBA' or None, got {self.mode!r:.60}")
        check_range("max_pixels", self.max_pixels, 1)

    def encode(self, value: Any) -> bytes:
        if isinstance(value, (bytes, bytearray, memoryview)):
            record = bytes(value)
            with self.open(record):
                return record
        return self._encode(self._pixels(value))

    def decode(self, record: bytes) -> npt.NDArray[Any]:
        pixels = self._decode(record)
        return pixels[:, :, None] if self.channel_axis and pixels.ndim == 2 else pixels

    @classmethod
    def recognizes(cls, start: bytes) -> bool:
        return start.startswith(cls._signature)

    def adapt(self, column: Column) -> Codec:
        dtype, shape = column.dtype, column.shape
        if dtype is None or shape is None:
            return self
        channels, stored = shape[2] if len(shape) == 3 else 1, self._storable().get(dtype.name, ())
        if len(shape) not in (2, 3) or not stored or channels not in (None, *stored) or 0 in shape:
            raise ConfigError(f"{type(self).__name__} holds {self._what}, not {dtype}, {shape}")
        return (
            replace(self, channel_axis=True) if len(shape) == 3 and channels in (1, None) else self
        )

    def _storable(self) -> Mapping[str, tuple[int, ...]]:
        """The numbers of channels that this codec stores, by dtype."""
        return self._channels

    @property
    def _what(self) -> str:
        """The arrays that can be stored, for messages."""
        dtypes = " or ".join(
            f"{dtype} ({' or '.join(map(str, numbers))})"
            for dtype, numbers in self._storable().items()
        )
        return f"images of shape (height, width) or (height, width, channels), of dtype (channels): {dtypes}"

    def _encode(self, pixels: npt.NDArray[Any]) -> bytes:
        """Encode an array that :meth:`_pixels` returned."""
        return save(
            pixels.astype(pixels.dtype.newbyteorder("="), copy=False),
            self._format,
            **self._save_options,
        )

    def _pixels(self, value: Any) -> npt.NDArray[Any]:
        """An array of shape (h, w) or (h, w, channels), C-contiguous, of a dtype of the format."""
        if isinstance(value, pillow().Image) and value.mode not in self._modes:
            raise TypeError(
                f"cannot store an image of mode {value.mode}; convert it first: image.convert('RGB')"
            )
        pixels = np.asarray(value)
        if pixels.ndim == 3 and pixels.shape[2] == 1:
            pixels = pixels[:, :, 0]
        channels = pixels.shape[2] if pixels.ndim == 3 else 1
        stored = self._storable().get(pixels.dtype.newbyteorder("=").name, ())
        if channels not in stored or pixels.ndim not in (2, 3) or not pixels.size:
            given = f"{type(value).__name__} of dtype {pixels.dtype}, shape {pixels.shape}"
            raise TypeError(f"a column of {self.name} stores {self._what}, not {given}")
        if pixels.shape[0] * pixels.shape[1] > self.max_pixels:
            raise ValueError(
                f"an image of shape {pixels.shape} has more than max_pixels={self.max_pixels}"
            )
        return np.ascontiguousarray(pixels)

    def _check_pixels(self, width: int, height: int) -> None:
        if width * height > self.max_pixels:
            raise ValueError(
                f"an image of {width} x {height} pixels exceeds max_pixels={self.max_pixels}; raise it if intended"
            )
        check_request(3 * width * height, f"an image of {width} x {height} pixels")

    def open(self, record: bytes) -> Any:
        """Open a record as a Pillow image, without decoding its pixels.

        Raises:
            ValueError: the image is of another format, invalid, or too large.
        """
        if not record.startswith(self._signature):
            raise ValueError(f"not a {self.name} image: it begins with {record[:12]!r}")
        with value_errors(f"truncated or invalid {self.name} image"):
            # By the class of this format: Image.open would try other formats, and has other limits.
            image = getattr(pillow(self._module), self._class)(io.BytesIO(record))
        self._check_pixels(*image.size)
        return image

    def _decode(self, record: bytes) -> npt.NDArray[Any]:
        """The pixels, shape ``(height, width)`` or ``(height, width, channels)``, by Pillow."""
        with self.open(record) as image:
            with value_errors(f"damaged {self.name} image"):
                n_frames = getattr(image, "n_frames", 1)
                image.load()  # which turns TIFF files
                is_wanted = self.mode in (None, image.mode)
                converted = image if is_wanted else image.convert(self.mode)
                pixels = self._read_pixels(converted) if is_wanted else pixels_of(converted)
            orientation = orientation_of(image) if self.orient else 1
        if n_frames > 1:
            text = f"a {self.name} file holds {n_frames} images, of which the first is read"
            warn_program(text, LeftOutWarning)
        return turned(pixels, orientation)

    def _read_pixels(self, image: Any) -> npt.NDArray[Any]:
        """The pixels of an image in its own type; formats override it whose values Pillow changes.

        Raises:
            ValueError: Pillow has no type for the values.
        """
        return pixels_of(image)


def save(pixels: npt.NDArray[Any], file_format: str, **options: Any) -> bytes:
    """Encode pixels by Pillow."""
    stream = io.BytesIO()
    pillow().fromarray(pixels).save(stream, format=file_format, **options)
    return stream.getvalue()
