"""Draws values as small pictures."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.exception import ConfigError
from data_stack.show.kinds import Kind, Look, kind_of_value, look_at, sampled, shorten

__all__ = ["Kind", "as_png", "kind_of_value", "png_of", "shorten", "span_of", "to_pixels"]

_Array = npt.NDArray[Any]
_Pixels = npt.NDArray[np.uint8]
_Span = tuple[float, float]

_MAX_AVERAGED = 1 << 18  # pixels
_MIN_OVERLAID = 160  # smaller pictures are enlarged before boxes and masks are drawn
_SIGNATURE = b"\x89PNG\r\n\x1a\n"

#: Evenly spaced colours of matplotlib's viridis.
_HEAT = np.array(
    [(68, 1, 84), (72, 40, 120), (62, 74, 137), (49, 104, 142), (38, 130, 142),
     (31, 158, 137), (53, 183, 121), (109, 205, 89), (180, 222, 44), (253, 231, 37)]
)  # fmt: skip
_MAX_LINES, _WIDEST_LINES = 6, 480
_LINE_COLOURS = ((91, 139, 208), (217, 119, 74), (74, 165, 138), (176, 124, 198), (194, 161, 60), (138, 143, 152))
#: The colours of classes in masks, and of boxes.
_COLOURS = np.array([(230, 75, 53), (77, 187, 213), (0, 160, 135), (240, 180, 40), (132, 94, 194), (240, 120, 180)])


def as_png(
    value: Any,
    *,
    max_pixels: int = 1 << 16,
    span: _Span | None = None,
    hint: str | None = None,
    boxes: Any = None,
    mask: Any = None,
) -> bytes:
    """Draw a value as a PNG file.

    Pictures may have any size and number type, with the channels first or last: shape ``(h, w)``, ``(h, w, c)`` or
    ``(c, h, w)`` with c 1, 3 or 4; series and sound are drawn as lines, arrays of other shapes as heat maps with NaN transparent.
    Large pictures are shrunk; small ones are enlarged only below boxes and masks. The value may also be a Pillow image or the
    bytes of an image file.

    Args:
        value: see :func:`kind_of_value`.
        max_pixels: maximum size of the picture; its longer edge is at most four times the square root of it.
        span: the values drawn as black and white; None: as :func:`span_of` returns.
        hint: the kind of the column in the meta, see :func:`kind_of_value`.
        boxes: drawn over the picture: shape ``(n, 4)``, x and y of two corners, in pixels.
        mask: drawn over the picture: classes or bools, of any shape ``(h, w)``; 0 is transparent.

    Raises:
        ConfigError: the value is not an image, mask, sound or array of numbers.
    """
    look = look_at(value, hint)
    if look.kind == "array" and look.data.ndim == 1:
        look = Look("array", look.data[np.newaxis])
    if not look.is_picture:
        raise ConfigError(f"cannot draw {shorten(value)}: expected an image, sound or numbers, got {look.kind}")
    return png_of(to_pixels(look, max_pixels, span, boxes=boxes, mask=mask))


def to_pixels(look: Look, max_pixels: int, span: _Span | None = None, *, boxes: Any = None, mask: Any = None) -> _Pixels:
    """Draw a value as :func:`as_png` does, as pixels of shape ``(h, w)``, ``(h, w, 3)`` or ``(h, w, 4)``, uint8."""
    if look.kind in ("series", "audio"):
        return _draw_lines(look.data, max_pixels)
    array = look.data
    while look.kind == "array" and array.ndim > 2:  # the plane in the middle
        array = array[len(array) // 2]
    small = _shrink(array, max_pixels, averages=look.kind == "image")
    if look.kind == "mask":
        return _colours_of(small)
    if look.kind == "array":
        return _heat_map(small, span_of([array], from_zero=False))
    pixels = _to_bytes(small, span or span_of([array]))
    if boxes is None and mask is None:
        return pixels
    times = math.ceil(_MIN_OVERLAID / max(pixels.shape[:2]))
    pixels = np.repeat(np.repeat(_rgb(pixels), times, axis=0), times, axis=1)
    if mask is not None:
        pixels = _lay_over(pixels, mask)
    return pixels if boxes is None else _draw_boxes(pixels, boxes, array.shape)


def span_of(arrays: Sequence[_Array], *, from_zero: bool = True) -> _Span:
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


def png_of(pixels: _Pixels) -> bytes:
    """Pixels as a PNG file: https://www.w3.org/TR/png-3/.

    Args:
        pixels: shape ``(h, w)``, ``(h, w, 3)`` or ``(h, w, 4)``, uint8, not empty.
    """
    height, width = pixels.shape[:2]
    rows = pixels.reshape(height, -1)
    streams = [
        zlib.compress(np.hstack([np.full((height, 1), number, np.uint8), filtered]).tobytes(), 4)
        for number, filtered in ((0, rows), (2, np.diff(rows, axis=0, prepend=np.uint8(0))))
    ]
    colour = {2: 0, 3: 2, 4: 6}[pixels.ndim if pixels.ndim == 2 else pixels.shape[2]]
    header = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    return _SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", min(streams, key=len)) + _chunk(b"IEND", b"")


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def _shrink(array: _Array, max_pixels: int, *, averages: bool) -> _Array:
    """Shrink an array to at most ``max_pixels``, by selecting or averaging its values."""
    height, width = array.shape[:2]
    longest = max(1, 4 * math.isqrt(max_pixels))
    scale = min(1.0, math.sqrt(max_pixels / (height * width)))
    new = [max(1, min(longest, int(edge * scale))) for edge in (height, width)]
    if new == [height, width]:
        return array
    if not averages or height * width > _MAX_AVERAGED:  # averages only some rows and columns of a very large array
        fine = [min(edge, 4 * n if averages else n) for edge, n in zip((height, width), new, strict=True)]
        rows, columns = (np.arange(n) * edge // n for edge, n in zip((height, width), fine, strict=True))
        array = array[rows][:, columns]
    if not averages:
        return array
    for axis, n in enumerate(new):
        starts = np.arange(n) * array.shape[axis] // n
        counts = np.diff(starts, append=array.shape[axis]).reshape(-1, *[1] * (array.ndim - axis - 1))
        array = np.add.reduceat(array, starts, axis=axis, dtype=np.float64) / counts
    return array


def _to_bytes(picture: _Array, span: _Span) -> _Pixels:
    if picture.dtype == np.uint8 and span == (0.0, 255.0):
        return picture
    with np.errstate(all="ignore"):
        scaled = np.interp(picture.astype(np.float64), span, (0, 255))
        return np.asarray(np.nan_to_num(scaled).round(), np.uint8)


def _heat_map(array: _Array, span: _Span) -> _Pixels:
    where = np.clip((array.astype(np.float64) - span[0]) / (span[1] - span[0]), 0, 1)
    colours = [np.interp(where, np.linspace(0, 1, len(_HEAT)), _HEAT[:, channel]) for channel in range(3)]
    return np.asarray(np.nan_to_num(np.stack([*colours, np.where(np.isnan(where), 0, 255)], axis=2)), np.uint8)


def _draw_lines(lines: _Array, max_pixels: int) -> _Pixels:
    """Numbers in time, shape ``(n, lines)``, with gaps where not finite; of many, the least and the largest neighbours."""
    width = min(_WIDEST_LINES, math.isqrt(3 * max_pixels))
    height = width // 3
    low, high = span_of([lines], from_zero=False)
    pixels = np.zeros((height, width, 4), np.uint8)
    with np.errstate(all="ignore"):
        values = np.where(np.isfinite(lines), lines, np.nan)[:, :_MAX_LINES].astype(np.float64)
        heights = (high - values) / (high - low) * (height - 3)
        if len(lines) <= width:
            places = np.linspace(0, len(lines) - 1, width + 1)
            heights = np.stack([np.interp(places, np.arange(len(lines)), line) for line in heights.T], axis=1)
        starts = np.linspace(0, len(heights) - 1, width + 1).round().astype(np.intp)
        ranges = np.stack([starts[:-1], starts[1:] + 1], axis=1).ravel()
        padded = np.vstack([heights, np.full((1, heights.shape[1]), np.nan)])
        ends = [extreme.reduceat(padded, ranges)[::2].T for extreme in (np.fmin, np.fmax)]
    rows = np.arange(height)[:, np.newaxis]
    for top, bottom, colour in zip(*ends, _LINE_COLOURS, strict=False):
        pixels[(rows >= np.floor(top)) & (rows < np.floor(bottom) + 3)] = (*colour, 255)
    return pixels


def _colours_of(mask: _Array) -> _Pixels:
    classes = np.nan_to_num(mask).astype(np.int64)
    coloured = np.dstack([_COLOURS[(classes - 1) % len(_COLOURS)], np.full((*classes.shape, 1), 255)])
    return np.asarray(np.where(classes[:, :, None] == 0, 0, coloured), np.uint8)


def _rgb(pixels: _Pixels) -> _Pixels:
    if pixels.ndim == 2:
        return np.repeat(pixels[:, :, None], 3, axis=2)
    return pixels[:, :, :3]


def _lay_over(pixels: _Pixels, mask: Any) -> _Pixels:
    look = look_at(mask, "mask")
    if look.kind != "mask":
        return pixels
    (height, width), of_mask = pixels.shape[:2], look.data.shape
    rows, columns = np.arange(height) * of_mask[0] // height, np.arange(width) * of_mask[1] // width
    colours = _colours_of(look.data[rows][:, columns]).astype(np.float64)
    share = 0.5 * colours[:, :, 3:] / 255
    return np.asarray((1 - share) * pixels + share * colours[:, :, :3], np.uint8)


def _draw_boxes(pixels: _Pixels, boxes: Any, shape: tuple[int, ...]) -> _Pixels:
    look = look_at(boxes, "boxes")
    if look.kind != "boxes":
        return pixels
    height, width = pixels.shape[:2]
    drawn: _Pixels = pixels.copy()
    thick = max(1, max(height, width) // 80)
    for number, box in enumerate(look.data[np.isfinite(look.data).all(axis=1)][:200]):
        x0, x1 = np.clip(np.sort(box[[0, 2]]) * width / shape[1], 0, width - 1).astype(int)
        y0, y1 = np.clip(np.sort(box[[1, 3]]) * height / shape[0], 0, height - 1).astype(int)
        inner = drawn[y0 + thick : y1 + 1 - thick, x0 + thick : x1 + 1 - thick].copy()
        drawn[y0 : y1 + 1, x0 : x1 + 1] = _COLOURS[(number + 3) % len(_COLOURS)]  # not the colours of the first classes of a mask
        if min(y1 - y0, x1 - x0) >= 2 * thick:
            drawn[y0 + thick : y1 + 1 - thick, x0 + thick : x1 + 1 - thick] = inner
    return drawn
