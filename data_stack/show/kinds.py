"""Decides how to show a value: as a picture, text, sound, a line, or numbers."""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from data_stack.codecs import plain_data
from data_stack.codecs.codec import registered_types, type_of_bytes
from data_stack.show.markup import printable, readable
from data_stack.values.stacked_values import exact_array, is_null

Kind = Literal["image", "mask", "boxes", "audio", "series", "array", "number", "text", "bytes", "missing", "other"]
"""How a value is shown; see ``docs/display.md``."""

_Array = npt.NDArray[Any]

_MIN_EDGE = 4  # smaller arrays are not shown as pictures
_SHORT = 16  # vectors of up to 16 numbers are written out
_MAX_LINES = 12
_CHANNELS = (1, 3, 4)
_PRINTED = (datetime.date, datetime.time, datetime.timedelta, decimal.Decimal, np.bool_, np.integer, np.datetime64)
_RATES = range(1_000, 400_000)  # of sound
_MAX_DECODED_PIXELS = 1 << 25
_MAX_DECODED_BYTES = 1 << 26
_MAX_IN_LIST = 100_000
_MODES = ("1", "L", "RGB", "RGBA", "I", "I;16", "I;16B", "I;16L", "I;16N", "F")  # values of these are brightnesses or colours
_SOUND_FILES = {b"RIFF": "wav", b"fLaC": "flac"}


@dataclass(frozen=True, slots=True)
class Look:
    """A value, and how it is shown.

    Attributes:
        kind: how the value is shown.
        data: pictures and masks: an array of shape ``(height, width)`` or ``(height, width, c)``, c 3 or 4; boxes: ``(n, 4)``,
            x and y of two corners in pixels; audio: ``(n, channels)``; series: ``(n, lines)``; array: any; else the value.
        rate: samples per second of audio.
    """

    kind: Kind
    data: Any
    rate: int = 0

    @property
    def is_picture(self) -> bool:
        """Whether the value can be drawn, as a picture or as lines; sound can, and also has a player."""
        return self.kind in ("image", "mask", "series", "audio") or (self.kind == "array" and self.data.ndim > 1)


def kind_of_value(value: Any, hint: str | None = None) -> Kind:
    """How a value is shown: ``"image"``, ``"audio"``, ``"text"`` and so on; never raises.

    Args:
        value: of any type: arrays, tensors, Pillow images, lists of numbers, text, bytes (also of image and sound files),
            ``(samples, rate)`` or ``{"array": …, "sampling_rate": …}`` for sound.
        hint: the kind of the column in the meta, see :class:`~data_stack.dataset.meta.DatasetMeta`: ``"image"``, ``"mask"``,
            ``"boxes"`` (corners) or ``"boxes xywh"``, ``"audio 16000"``, ``"series"``, ``"array"``, ``"text"``. It is ignored
            if it does not fit the value.
    """
    return look_at(value, hint).kind


def look_at(value: Any, hint: str | None = None) -> Look:
    """A value and how it is shown; see :func:`kind_of_value`. Image and sound files are decoded."""
    try:
        return _look(value, *(hint or "").partition(" ")[::2])
    except Exception:  # noqa: BLE001  # foreign values and broken files
        return Look("bytes" if isinstance(value, (bytes, bytearray, memoryview)) else "other", value)


def shorten(value: Any, most_characters: int = 200) -> str:
    """A value of any type as one line of printable text, cut after ``most_characters``; never raises.

    Control and bidirectional characters are escaped; HTML is not. Only the beginning of a long list or array is visited.
    """
    if isinstance(value, str):
        return readable(str.__str__(value), most_characters)
    if isinstance(value, (float, np.floating)):
        return f"{float(value):.6g}"
    if isinstance(value, _PRINTED):
        return readable(str(value), most_characters)
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufc" and value.size <= _SHORT:
        value = np.array2string(value, precision=4, separator=", ", threshold=_SHORT).replace("\n", "")
        return readable(value, most_characters)
    return printable(plain_data.shorten(value))[:most_characters]


def sampled(array: _Array, most: int = 1 << 20) -> _Array:
    """About ``most`` values of an array at most, evenly spread along every axis; a view."""
    while array.size > most:
        axis = int(np.argmax(array.shape))
        array = array[(slice(None),) * axis + (slice(None, None, 2),)]
    return array


def span_of(arrays: Sequence[_Array], *, from_zero: bool = True) -> tuple[float, float]:
    """The values to draw as black and white in pictures shown side by side.

    Black is 0, or the smallest value if it is negative. White is the largest value; for uint8 above 127 it is 255.

    Args:
        arrays: of numbers; only some values of large arrays are read.
        from_zero: False: black is always the smallest value.
    """
    low, high = math.inf, -math.inf
    for array in map(sampled, arrays):
        finite = array[np.isfinite(array)]
        if finite.size:
            low, high = min(low, float(finite.min())), max(high, float(finite.max()))
    if low > high:
        return 0.0, 1.0
    if from_zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if high > 127 and all(array.dtype == np.uint8 for array in arrays):
        high = 255.0
    return (low, high) if high > low else (low, low + 1)


def _look(value: Any, wanted: str, option: str) -> Look:
    if is_null(value):
        return Look("missing", value)
    if isinstance(value, str):
        return Look("text", value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _look_at_bytes(bytes(value), wanted, option)
    sound = _sound_of(value, option if wanted == "audio" else "")
    if sound is not None:
        return sound
    array = _numbers_of(_in_colour(value, wanted) if type(value).__module__.startswith("PIL.") else value)
    if array is None or not array.size:
        return Look("other", value)
    if array.ndim == 0:
        return Look("number", value)
    return _look_at_array(array, wanted, option)


def _look_at_bytes(value: bytes, wanted: str, option: str) -> Look:
    if wanted == "text":
        return Look("text", value[: 1 << 16].decode("utf-8", errors="backslashreplace"))
    name = type_of_bytes(value[:16]) or next((name for start, name in _SOUND_FILES.items() if value.startswith(start)), None)
    codec_class: Any = registered_types().get(name or "")
    media = (getattr(codec_class, "media_type", None) or "").partition("/")[0]
    if name is None or media not in ("image", "audio"):
        return Look("bytes", value)
    if media == "image":
        with codec_class(max_pixels=_MAX_DECODED_PIXELS).open(value) as image:
            return _look(image, wanted or media, option)
    return _look(codec_class(max_bytes=_MAX_DECODED_BYTES).decode(value), wanted or media, option)


def _sound_of(value: Any, rate: str) -> Look | None:
    """Sound whose rate is in the value, or in the hint."""
    samples, hertz = value, int(rate) if rate.isdecimal() else None
    if isinstance(value, Mapping) and {"array", "sampling_rate"} <= value.keys():
        samples, hertz = value["array"], value["sampling_rate"]
    elif isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], (int, np.integer)):
        samples, hertz = value
    if hertz is None or int(hertz) not in _RATES:
        return None
    array = exact_array(samples)
    if array is None or array.ndim not in (1, 2) or array.dtype.kind not in "iuf" or len(array) < 2:
        return None
    columns = array.reshape(len(array), -1)
    return Look("audio", columns.T if columns.shape[0] < columns.shape[1] else columns, int(hertz))


def _in_colour(image: Any, wanted: str) -> Any:
    """A Pillow image in colours: palettes (except those of masks) and inks are converted; modes of numbers stay unchanged."""
    if image.mode in _MODES or (image.mode == "P" and wanted == "mask"):
        return image
    return image.convert("RGBA" if image.has_transparency_data else "RGB")


def _numbers_of(value: Any) -> _Array | None:
    if isinstance(value, (list, tuple)):
        value = value[:_MAX_IN_LIST]
    array = exact_array(value)
    if array is None or array.dtype.kind not in "biufc":
        return None
    return np.abs(array) if array.dtype.kind == "c" else array


def _look_at_array(array: _Array, wanted: str, option: str) -> Look:
    if wanted == "boxes" and array.ndim in (1, 2) and array.shape[-1] == 4:
        boxes = array.reshape(-1, 4).astype(np.float64)
        return Look("boxes", np.hstack([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]]) if option == "xywh" else boxes)
    picture = _picture_of(array)
    if wanted == "mask" and picture is not None and picture.ndim == 2:
        return Look("mask", picture)
    if wanted in get_args(Kind) and wanted not in ("image", "series"):
        return Look("array", array)
    if picture is not None and (wanted == "image" or (wanted != "series" and _is_image(picture))):
        return Look("image", picture)
    lines = _lines_of(array)
    if lines is not None:
        return Look("series", lines)
    is_natural = picture is not None and sampled(picture).min() >= 0 and sampled(picture).max() <= 255
    return Look("image", picture) if is_natural else Look("array", array)


def _picture_of(array: _Array) -> _Array | None:
    """``array`` with shape ``(height, width)`` or ``(height, width, c)``, c 3 or 4, if it is a picture."""
    if array.ndim == 3 and array.shape[2] not in _CHANNELS:
        array = np.moveaxis(array, 0, 2)
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in _CHANNELS):
        return None
    if min(array.shape[:2]) < (_MIN_EDGE if array.ndim == 2 or array.dtype != np.uint8 else 1):
        return None
    return array[:, :, 0] if array.ndim == 3 and array.shape[2] == 1 else array


def _is_image(picture: _Array) -> bool:
    return picture.ndim == 3 or picture.dtype.name in ("bool", "uint8", "uint16")


def _lines_of(array: _Array) -> _Array | None:
    """A series as shape ``(n, lines)``, if the array has many numbers in few lines."""
    if array.ndim > 2 or array.size <= _SHORT:
        return None
    lines = array.reshape(len(array), -1)
    lines = lines.T if lines.shape[0] < lines.shape[1] else lines
    return lines if lines.shape[1] <= _MAX_LINES and len(lines) >= 4 * lines.shape[1] else None
