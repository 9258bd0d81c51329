"""The base of the codecs of images, which decodes by Pillow.

An array has the type of the picture, as in ``numpy.asarray(PIL.Image.open(file))``. Nothing is
converted unless a mode is requested:

=======================  =======  ========================================
mode of Pillow           dtype    shape
=======================  =======  ========================================
``1``                    bool     ``(height, width)``
``L``                    uint8    ``(height, width)``
``P``                    uint8    ``(height, width)``, indices of the palette
``LA``, ``PA``           uint8    ``(height, width, 2)``
``RGB``, ``YCbCr``, ...  uint8    ``(height, width, 3)``
``RGBA``, ``CMYK``       uint8    ``(height, width, 4)``
``I;16``                 uint16   ``(height, width)``
``I``                    int32    ``(height, width)``
``F``                    float32  ``(height, width)``
=======================  =======  ========================================

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

from data_stack.codecs.codec import Codec, ColumnType, check_range, import_optional, value_errors
from data_stack.codecs.registry import codec_of, type_of_bytes
from data_stack.exception import ConfigError, LeftOutWarning
from data_stack.util.program_lines import warn_program
from data_stack.util.request_limit import check_request

#: Pillow warns of more pixels: a quarter of a GiB of RGB.
MAX_PIXELS = 89_478_485

#: The tag of EXIF that says how to turn a picture, https://exiftool.org/TagNames/EXIF.html
_ORIENTATION = 0x0112

#: Formats that are not read: Pillow decodes them by Ghostscript or by Windows, which may run code.
_UNSAFE_FORMATS = ("EPS", "WMF")

#: Cached: to search the path takes as long as to decode a small picture.
_find_spec = functools.cache(find_spec)

#: Cached, as decode_image() needs the same two codecs for each file.
_codec_of_name = functools.cache(codec_of)


def pillow(module: str = "Image") -> ModuleType:
    """Return a module of Pillow.

    Raises:
        MissingDependencyError: Pillow is not installed.
    """
    return import_optional(f"PIL.{module}", "a column of images", "Pillow", "images")


def decode_image(data: bytes, mode: str | None = None) -> npt.NDArray[Any]:
    """Decode an image file of any format that Pillow reads.

    The image is turned as its EXIF orientation says. Of an animation the first frame is read.

    Args:
        data: the file.
        mode: Pillow's mode to convert to; None for the mode of the file.

    Raises:
        ValueError: the image cannot be decoded.
        RequestLimitError: the image is too large for the current request.
    """
    type_name = type_of_bytes(data[:16])
    if mode is None and type_name in ("jpg", "png"):
        # Their codecs are faster. Pillow reads some damaged files that they refuse.
        with contextlib.suppress(ValueError):
            pixels: npt.NDArray[Any] = _codec_of_name(type_name).decode(data)
            return pixels
    with (
        value_errors("the image cannot be decoded"),
        pillow().open(io.BytesIO(data), formats=_safe_formats()) as image,
    ):
        check_request(
            3 * math.prod(image.size), f"an image of {image.width} x {image.height} pixels"
        )
        image.load()  # turns TIFF files, whose orientation is then 1
        converted = image
        if mode is not None and mode != image.mode:
            converted = image.convert(mode)
        return turn_upright(pixels_of(converted), orientation_of(image))


@functools.cache
def _safe_formats() -> tuple[str, ...]:
    """Return the names of the formats that Pillow reads by itself, the common ones first."""
    image_module = pillow()
    image_module.preinit()
    image_module.init()
    return tuple(name for name in image_module.ID if name not in _UNSAFE_FORMATS)


def orientation_of(image: Any) -> int:
    """Return how a Pillow image must be turned, 1 to 8 as in EXIF.

    1 stands for an upright image, and for one whose metadata are missing or broken.
    """
    try:
        orientation = image.getexif().get(_ORIENTATION, 1)
    except Exception:  # noqa: BLE001  # Pillow raises many kinds of errors of broken metadata
        return 1
    if orientation not in range(1, 9):
        return 1
    return int(orientation)


def turn_upright(pixels: npt.NDArray[Any], orientation: int) -> npt.NDArray[Any]:
    """Turn pixels upright, in C order; the orientations 5 to 8 exchange height and width.

    Args:
        pixels: as they are stored, of shape ``(height, width, ...)``.
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


def pixels_of(image: Any) -> npt.NDArray[Any]:
    """Return the pixels of an image of Pillow in its own type.

    The array is a copy, in the byte order of this machine.
    """
    image.load()  # whose errors numpy would hide
    return as_native(np.array(image))


def as_native(pixels: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return pixels in the byte order of this machine, without a copy if they have it."""
    return pixels.astype(pixels.dtype.newbyteorder("="), copy=False)


def encode_by_pillow(
    pixels: npt.NDArray[Any], file_format: str, options: Mapping[str, Any]
) -> bytes:
    """Return pixels as the bytes of an image file, encoded by Pillow.

    Args:
        pixels: the pixels, shape ``(height, width)`` or ``(height, width, channels)``.
        file_format: Pillow's name of the format, such as ``"PNG"``.
        options: the named arguments of Pillow's ``Image.save`` for the format.
    """
    stream = io.BytesIO()
    pillow().fromarray(pixels).save(stream, format=file_format, **options)
    return stream.getvalue()


@dataclass(frozen=True, kw_only=True, repr=False)
class ImageCodec(Codec):
    """Images of one file format as arrays in the type of the picture, see the table of this module.

    To store, pass an array of pixels, uint8 of shape ``(height, width)`` or
    ``(height, width, channels)``, or an object that numpy converts to one, such as a Pillow image.
    A last dimension of one channel is dropped. Or pass the bytes of such a file, which are stored
    unchanged.

    A record holds one image of this file format. Other formats and truncated images are refused.
    Of an animation, or a file of several pages, the first image is read, with a LeftOutWarning.
    """

    #: The mode to convert to; None keeps the stored mode.
    mode: str | None = None
    #: The maximum number of pixels of a record.
    max_pixels: int = MAX_PIXELS
    #: Turn images as their EXIF metadata say; False returns the pixels as they are stored.
    orient: bool = True
    #: Return images of one channel with the shape ``(height, width, 1)``.
    channel_axis: bool = False

    releases_gil = True
    is_compressed = True

    #: The name of Pillow's module for the format, such as ``"PngImagePlugin"``.
    _pillow_module: ClassVar[str]
    #: The class of that module which reads files of the format.
    _pillow_class: ClassVar[str]
    #: Pillow's name of the format, such as ``"PNG"``.
    _pillow_format: ClassVar[str]
    #: Named arguments of Pillow's ``Image.save``.
    _save_options: ClassVar[Mapping[str, Any]] = {}
    #: The bytes with which a file begins, or several such.
    _signature: ClassVar[bytes | tuple[bytes, ...]]
    #: The numbers of channels that can be stored, by dtype.
    _channels: ClassVar[Mapping[str, tuple[int, ...]]]
    #: Modes of Pillow images that can be stored without conversion.
    _storable_modes: ClassVar[tuple[str, ...]] = ("1", "L", "LA", "RGB", "RGBA", "I;16")

    def __post_init__(self) -> None:
        # Pillow is imported when it is first used, as another decoder may do without it.
        if _find_spec("PIL") is None:
            pillow()  # raises the error
        if self.mode not in (None, "L", "RGB", "RGBA"):
            raise ConfigError(f"mode must be 'L', 'RGB', 'RGBA' or None, got {self.mode!r:.60}")
        check_range("max_pixels", self.max_pixels, 1)

    # ------------------------------------------------------------------ encoding

    def encode(self, value: Any) -> bytes:
        if isinstance(value, (bytes, bytearray, memoryview)):
            record = bytes(value)
            with self.open(record):
                return record
        return self._encode(self._to_storable_pixels(value))

    def _to_storable_pixels(self, value: Any) -> npt.NDArray[Any]:
        """Return a value as an array that the format can store.

        It has the shape ``(height, width)`` or ``(height, width, channels)``, is C-contiguous, and
        of a dtype of the format.

        Raises:
            TypeError: the format cannot store such an array.
            ValueError: it has too many pixels.
        """
        if isinstance(value, pillow().Image) and value.mode not in self._storable_modes:
            raise TypeError(
                f"cannot store an image of mode {value.mode}; "
                "convert it first: image.convert('RGB')"
            )
        pixels = np.asarray(value)
        if pixels.ndim == 3 and pixels.shape[2] == 1:
            pixels = pixels[:, :, 0]
        n_channels = pixels.shape[2] if pixels.ndim == 3 else 1
        dtype_name = pixels.dtype.newbyteorder("=").name
        storable_channels = self._storable_channels().get(dtype_name, ())
        is_image = pixels.ndim in (2, 3) and pixels.size > 0
        if not is_image or n_channels not in storable_channels:
            raise TypeError(
                f"a column of {self.name} stores {self._describe_storable_arrays()}, not "
                f"{type(value).__name__} of dtype {pixels.dtype}, shape {pixels.shape}"
            )
        height, width = pixels.shape[:2]
        if height * width > self.max_pixels:
            raise ValueError(
                f"an image of shape {pixels.shape} has more than max_pixels={self.max_pixels}"
            )
        return np.ascontiguousarray(pixels)

    def _encode(self, pixels: npt.NDArray[Any]) -> bytes:
        """Encode an array that :meth:`_to_storable_pixels` returned."""
        return encode_by_pillow(as_native(pixels), self._pillow_format, self._save_options)

    # ------------------------------------------------------------------ decoding

    def decode(self, record: bytes) -> npt.NDArray[Any]:
        pixels = self._decode(record)
        if self.channel_axis and pixels.ndim == 2:
            return pixels[:, :, None]
        return pixels

    def open(self, record: bytes) -> Any:
        """Open a record as a Pillow image, without decoding its pixels.

        Raises:
            ValueError: the image is of another format, invalid, or too large.
        """
        if not record.startswith(self._signature):
            raise ValueError(f"not a {self.name} image: it begins with {record[:12]!r}")
        # By the class of this format: Image.open would try other formats, and has other limits.
        image_class = getattr(pillow(self._pillow_module), self._pillow_class)
        with value_errors(f"truncated or invalid {self.name} image"):
            image = image_class(io.BytesIO(record))
        self._check_size(*image.size)
        return image

    def _check_size(self, width: int, height: int) -> None:
        """Check the number of pixels before memory is allocated for them.

        Raises:
            ValueError: the image has more than ``max_pixels``.
            RequestLimitError: the image is too large for the current request.
        """
        if width * height > self.max_pixels:
            raise ValueError(
                f"an image of {width} x {height} pixels exceeds max_pixels={self.max_pixels}; "
                "raise it if intended"
            )
        check_request(3 * width * height, f"an image of {width} x {height} pixels")

    def _decode(self, record: bytes) -> npt.NDArray[Any]:
        """Decode by Pillow.

        Returns:
            Pixels of shape ``(height, width)`` or ``(height, width, channels)``.
        """
        with self.open(record) as image:
            with value_errors(f"damaged {self.name} image"):
                n_frames = getattr(image, "n_frames", 1)
                image.load()  # turns TIFF files, whose orientation is then 1
                if self.mode is None or self.mode == image.mode:
                    pixels = self._read_pixels(image)
                else:
                    pixels = pixels_of(image.convert(self.mode))
            orientation = 1
            if self.orient:
                orientation = orientation_of(image)
        if n_frames > 1:
            warn_program(
                f"a {self.name} file holds {n_frames} images, of which the first is read",
                LeftOutWarning,
            )
        return turn_upright(pixels, orientation)

    def _read_pixels(self, image: Any) -> npt.NDArray[Any]:
        """Return the pixels of an image in its own type.

        Formats whose values Pillow changes override it.

        Raises:
            ValueError: Pillow has no type for the values.
        """
        return pixels_of(image)

    @classmethod
    def recognizes(cls, start: bytes) -> bool:
        return start.startswith(cls._signature)

    # ------------------------------------------------------------------ what can be stored

    def adapt(self, column: ColumnType) -> Codec:
        if column.dtype is None or column.shape is None:
            return self
        n_dimensions = len(column.shape)
        n_channels = column.shape[2] if n_dimensions == 3 else 1
        storable_channels = self._storable_channels().get(column.dtype.name, ())
        is_image = n_dimensions in (2, 3) and 0 not in column.shape
        is_storable = n_channels is None or n_channels in storable_channels
        if not storable_channels or not is_image or not is_storable:
            raise ConfigError(
                f"{type(self).__name__} holds {self._describe_storable_arrays()}, "
                f"not {column.dtype}, {column.shape}"
            )
        if n_dimensions == 3 and n_channels in (1, None):
            return replace(self, channel_axis=True)
        return self

    def _storable_channels(self) -> Mapping[str, tuple[int, ...]]:
        """Return the numbers of channels that this codec stores, by dtype."""
        return self._channels

    def _describe_storable_arrays(self) -> str:
        """Describe the arrays that can be stored, for messages."""
        dtypes = []
        for dtype, numbers in self._storable_channels().items():
            dtypes.append(f"{dtype} ({' or '.join(map(str, numbers))})")
        return (
            "images of shape (height, width) or (height, width, channels), "
            f"of dtype (channels): {' or '.join(dtypes)}"
        )
