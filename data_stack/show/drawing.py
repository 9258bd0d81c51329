"""Draws values with Pillow: images, masks, boxes, lines and heat maps."""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.exception import MissingDependencyError
from data_stack.show.display_value import DisplayValue, span_of, to_display_value

try:
    from PIL import Image, ImageDraw
except ImportError as error:
    raise MissingDependencyError("drawing pictures", "Pillow", "images") from error

_Array = npt.NDArray[Any]

Span = tuple[float, float] | None
"""The values drawn as black and as white; None: as ``span_of`` returns."""

#: Evenly spaced colors of matplotlib's viridis, from the smallest value to the largest.
_HEAT_COLORS = np.array(
    [
        (68, 1, 84),
        (59, 82, 139),
        (33, 145, 140),
        (94, 201, 98),
        (253, 231, 37),
    ]
)

#: The colors of lines; further lines are not drawn.
_LINE_COLORS = (
    (91, 139, 208),
    (217, 119, 74),
    (74, 165, 138),
    (176, 124, 198),
    (194, 161, 60),
    (138, 143, 152),
)

#: The colors of classes in masks, and of boxes.
_CLASS_COLORS = np.array(
    [
        (230, 75, 53),
        (77, 187, 213),
        (0, 160, 135),
        (240, 180, 40),
        (132, 94, 194),
        (240, 120, 180),
    ]
)

#: The first box has another color than the first classes of a mask.
_COLOR_OF_FIRST_BOX = 3

#: The opacity of a mask that is drawn alone, of 255.
_OPAQUE = 255

#: The opacity of a mask over an image.
_HALF_OPAQUE = 128

#: Pictures with a shorter edge are enlarged before boxes and masks are drawn, in pixels.
_MIN_EDGE_BELOW_OVERLAYS = 160

#: Further boxes are not drawn.
_MAX_BOXES = 200

#: The maximum width of a drawing of lines, in pixels.
_MAX_WIDTH_OF_LINES = 480

#: The width of a drawing of lines divided by its height.
_ASPECT_OF_LINES = 3

#: The thickness of a line, in pixels.
_LINE_THICKNESS = 3

#: A picture is averaged from up to this many values for each of its pixels.
_VALUES_OF_A_PIXEL = 16

#: The quality of JPEG files, 1 to 100.
_JPEG_QUALITY = 90


def draw(
    shown: DisplayValue,
    max_pixels: int,
    span: Span = None,
    *,
    boxes: Any = None,
    mask: Any = None,
) -> Image.Image:
    """Draw a value, in grey or colors, with or without transparency; see ``as_png``."""
    if shown.kind in ("series", "audio"):
        return _draw_lines(shown.data, max_pixels)
    if shown.kind == "mask":
        return _color_classes(_thin_out(shown.data, max_pixels), _OPAQUE)
    if shown.kind == "array":
        return _draw_heat_map(_plane_in_the_middle(shown.data), max_pixels)

    image = _draw_image(shown.data, max_pixels, span)
    if boxes is None and mask is None:
        return image
    image = enlarge(image.convert("RGB"), _MIN_EDGE_BELOW_OVERLAYS)
    if mask is not None:
        _draw_mask_over(image, mask)
    if boxes is not None:
        _draw_boxes_over(image, boxes, shape=shown.data.shape[:2])
    return image


def encode_image(image: Image.Image, file_format: str = "png") -> bytes:
    """Return an image as a file: ``"png"`` or ``"jpeg"``."""
    file = io.BytesIO()
    image.save(file, file_format, quality=_JPEG_QUALITY)
    return file.getvalue()


def _fit_shape(height: int, width: int, max_pixels: int) -> tuple[int, int]:
    """Return a shape of about the same proportions with ``max_pixels`` at most.

    The longer edge is at most four times that of a square of as many pixels.
    """
    max_edge = max(1, 4 * math.isqrt(max_pixels))
    scale = math.sqrt(max_pixels / (height * width))
    fitting_height = max(1, min(height, max_edge, int(height * scale)))
    fitting_width = max(1, min(width, max_edge, int(width * scale)))
    return fitting_height, fitting_width


def _thin_out(array: _Array, max_pixels: int) -> _Array:
    """Return evenly spread rows and columns of an array, at most ``max_pixels`` values."""
    height, width = array.shape[:2]
    new_height, new_width = _fit_shape(height, width, max_pixels)
    if (new_height, new_width) == (height, width):
        return array
    rows = np.arange(new_height) * height // new_height
    columns = np.arange(new_width) * width // new_width
    thin: _Array = array[rows][:, columns]
    return thin


# ------------------------------------------------------------------ images


def _draw_image(array: _Array, max_pixels: int, span: Span) -> Image.Image:
    """Draw a picture of shape ``(height, width)`` or ``(height, width, c)`` in 8 bits."""
    if span is None:
        span = span_of([array])
    height, width = _fit_shape(array.shape[0], array.shape[1], max_pixels)
    pixels = np.ascontiguousarray(_thin_out(array, _VALUES_OF_A_PIXEL * max_pixels))
    if pixels.dtype != np.uint8 or span != (0.0, 255.0):
        with np.errstate(all="ignore"):
            scaled = np.interp(pixels.astype(np.float64), span, (0, 255))
            pixels = np.nan_to_num(scaled).round().astype(np.uint8)
    return Image.fromarray(pixels).resize((width, height), Image.Resampling.BOX)


def enlarge(image: Image.Image, min_edge: int) -> Image.Image:
    """Enlarge an image by a whole factor until its longer edge has ``min_edge`` pixels."""
    factor = math.ceil(min_edge / max(image.size))
    new_size = (image.width * factor, image.height * factor)
    return image.resize(new_size, Image.Resampling.NEAREST)


def _draw_mask_over(image: Image.Image, mask: Any) -> None:
    """Draw a mask over an RGB image, in place. A value that is not a mask is ignored."""
    shown = to_display_value(mask, "mask")
    if shown.kind != "mask":
        return
    overlay = _color_classes(_thin_out(shown.data, image.width * image.height), _HALF_OPAQUE)
    overlay = overlay.resize(image.size, Image.Resampling.NEAREST)
    image.paste(overlay, (0, 0), overlay)


def _draw_boxes_over(image: Image.Image, boxes: Any, *, shape: tuple[int, int]) -> None:
    """Draw the edges of boxes over an RGB image, in place. A value that is not boxes is ignored.

    Args:
        image: drawn on.
        boxes: x and y of two corners, in pixels of the original picture.
        shape: height and width of the original picture.
    """
    shown = to_display_value(boxes, "boxes")
    if shown.kind != "boxes":
        return
    height, width = shape
    x_scale = image.width / width
    y_scale = image.height / height
    scale = np.array([x_scale, y_scale, x_scale, y_scale])
    limits = [image.width, image.height, image.width, image.height]

    drawing = ImageDraw.Draw(image)
    thickness = max(1, max(image.size) // 80)
    are_finite = np.isfinite(shown.data).all(axis=1)
    for index, box in enumerate(shown.data[are_finite][:_MAX_BOXES]):
        corners = np.clip(box * scale, -1, limits).reshape(2, 2)
        top_left = corners.min(axis=0).tolist()
        bottom_right = corners.max(axis=0).tolist()
        color = _CLASS_COLORS[(index + _COLOR_OF_FIRST_BOX) % len(_CLASS_COLORS)]
        drawing.rectangle(
            (*top_left, *bottom_right), outline=tuple(color.tolist()), width=thickness
        )


def _color_classes(mask: _Array, opacity: int) -> Image.Image:
    """Return a mask of shape ``(height, width)`` in colors; class 0 is transparent."""
    classes = np.nan_to_num(mask).astype(np.int64)
    colors = _CLASS_COLORS[(classes - 1) % len(_CLASS_COLORS)]
    opacities = np.where(classes == 0, 0, opacity)
    return Image.fromarray(np.dstack([colors, opacities]).astype(np.uint8))


# ------------------------------------------------------------------ heat maps


def _plane_in_the_middle(array: _Array) -> _Array:
    """Return two dimensions of an array, in the middle of the others."""
    while array.ndim > 2:
        array = array[len(array) // 2]
    return array


def _draw_heat_map(plane: _Array, max_pixels: int) -> Image.Image:
    """Draw numbers as colors; NaN is transparent."""
    low, high = span_of([plane], from_zero=False)
    values = _thin_out(plane, max_pixels).astype(np.float64)
    shares = np.clip((values - low) / (high - low), 0, 1)

    shares_of_colors = np.linspace(0, 1, len(_HEAT_COLORS))
    channels = [np.interp(shares, shares_of_colors, channel) for channel in _HEAT_COLORS.T]
    channels.append(np.where(np.isnan(shares), 0, _OPAQUE))
    pixels = np.nan_to_num(np.stack(channels, axis=2))
    return Image.fromarray(pixels.astype(np.uint8))


# ------------------------------------------------------------------ lines


def _draw_lines(lines: _Array, max_pixels: int) -> Image.Image:
    """Draw numbers in time, shape ``(n, lines)``, with gaps where they are not finite.

    A column of pixels reaches from the smallest to the largest of the numbers that fall into it.
    """
    width = min(_MAX_WIDTH_OF_LINES, math.isqrt(_ASPECT_OF_LINES * max_pixels))
    height = width // _ASPECT_OF_LINES
    tops, bottoms = _extents_of_lines(lines[:, : len(_LINE_COLORS)], lines, height, width)

    pixels = np.zeros((height, width, 4), np.uint8)
    rows = np.arange(height)[:, np.newaxis]
    for top, bottom, color in zip(tops, bottoms, _LINE_COLORS, strict=False):
        # In gaps the rows are NaN, and both comparisons false.
        is_from_top = rows >= np.floor(top)
        is_to_bottom = rows < np.floor(bottom) + _LINE_THICKNESS
        pixels[is_from_top & is_to_bottom] = (*color, _OPAQUE)
    return Image.fromarray(pixels)


def _extents_of_lines(
    drawn_lines: _Array, all_lines: _Array, height: int, width: int
) -> tuple[_Array, _Array]:
    """Return the rows that each line reaches in each column of pixels.

    Args:
        drawn_lines: the lines to draw, shape ``(n, lines)``.
        all_lines: these lines and those that are not drawn; they decide the range of values.
        height: the height of the drawing in pixels.
        width: the width of the drawing in pixels.

    Returns:
        The topmost and the lowest rows, each of shape ``(lines, width)``, fractional; NaN in gaps.
    """
    low, high = span_of([all_lines], from_zero=False)
    with np.errstate(all="ignore"):
        values = np.where(np.isfinite(drawn_lines), drawn_lines, np.nan).astype(np.float64)
        heights = (high - values) / (high - low) * (height - _LINE_THICKNESS)

        # A short line gets a number at each edge of a column of pixels.
        n_numbers = len(heights)
        if n_numbers <= width:
            edges = np.linspace(0, n_numbers - 1, width + 1)
            interpolated = [np.interp(edges, np.arange(n_numbers), line) for line in heights.T]
            heights = np.stack(interpolated, axis=1)

        # Neighboring columns share the number at their edge, so that the line is connected. The
        # row of NaN lets the last range end behind the last number, as reduceat requires.
        edges = np.linspace(0, len(heights) - 1, width + 1).round().astype(np.intp)
        ranges = np.stack([edges[:-1], edges[1:] + 1], axis=1).ravel()
        padded = np.vstack([heights, np.full((1, heights.shape[1]), np.nan)])
        # reduceat also reduces what lies between two ranges: every second result.
        tops = np.fmin.reduceat(padded, ranges)[::2].T
        bottoms = np.fmax.reduceat(padded, ranges)[::2].T
    return tops, bottoms
