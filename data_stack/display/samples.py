"""What a sample is to the eye: a picture, or a row of values with a label."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

__all__ = [
    "Position",
    "as_array",
    "as_label",
    "as_picture",
    "class_order",
    "content",
    "default_positions",
    "field",
    "text_of",
    "to_bytes",
    "value_range",
]

#: Where a sample, a target or a tag is found: an index into a tuple, or a key of a dict.
Position = int | str

_CHANNELS = (1, 3, 4)
#: An array of fewer rows or columns is rather a list of points than a picture.
_LEAST_EDGE = 4
#: What datasets call the part that a person would write below the picture.
_LABEL_NAMES = ("label", "target", "class", "category", "caption", "name", "digit", "y", "label_name", "class_name", "text")
#: A sheet of bytes or of unit floats that uses less of its range than this would be too dark to see.
_LEAST_BRIGHTNESS = 0.25


def field(sample: Any, position: Position) -> Any:
    """The part of a tuple or dict ``sample`` at ``position``; None where it has no such part, or no parts at all."""
    if isinstance(sample, Mapping):
        return sample.get(position)
    if isinstance(sample, (tuple, list)) and isinstance(position, int) and -len(sample) <= position < len(sample):
        return sample[position]
    return None


def content(sample: Any, position: Position) -> Any:
    """What is looked at: the part of ``sample`` at ``position``, or the whole of a bare sample."""
    return field(sample, position) if isinstance(sample, (tuple, list, Mapping)) else sample


def default_positions(iterator: Any, first: Any) -> tuple[Position, Position]:
    """Where samples and targets of ``iterator`` are: as its meta says if ``first`` has these parts.

    Else, of a tuple, first and second. Of a dict: the part that looks most like a picture, if one does, or the first; and what
    is called a label, or the first other part that could be one, or the second.
    """
    meta = getattr(iterator, "dataset_meta", None)
    sample_pos, target_pos = getattr(meta, "sample_pos", None), getattr(meta, "target_pos", None)
    if not isinstance(first, Mapping):
        return 0 if sample_pos is None else sample_pos, 1 if target_pos is None else target_pos
    keys: list[Position] = list(first)
    if sample_pos is None or sample_pos not in first:
        others = [key for key in keys if key != target_pos]
        sample_pos = max(others, key=lambda key: _picture_likeness(first[key]), default=0)
    if target_pos is None or target_pos not in first:
        others = [key for key in keys if key != sample_pos]
        labels = [key for key in others if _could_be_a_label(first[key])]
        named = [key for name in _LABEL_NAMES for key in labels if str(key).lower() == name]
        target_pos = [*named, *labels, *others, 1][0]
    return sample_pos, target_pos


def _picture_likeness(value: Any) -> int:
    """How much a value looks like a picture: of bytes in colour most, then of bytes, then of other numbers; 0 if it does not."""
    array, picture = as_array(value), as_picture(value)
    if array is None or picture is None or min(picture.shape[:2]) < _LEAST_EDGE:
        return 0
    return 1 + 2 * bool(array.dtype == np.uint8) + 2 * (array.ndim == 3)


def _could_be_a_label(value: Any) -> bool:
    if isinstance(value, (str, bytes)):
        return True
    array = as_array(value)
    return array is not None and array.size == 1 and array.dtype.kind in "biu"


def as_array(value: Any) -> np.ndarray[Any, Any] | None:
    """``value`` as a numpy array of numbers or bools, tensors and PIL images included; None if it is something else."""
    if value is None or isinstance(value, (str, bytes, bytearray, Mapping)):
        return None
    if hasattr(value, "detach"):  # a torch tensor, without importing torch; bfloat16 has no numpy type
        value = value.detach().cpu()
        value = value.float().numpy() if str(value.dtype) == "torch.bfloat16" else value.numpy()
    try:
        array = np.asarray(value)
    except (ValueError, TypeError):  # ragged lists, objects that refuse
        return None
    return array if array.dtype.kind in "biuf" else None


def as_picture(value: Any) -> np.ndarray[Any, Any] | None:
    """``value`` as an array of shape ``(height, width)`` or ``(height, width, c)``, c 3 or 4; None if it is no picture.

    ``(height, width, c)`` and ``(c, height, width)`` are both taken, with 1, 3 or 4 channels; where both fit, they come last.
    """
    array = as_array(value)
    if array is None or array.size == 0 or array.ndim not in (2, 3):
        return None
    if array.ndim == 3:
        if array.shape[2] not in _CHANNELS:
            if array.shape[0] not in _CHANNELS:
                return None
            array = np.moveaxis(array, 0, 2)
        if array.shape[2] == 1:
            array = array[:, :, 0]
    return array


def value_range(pictures: Sequence[np.ndarray[Any, Any]]) -> tuple[float, float]:
    """Which values of ``pictures`` are black and white.

    One range for all of them, so that they stay comparable: 0 and 1 for bools, 0 and 255 for uint8, 0 and 1 for floats
    that lie between. Anything else, and pictures that would use less than a quarter of that range (the digits'
    bytes go from 0 to 16), goes from the smallest finite value to the largest, or from 0 where nothing is negative.
    """
    finite = [picture[np.isfinite(picture)] for picture in pictures]
    lows, highs = [part.min() for part in finite if part.size], [part.max() for part in finite if part.size]
    if not lows:
        return 0.0, 1.0
    low, high = float(min(lows)), float(max(highs))
    if all(picture.dtype.kind == "b" for picture in pictures):
        return 0.0, 1.0
    full = 255.0 if all(picture.dtype == np.uint8 for picture in pictures) else 1.0
    is_float = all(picture.dtype.kind == "f" for picture in pictures)
    if (full == 255.0 or is_float) and low >= 0 and full * _LEAST_BRIGHTNESS <= high <= full:
        return 0.0, full
    low = min(low, 0.0) if low < 0 else 0.0
    return (low, high) if high > low else (low, low + max(1.0, abs(low)))


def to_bytes(picture: np.ndarray[Any, Any], low: float, high: float) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """``picture`` as uint8, ``low`` black and ``high`` white; what is not a number is black."""
    # Divided first, for the difference of the largest floats is infinite.
    scale = max(abs(low), abs(high))
    with np.errstate(all="ignore"):
        scaled = (picture.astype(np.float64) / scale - low / scale) * (255.0 / (high / scale - low / scale))
    grey: np.ndarray[Any, np.dtype[np.uint8]] = (
        np.nan_to_num(scaled, posinf=255.0, neginf=0.0).clip(0, 255).round().astype(np.uint8)
    )
    return grey


def as_label(target: Any) -> Any:
    """``target`` as one plain value to sort, count and print: int, float, bool, str or None.

    Arrays of one element are that element; a one-hot vector is the index of its one; other arrays become short text.
    """
    if isinstance(target, bytes):
        return target.decode("utf-8", "replace")
    if isinstance(target, str):
        return str(target)  # not numpy's own kind of str
    if target is None or isinstance(target, bool):
        return target
    array = as_array(target)
    if array is None:
        return text_of(target)
    if array.size == 1:
        value = array.reshape(()).item()
        return int(value) if isinstance(value, float) and value.is_integer() else value
    if array.ndim == 1 and np.count_nonzero(array) == 1 and array.max() == 1:
        return int(array.argmax())
    return text_of(array)


def class_order(label: Any) -> tuple[bool, float, str]:
    """Sorts labels of mixed types: numbers by value, then everything else as text."""
    is_number = isinstance(label, (int, float))
    return not is_number, float(label) if is_number else 0.0, str(label)


def text_of(value: Any, n_characters: int = 28) -> str:
    """``value`` in one short line."""
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value))
    if isinstance(value, numbers.Integral):
        return str(int(value))
    if isinstance(value, numbers.Real):
        text = f"{float(value):.4g}"
        return f"{text}.0" if text.lstrip("-").isdigit() else text
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    array = as_array(value)
    if array is not None and array.size == 1:
        return text_of(array.reshape(()).item())
    if array is not None and array.size > 6:
        return f"{array.dtype} {'x'.join(map(str, array.shape))}"
    if array is not None:
        return ", ".join(text_of(part) for part in array.ravel().tolist())
    text = " ".join(str(value).split())
    return text if len(text) <= n_characters else text[: n_characters - 1] + "…"
