"""Decides how a value is shown: as a picture, sound, a line, text or numbers."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from data_stack.codecs import plain_data
from data_stack.codecs.registry import registered_types, type_of_bytes
from data_stack.show.markup import printable, readable
from data_stack.values.missing import is_null
from data_stack.values.stacked_values import exact_array

Kind = Literal[
    "image",
    "mask",
    "boxes",
    "audio",
    "series",
    "array",
    "number",
    "text",
    "bytes",
    "missing",
    "other",
]
"""How a value is shown; see ``docs/reference/shown_values.md``."""

_Array = npt.NDArray[Any]

#: Vectors of up to this many numbers are written out instead of drawn.
_MAX_PRINTED_NUMBERS = 16

#: Only the beginning of a longer list is looked at.
_MAX_LIST_ITEMS = 100_000

#: The numbers of channels of pictures: grey, RGB, RGBA.
_CHANNELS = (1, 3, 4)

#: An array with more lines than this is not drawn as a series.
_MAX_LINES = 12

#: Sampling rates of sound, in Hz. Other numbers beside an array are no sampling rates.
_SAMPLING_RATES = range(1_000, 400_000)

#: Image files of more pixels are not decoded.
_MAX_DECODED_PIXELS = 1 << 25

#: Sound files are not decoded if their samples take more bytes.
_MAX_DECODED_AUDIO_BYTES = 1 << 26

#: Only the beginning of longer bytes is decoded as text.
_MAX_TEXT_BYTES = 1 << 16

#: The smallest edge of a plane that is a picture, not a table of numbers.
_MIN_EDGE_OF_PICTURE = 4

#: Values whose ``str`` is their text. Booleans of numpy are no integers of numpy.
_PRINTED_TYPES = (
    datetime.date,
    datetime.time,
    datetime.timedelta,
    decimal.Decimal,
    np.bool_,
    np.integer,
    np.datetime64,
)

#: Modes of Pillow whose values are brightnesses or colors.
_PILLOW_MODES_OF_COLORS = (
    "1",
    "L",
    "RGB",
    "RGBA",
    "I",
    "I;16",
    "I;16B",
    "I;16L",
    "I;16N",
    "F",
)


class DisplayValue(NamedTuple):
    """A value, and how it is shown.

    Attributes:
        kind: how the value is shown.
        data: an array for these kinds, and the value itself for all others:

            - images and masks: ``(height, width)`` or ``(height, width, c)``, c 3 or 4
            - boxes: ``(n, 4)``, x and y of two corners in pixels
            - audio: ``(n, channels)``
            - series: ``(n, lines)``
            - arrays: any shape
        rate: samples per second of audio; 0 for other kinds.
    """

    kind: Kind
    data: Any
    rate: int = 0

    @property
    def is_picture(self) -> bool:
        """Whether the value can be drawn, as a picture or as lines.

        Sound can be drawn, and also has a player.
        """
        if self.kind == "array":
            return bool(self.data.ndim > 1)
        return self.kind in ("image", "mask", "series", "audio")


def kind_of_value(value: Any, hint: str | None = None) -> Kind:
    """Return how a value is shown: ``"image"``, ``"audio"``, ``"text"`` and so on. Never raises.

    Args:
        value: a value of any type: arrays, tensors, Pillow images, lists of numbers, text, bytes
            (also of image and sound files), or for sound ``(samples, rate)`` or
            ``{"array": …, "sampling_rate": …}``.
        hint: the kind of the column in the meta, see
            :class:`~data_stack.dataset.meta.DatasetMeta`: ``"image"``, ``"mask"``, ``"boxes"``
            (corners) or ``"boxes xywh"``, ``"audio 16000"``, ``"series"``, ``"array"``, ``"text"``.
            It is ignored if it does not fit the value.
    """
    return to_display_value(value, hint).kind


def to_display_value(value: Any, hint: str | None = None) -> DisplayValue:
    """Decide how a value is shown, and decode image and sound files; see :func:`kind_of_value`."""
    hinted_kind, _, option = (hint or "").partition(" ")
    try:
        return _classify(value, hinted_kind, option)
    except Exception:  # noqa: BLE001  # foreign values and broken files
        if isinstance(value, (bytes, bytearray, memoryview)):
            return DisplayValue("bytes", value)
        return DisplayValue("other", value)


def shorten(value: Any, most_characters: int = 200) -> str:
    """Return a value of any type as one line of printable text. Never raises.

    Control and bidirectional characters are escaped; HTML is not. Only the beginning of a long list
    or array is visited.

    Args:
        value: a value of any type.
        most_characters: longer texts are cut.
    """
    if isinstance(value, str):
        return readable(str.__str__(value), most_characters)
    if isinstance(value, (float, np.floating)):
        return f"{float(value):.6g}"
    if isinstance(value, _PRINTED_TYPES):
        return readable(str(value), most_characters)
    if _is_short_array_of_numbers(value):
        text = np.array2string(value, precision=4, separator=", ", threshold=_MAX_PRINTED_NUMBERS)
        return readable(text.replace("\n", ""), most_characters)
    return printable(plain_data.shorten(value))[:most_characters]


def thin_out_values(array: _Array, max_values: int = 1 << 20) -> _Array:
    """Return a view of at most ``max_values`` values of an array, spread along every axis."""
    while array.size > max_values:
        longest_axis = int(np.argmax(array.shape))
        every_second = slice(None, None, 2)
        array = array[(slice(None),) * longest_axis + (every_second,)]
    return array


def span_of(arrays: Sequence[_Array], *, from_zero: bool = True) -> tuple[float, float]:
    """Return the values to draw as black and as white in pictures shown side by side.

    Black is 0, or the smallest value if it is negative. White is the largest value; for uint8 above
    127 it is 255.

    Args:
        arrays: arrays of numbers; only some values of large arrays are read.
        from_zero: False: black is always the smallest value.
    """
    lowest_values = []
    highest_values = []
    for array in arrays:
        values = thin_out_values(array)
        finite_values = values[np.isfinite(values)]
        if finite_values.size:
            lowest_values.append(finite_values.min())
            highest_values.append(finite_values.max())
    if not lowest_values:
        return 0.0, 1.0

    low = float(min(lowest_values))
    high = float(max(highest_values))
    if from_zero:
        low = min(low, 0.0)
        high = max(high, 0.0)
    if high > 127 and all(array.dtype == np.uint8 for array in arrays):
        high = 255.0
    if high <= low:
        return low, low + 1
    return low, high


def _is_short_array_of_numbers(value: Any) -> bool:
    return (
        isinstance(value, np.ndarray)
        and value.dtype.kind in "biufc"
        and value.size <= _MAX_PRINTED_NUMBERS
    )


def _classify(value: Any, hinted_kind: str, option: str) -> DisplayValue:
    """Decide how a value is shown. Errors of foreign values pass through.

    Args:
        value: a value of any type.
        hinted_kind: the first word of the hint; empty without a hint.
        option: the rest of the hint: the sampling rate of audio, or ``"xywh"`` for boxes.
    """
    if is_null(value):
        return DisplayValue("missing", value)
    if isinstance(value, str):
        return DisplayValue("text", value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _classify_bytes(bytes(value), hinted_kind, option)

    hinted_rate = option if hinted_kind == "audio" else ""
    sound = _find_sound(value, hinted_rate)
    if sound is not None:
        return sound

    array = _convert_to_numbers(value, hinted_kind)
    if array is None or not array.size:
        return DisplayValue("other", value)
    if array.ndim == 0:
        return DisplayValue("number", value)
    return _classify_array(array, hinted_kind, option)


def _classify_bytes(value: bytes, hinted_kind: str, option: str) -> DisplayValue:
    """Decide how bytes are shown: as text if the hint says so, or decoded from a file."""
    if hinted_kind == "text":
        text = value[:_MAX_TEXT_BYTES].decode("utf-8", errors="backslashreplace")
        return DisplayValue("text", text)

    codec_name = type_of_bytes(value[:16])
    if codec_name is None:
        return DisplayValue("bytes", value)
    codec_class: Any = registered_types().get(codec_name)
    media_type = getattr(codec_class, "media_type", None) or ""
    media, _, _ = media_type.partition("/")
    if media == "image":
        with codec_class(max_pixels=_MAX_DECODED_PIXELS).open(value) as image:
            return _classify(image, hinted_kind or media, option)
    if media == "audio":
        sound = codec_class(max_bytes=_MAX_DECODED_AUDIO_BYTES).decode(value)
        return _classify(sound, hinted_kind or media, option)
    return DisplayValue("bytes", value)


def _find_sound(value: Any, hinted_rate: str) -> DisplayValue | None:
    """Return sound whose sampling rate is in the value, or in the hint; None for other values."""
    samples = value
    rate: Any = None
    if isinstance(value, Mapping) and {"array", "sampling_rate"} <= value.keys():
        samples = value["array"]
        rate = value["sampling_rate"]
    elif isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], (int, np.integer)):
        samples, rate = value
    elif hinted_rate.isdecimal():
        rate = int(hinted_rate)
    if rate is None or int(rate) not in _SAMPLING_RATES:
        return None

    array = exact_array(samples)
    if array is None or array.ndim not in (1, 2) or array.dtype.kind not in "iuf" or len(array) < 2:
        return None
    return DisplayValue("audio", _with_lines_as_columns(array), int(rate))


def _convert_to_numbers(value: Any, hinted_kind: str) -> _Array | None:
    """Return the numbers of a value, or None if it has none.

    The numbers of a Pillow image are its colors: palettes (except those of masks) and inks are
    converted.
    """
    if isinstance(value, (list, tuple)):
        value = value[:_MAX_LIST_ITEMS]
    elif type(value).__module__.startswith("PIL."):
        value = _convert_pillow_image_to_colors(value, keeps_palette=hinted_kind == "mask")
    array = exact_array(value)
    if array is None or array.dtype.kind not in "biufc":
        return None
    if array.dtype.kind == "c":
        return np.abs(array)
    return array


def _convert_pillow_image_to_colors(image: Any, *, keeps_palette: bool) -> Any:
    """Return a Pillow image in a mode whose values are brightnesses or colors.

    With ``keeps_palette`` the indices of a palette, which are the classes of a mask, stay.
    """
    if image.mode in _PILLOW_MODES_OF_COLORS:
        return image
    if image.mode == "P" and keeps_palette:
        return image
    if image.has_transparency_data:
        return image.convert("RGBA")
    return image.convert("RGB")


def _classify_array(array: _Array, hinted_kind: str, option: str) -> DisplayValue:
    """Decide how an array is shown: as the hint says if it fits, otherwise by shape and dtype.

    Without a hint, the first of these rules that fits decides:

    1. An array with channels, and a plane of uint8, uint16 or bool, is an image.
    2. Many numbers in few lines are a series.
    3. Another plane is an image if its values lie within 0 and 255.
    4. Everything else is shown as an array.
    """
    # The kinds that only a hint can ask for.
    if hinted_kind == "boxes" and array.ndim in (1, 2) and array.shape[-1] == 4:
        return DisplayValue("boxes", _corners_of_boxes(array, is_xywh=option == "xywh"))
    picture = _find_picture(array)
    if hinted_kind == "mask" and picture is not None and picture.ndim == 2:
        return DisplayValue("mask", picture)
    if hinted_kind in get_args(Kind) and hinted_kind not in ("image", "series"):
        return DisplayValue("array", array)

    if picture is not None:
        has_type_of_pictures = picture.dtype.name in ("bool", "uint8", "uint16")
        is_image = picture.ndim == 3 or has_type_of_pictures
        if hinted_kind == "image" or (is_image and hinted_kind != "series"):
            return DisplayValue("image", picture)

    lines = _with_lines_as_columns(array)
    n_numbers, n_lines = lines.shape
    is_long = array.size > _MAX_PRINTED_NUMBERS and n_numbers >= 4 * n_lines
    if array.ndim <= 2 and is_long and n_lines <= _MAX_LINES:
        return DisplayValue("series", lines)

    if picture is not None:
        values = thin_out_values(picture)
        if values.min() >= 0 and values.max() <= 255:
            return DisplayValue("image", picture)
    return DisplayValue("array", array)


def _corners_of_boxes(array: _Array, *, is_xywh: bool) -> _Array:
    """Return boxes as x and y of two corners, shape ``(n, 4)``, float64."""
    boxes = array.reshape(-1, 4).astype(np.float64)
    if not is_xywh:
        return boxes
    first_corners = boxes[:, :2]
    sizes = boxes[:, 2:]
    return np.hstack([first_corners, first_corners + sizes])


def _with_lines_as_columns(array: _Array) -> _Array:
    """Return an array as shape ``(n, lines)``, where n is the longer dimension."""
    lines: _Array = array.reshape(len(array), -1)
    n_rows, n_columns = lines.shape
    if n_rows < n_columns:
        lines = lines.T
    return lines


def _find_picture(array: _Array) -> _Array | None:
    """Return an array as ``(height, width)`` or ``(height, width, c)``, c 3 or 4.

    Returns None if the array is no picture.
    """
    if array.ndim == 2:
        return array if min(array.shape) >= _MIN_EDGE_OF_PICTURE else None
    if array.ndim != 3:
        return None

    if array.shape[2] not in _CHANNELS:
        array = np.moveaxis(array, 0, 2)
    if array.shape[2] not in _CHANNELS:
        return None
    # Bytes with channels are a picture of any size.
    min_edge = 1 if array.dtype == np.uint8 else _MIN_EDGE_OF_PICTURE
    if min(array.shape[:2]) < min_edge:
        return None
    if array.shape[2] == 1:
        return array[:, :, 0]
    return array
