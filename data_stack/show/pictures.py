"""Draws values as small pictures."""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.exception import ConfigError, MissingDependencyError
from data_stack.show.kinds import Kind, Look, kind_of_value, look_at, shorten, span_of

try:
    from PIL import Image, ImageDraw
except ImportError as error:
    raise MissingDependencyError("drawing pictures", "Pillow", "images") from error

__all__ = ["Kind", "as_png", "draw", "kind_of_value", "png_of", "shorten"]

_Array = npt.NDArray[Any]
_Span = tuple[float, float]

_OVERSAMPLED = 16  # pixels of a large picture that are averaged into one
_MIN_OVERLAID = 160  # smaller pictures are enlarged before boxes and masks are drawn
_MAX_BOXES = 200

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
        span: the values drawn as black and white; None: as :func:`~data_stack.show.kinds.span_of` returns.
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
    return png_of(draw(look, max_pixels, span, boxes=boxes, mask=mask))


def png_of(image: Image.Image) -> bytes:
    """An image as a PNG file."""
    file = io.BytesIO()
    image.save(file, "png")
    return file.getvalue()


def draw(look: Look, max_pixels: int, span: _Span | None = None, *, boxes: Any = None, mask: Any = None) -> Image.Image:
    """Draw a value as :func:`as_png` does, in grey or colours, with or without transparency."""
    if look.kind in ("series", "audio"):
        return _draw_lines(look.data, max_pixels)
    array = look.data
    while look.kind == "array" and array.ndim > 2:  # the plane in the middle
        array = array[len(array) // 2]
    small = _thin_out(array, max_pixels)
    if look.kind == "mask":
        return _colours_of(small, 255)
    if look.kind == "array":
        return _heat_map(small, span_of([array], from_zero=False))
    image = Image.fromarray(_to_bytes(_thin_out(array, _OVERSAMPLED * max_pixels), span or span_of([array])))
    image = image.resize((small.shape[1], small.shape[0]), Image.Resampling.BOX)
    if boxes is None and mask is None:
        return image
    times = math.ceil(_MIN_OVERLAID / max(image.size))
    image = image.convert("RGB").resize((image.width * times, image.height * times), Image.Resampling.NEAREST)
    if mask is not None and (of_mask := look_at(mask, "mask")).kind == "mask":
        over = _colours_of(_thin_out(of_mask.data, image.width * image.height), 128)
        over = over.resize(image.size, Image.Resampling.NEAREST)
        image.paste(over, (0, 0), over)
    if boxes is not None and (of_boxes := look_at(boxes, "boxes")).kind == "boxes":
        _draw_boxes(image, of_boxes.data, array.shape)
    return image


def _thin_out(array: _Array, max_pixels: int) -> _Array:
    """Evenly spread rows and columns of an array, at most ``max_pixels`` values."""
    height, width = array.shape[:2]
    longest, scale = max(1, 4 * math.isqrt(max_pixels)), math.sqrt(max_pixels / (height * width))
    new = [max(1, min(edge, longest, int(edge * scale))) for edge in (height, width)]
    if new == [height, width]:
        return array
    rows, columns = (np.arange(n) * edge // n for edge, n in zip((height, width), new, strict=True))
    thin: _Array = array[rows][:, columns]
    return thin


def _to_bytes(picture: _Array, span: _Span) -> npt.NDArray[np.uint8]:
    if picture.dtype == np.uint8 and span == (0.0, 255.0):
        return np.ascontiguousarray(picture)
    with np.errstate(all="ignore"):
        scaled = np.interp(picture.astype(np.float64), span, (0, 255))
        return np.asarray(np.nan_to_num(scaled).round(), np.uint8)


def _heat_map(array: _Array, span: _Span) -> Image.Image:
    where = np.clip((array.astype(np.float64) - span[0]) / (span[1] - span[0]), 0, 1)
    colours = [np.interp(where, np.linspace(0, 1, len(_HEAT)), _HEAT[:, channel]) for channel in range(3)]
    return Image.fromarray(np.nan_to_num(np.stack([*colours, np.where(np.isnan(where), 0, 255)], axis=2)).astype(np.uint8))


def _draw_lines(lines: _Array, max_pixels: int) -> Image.Image:
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
    return Image.fromarray(pixels)


def _colours_of(mask: _Array, opacity: int) -> Image.Image:
    classes = np.nan_to_num(mask).astype(np.int64)
    opacities = np.where(classes == 0, 0, opacity)
    return Image.fromarray(np.dstack([_COLOURS[(classes - 1) % len(_COLOURS)], opacities]).astype(np.uint8))


def _draw_boxes(image: Image.Image, boxes: _Array, shape: tuple[int, ...]) -> None:
    scale = np.array([image.width / shape[1], image.height / shape[0]] * 2)
    drawing, thick = ImageDraw.Draw(image), max(1, max(image.size) // 80)
    for number, box in enumerate(boxes[np.isfinite(boxes).all(axis=1)][:_MAX_BOXES]):
        edges = np.clip(box * scale, -1, [*image.size, *image.size]).reshape(2, 2)
        colour = tuple(_COLOURS[(number + 3) % len(_COLOURS)].tolist())  # not the colours of the first classes of a mask
        drawing.rectangle((*edges.min(axis=0).tolist(), *edges.max(axis=0).tolist()), outline=colour, width=thick)
