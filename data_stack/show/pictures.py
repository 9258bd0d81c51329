"""Draws values as PNG files."""

from __future__ import annotations

from typing import Any

import numpy as np

from data_stack.exception import ConfigError
from data_stack.show.display_value import (
    DisplayValue,
    kind_of_value,
    shorten,
    to_display_value,
)
from data_stack.show.drawing import Span as _Span
from data_stack.show.drawing import draw, encode_image
from data_stack.show.sample_sheet import contact_sheet

__all__ = ["as_png", "contact_sheet", "kind_of_value", "shorten"]


def as_png(
    value: Any,
    *,
    max_pixels: int = 1 << 16,
    span: _Span = None,
    hint: str | None = None,
    boxes: Any = None,
    mask: Any = None,
) -> bytes:
    """Draw a value as a PNG file.

    Pictures may have any size and number type, with the channels first or last: shape ``(h, w)``,
    ``(h, w, c)`` or ``(c, h, w)`` with c 1, 3 or 4. Series and sound are drawn as lines, arrays of
    other shapes as heat maps with NaN transparent. Large pictures are shrunk; small ones are
    enlarged only below boxes and masks. The value may also be a Pillow image or the bytes of an
    image file.

    Args:
        value: see :func:`kind_of_value`.
        max_pixels: maximum size of the picture; its longer edge is at most four times the square
            root of it.
        span: the values drawn as black and white; None: as
            :func:`~data_stack.show.display_value.span_of` returns.
        hint: the kind of the column in the meta, see :func:`kind_of_value`.
        boxes: drawn over the picture: shape ``(n, 4)``, x and y of two corners, in pixels.
        mask: drawn over the picture: classes or bools, of any shape ``(h, w)``; 0 is transparent.

    Raises:
        ConfigError: the value is not an image, mask, sound or array of numbers.
    """
    shown = to_display_value(value, hint)
    if shown.kind == "array" and shown.data.ndim == 1:
        # A vector is a heat map of one row.
        shown = DisplayValue("array", shown.data[np.newaxis])
    if not shown.is_picture:
        raise ConfigError(
            f"cannot draw {shorten(value)}: expected an image, sound or numbers, got {shown.kind}"
        )
    return encode_image(draw(shown, max_pixels, span, boxes=boxes, mask=mask))
