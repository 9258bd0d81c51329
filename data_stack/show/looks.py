"""Decides how to show values: as a picture, text, sound, a line, or numbers."""

from __future__ import annotations

import datetime
import decimal
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from data_stack.codecs import plain_data
from data_stack.codecs.registry import registered_types, type_of_bytes
from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.dataset.meta import column_names
from data_stack.exception import ConfigError
from data_stack.show.column_statistics import n_values_of, plain_value
from data_stack.show.markup import printable, readable
from data_stack.values.missing import is_null
from data_stack.values.stacked_values import exact_array, one_hot_positions

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
"""How a value is shown; see ``docs/display.md``."""

_Array = npt.NDArray[Any]

_SHORT = 16  # vectors of up to 16 numbers are written out
_CHANNELS = (1, 3, 4)
_PRINTED = (
    datetime.date,
    datetime.time,
    datetime.timedelta,
    decimal.Decimal,
    np.bool_,
    np.integer,
    np.datetime64,
)
_MODES = (
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
)  # values of these are brightnesses or colours


class Look(NamedTuple):
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
        return self.kind in ("image", "mask", "series", "audio") or (
            self.kind == "array" and self.data.ndim > 1
        )


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
        return Look(
            "bytes" if isinstance(value, (bytes, bytearray, memoryview)) else "other", value
        )


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
        value = np.array2string(value, precision=4, separator=", ", threshold=_SHORT).replace(
            "\n", ""
        )
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
    finite = [found for array in map(sampled, arrays) if (found := array[np.isfinite(array)]).size]
    if not finite:
        return 0.0, 1.0
    low, high = float(min(each.min() for each in finite)), float(max(each.max() for each in finite))
    low, high = (min(low, 0.0), max(high, 0.0)) if from_zero else (low, high)
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
    if (sound := _sound_of(value, option if wanted == "audio" else "")) is not None:
        return sound
    array = _numbers_of(value, wanted)
    if array is None or array.ndim == 0 or not array.size:
        return Look("other" if array is None or not array.size else "number", value)
    return _look_at_array(array, wanted, option)


def _look_at_bytes(value: bytes, wanted: str, option: str) -> Look:
    if wanted == "text":
        return Look("text", value[: 1 << 16].decode("utf-8", errors="backslashreplace"))
    name = type_of_bytes(value[:16])
    codec_class: Any = registered_types().get(name or "")
    media = (getattr(codec_class, "media_type", None) or "").partition("/")[0]
    if name is None or media not in ("image", "audio"):
        return Look("bytes", value)
    if media == "image":
        with codec_class(max_pixels=1 << 25).open(value) as image:
            return _look(image, wanted or media, option)
    return _look(codec_class(max_bytes=1 << 26).decode(value), wanted or media, option)


def _sound_of(value: Any, rate: str) -> Look | None:
    """Sound whose rate is in the value, or in the hint."""
    samples, hertz = value, int(rate) if rate.isdecimal() else None
    if isinstance(value, Mapping) and {"array", "sampling_rate"} <= value.keys():
        samples, hertz = value["array"], value["sampling_rate"]
    elif isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], (int, np.integer)):
        samples, hertz = value
    array = (
        exact_array(samples) if hertz is not None and int(hertz) in range(1_000, 400_000) else None
    )
    if array is None or array.ndim not in (1, 2) or array.dtype.kind not in "iuf" or len(array) < 2:
        return None
    columns = array.reshape(len(array), -1)
    return Look(
        "audio", columns.T if columns.shape[0] < columns.shape[1] else columns, int(hertz or 0)
    )


def _numbers_of(value: Any, wanted: str) -> _Array | None:
    """The numbers of a value; of a Pillow image its colours: palettes (except those of masks) and inks are converted."""
    if isinstance(value, (list, tuple)):
        value = value[:100_000]
    elif type(value).__module__.startswith("PIL.") and value.mode not in (
        *_MODES,
        "P" if wanted == "mask" else "",
    ):
        value = value.convert("RGBA" if value.has_transparency_data else "RGB")
    array = exact_array(value)
    if array is None or array.dtype.kind not in "biufc":
        return None
    return np.abs(array) if array.dtype.kind == "c" else array


def _look_at_array(array: _Array, wanted: str, option: str) -> Look:
    if wanted == "boxes" and array.ndim in (1, 2) and array.shape[-1] == 4:
        boxes = array.reshape(-1, 4).astype(np.float64)
        return Look(
            "boxes",
            np.hstack([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]]) if option == "xywh" else boxes,
        )
    picture = _picture_of(array)
    is_image = picture is not None and (
        picture.ndim == 3 or picture.dtype.name in ("bool", "uint8", "uint16")
    )
    if wanted == "mask" and picture is not None and picture.ndim == 2:
        return Look("mask", picture)
    if wanted in get_args(Kind) and wanted not in ("image", "series"):
        return Look("array", array)
    if picture is not None and (wanted == "image" or (wanted != "series" and is_image)):
        return Look("image", picture)
    lines = array.reshape(len(array), -1)
    lines = lines.T if lines.shape[0] < lines.shape[1] else lines
    if (
        array.ndim <= 2
        and array.size > _SHORT
        and lines.shape[1] <= 12
        and len(lines) >= 4 * lines.shape[1]
    ):
        return Look("series", lines)  # many numbers in few lines
    is_natural = (
        picture is not None and sampled(picture).min() >= 0 and sampled(picture).max() <= 255
    )
    return Look("image", picture) if is_natural else Look("array", array)


def _picture_of(array: _Array) -> _Array | None:
    """``array`` with shape ``(height, width)`` or ``(height, width, c)``, c 3 or 4, if it is a picture."""
    if array.ndim == 3 and array.shape[2] not in _CHANNELS:
        array = np.moveaxis(array, 0, 2)
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in _CHANNELS):
        return None
    if min(array.shape[:2]) < (4 if array.ndim == 2 or array.dtype != np.uint8 else 1):
        return None
    return array[:, :, 0] if array.ndim == 3 and array.shape[2] == 1 else array


Key = int | str | None
"""The position or key of a part of a sample; None for a missing part, or for a bare sample."""


def default_keys(meta: Any, first: Any) -> tuple[Key, Key]:
    """The keys of samples and targets: those of the meta if ``first`` has them."""
    sample_key, target_key = getattr(meta, "sample_pos", 0), getattr(meta, "target_pos", 1)
    if isinstance(first, Mapping):
        if sample_key not in first:
            pictures = (key for key in first if look_at(first[key], "image").kind == "image")
            sample_key = next(pictures, next(iter(first), None))
        if target_key not in first:
            target_key = next(
                (key for key in first if key != sample_key and n_values_of(first[key]) == 1), None
            )
    return sample_key, target_key


def part_of(sample: Any, key: Key) -> Any:
    """The part of a sample at ``key``, or None; a bare sample is its own part 0."""
    if isinstance(sample, Mapping):
        return sample.get(key)
    if isinstance(sample, (tuple, list)):
        return sample[key] if isinstance(key, int) and -len(sample) <= key < len(sample) else None
    return sample if key in (0, None) else None


def title_of(iterator: DatasetIteratorIF) -> str:
    """The name and the tag of the dataset, or the iterator's class."""
    meta = getattr(iterator, "dataset_meta", None)
    names = [getattr(meta, "dataset_name", None), getattr(meta, "dataset_tag", None)]
    return " · ".join(str(name) for name in names if name) or type(iterator).__name__


def label_text(target: Any, class_names: Sequence[Any] | None, most_characters: int = 28) -> str:
    """A target as a short text: the name of its class, or its value."""
    label = _label(target)
    is_number = class_names and type(label) is int and 0 <= label < len(class_names)
    return (
        ""
        if label is None
        else shorten(class_names[label] if class_names and is_number else label, most_characters)
    )


def hints_of(iterator: DatasetIteratorIF) -> dict[int | str, str]:
    """The kinds of columns in the meta, by position or key; see :class:`~data_stack.dataset.meta.DatasetMeta`."""
    hints = dict(getattr(getattr(iterator, "dataset_meta", None), "column_kinds", None) or ())
    names = column_names(iterator)
    return {names.index(key) if key in names else key: kind for key, kind in hints.items()}


def overlays_of(sample: Any, hints: Mapping[Any, str]) -> dict[str, Any]:
    """The boxes and the mask of a sample, as the arguments of ``as_png``."""
    looks = [look_at(part_of(sample, key), hint) for key, hint in hints.items()]
    return {look.kind: look.data for look in looks if look.kind in ("boxes", "mask")}


def choose(
    iterator: DatasetIteratorIF,
    target_key: Key,
    n_samples: int,
    seed: int | None,
    per_class: int | None = None,
) -> tuple[list[int], int]:
    """Choose positions to draw, alternating between classes (or, with ``per_class``, class after class), and count the classes.

    If the targets are not classes, the count is 0, and the positions are evenly spread.
    """
    n_total = len(iterator)
    candidates = np.linspace(0, n_total - 1, min(n_total, 10_000)).astype(
        np.intp
    )  # at most, evenly spread
    if seed is not None:
        np.random.default_rng(seed).shuffle(candidates)
    try:
        labels = (
            []
            if target_key is None
            else [_label(target) for target in iterator.read_column(target_key, candidates)]
        )
    except (ConfigError, LookupError, TypeError):  # the samples have no such column
        labels = []
    classes = set(labels) - {None}
    if (
        not classes
        or len(classes) > len(labels) // 2
        or any(isinstance(label, float) for label in classes)
    ):
        if per_class is not None:
            raise ConfigError(
                f"per_class={per_class} requires a column of classes, but column {target_key!r} has none"
            )
        return candidates[
            np.linspace(0, len(candidates) - 1, n_samples).astype(np.intp)
        ].tolist(), 0
    n_before: Counter[Any] = Counter()
    in_turn: list[tuple[int, Any, int]] = []
    for position, label in zip(candidates.tolist(), labels, strict=True):
        order = (0, label, "") if isinstance(label, int) else (1, 0, str(label))
        if per_class is None or n_before[label] < per_class:
            in_turn.append((n_before[label], order, position))
        n_before[label] += 1
    chosen = sorted(in_turn)[:n_samples]
    if per_class is not None:
        chosen.sort(key=lambda each: each[1:2] + each[:1])
    return [position for _, _, position in chosen], len(classes)


def _label(target: Any) -> Any:
    """A target as a plain value; a one-hot vector is the position of its one."""
    array = exact_array(target)
    if array is None or array.dtype.kind not in "biuf":
        return plain_value(target)
    if (ones := one_hot_positions(array[None])) is not None:
        return int(ones[0])
    return array.item() if array.size == 1 else plain_value(target)
