"""Renders one value as HTML: a picture, a line, or text."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.show.kinds import Look, sampled, shorten
from data_stack.show.markup import Rich

_Array = npt.NDArray[Any]

_EDGE = 112  # of a picture on the page
_MIN_FACTOR = 3  # pictures enlarged at least this much show sharp pixels
_MAX_PIXELS = 2 * _EDGE * _EDGE
_FEWEST_PIXELS = 256
_WIDTH_OF_LINES = 170
_JPEG_QUALITY = 90
_MAX_CHARACTERS = 240


def cell_of(look: Look, n_bytes: int, span: tuple[float, float] | None = None, over: Mapping[str, Any] | None = None) -> str:
    """Render a value as text and, for a picture, as HTML of about ``n_bytes`` at most.

    Args:
        look: the value.
        n_bytes: maximum size of its picture, which is shrunk to fit.
        span: the values drawn as black and white, shared by images shown side by side.
        over: ``boxes`` and ``mask`` to draw over a picture.
    """
    if look.is_picture:
        return _picture(look, 3 * n_bytes // 4, span, over or {})
    return "missing" if look.kind == "missing" else shorten(look.data, _MAX_CHARACTERS)


def _picture(look: Look, n_bytes: int, span: tuple[float, float] | None, over: Mapping[str, Any]) -> Rich:
    from data_stack.show.pictures import draw, png_of  # needs Pillow

    max_pixels, media, data = _MAX_PIXELS, "png", b""
    while not data or (len(data) > n_bytes and max_pixels > _FEWEST_PIXELS):
        image = draw(look, max_pixels, span, **over)
        media, data = "png", png_of(image)
        if len(data) > n_bytes and image.mode == "RGB":
            file = io.BytesIO()
            image.save(file, "jpeg", quality=_JPEG_QUALITY)
            media, data = "jpeg", file.getvalue()
        max_pixels //= 2
    is_series, shape = look.kind in ("series", "audio"), look.data.shape
    height, width = (image.height, image.width) if is_series else shape[-2:] if look.kind == "array" else shape[:2]
    scale = (_WIDTH_OF_LINES if is_series else _EDGE) / max(height, width)
    is_enlarged = scale >= _MIN_FACTOR
    scale = int(scale) if is_enlarged else scale
    size = f'width="{max(4, round(width * scale))}" height="{max(4, round(height * scale))}"'
    style = ' style="image-rendering:pixelated"' if is_enlarged else ""
    text = _layout_text(look.data[:, 0] if is_series and shape[1] == 1 else look.data)
    source = f"data:image/{media};base64,{base64.b64encode(data).decode('ascii')}"
    shown = f'<img {size}{style} alt="{text}" src="{source}"/>'
    return Rich(text, shown + (_soft(_range_text(look.data)) if is_series or look.kind == "array" else ""))


def _layout_text(array: _Array) -> str:
    return f"{array.dtype} {' × '.join(f'{extent:,}' for extent in array.shape)}"


def _range_text(array: _Array) -> str:
    finite = sampled(array)[np.isfinite(sampled(array))]
    return f"{finite.min():.4g} … {finite.max():.4g}" if finite.size else "no finite numbers"


def _soft(text: str) -> str:
    return f'<span class="soft">{html.escape(text)}</span>'
