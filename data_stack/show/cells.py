"""Renders one value as HTML: a picture, a line, a sound player, or text."""

from __future__ import annotations

import base64
import html
import io
import wave
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
_MIN_RATE = 8_000
_JPEG_QUALITY = 90
_MAX_CHARACTERS = 240


def cell_of(look: Look, n_bytes: int, span: tuple[float, float] | None = None, over: Mapping[str, Any] | None = None) -> str:
    """Render a value as text and, for a picture or sound, as HTML of about ``n_bytes`` at most.

    Args:
        look: the value.
        n_bytes: maximum size of its picture or sound; a picture is shrunk and sound is shortened to fit.
        span: the values drawn as black and white, shared by images shown side by side.
        over: ``boxes`` and ``mask`` to draw over a picture.
    """
    if look.kind == "audio":
        return _player(look, n_bytes)
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
    is_series, shape = look.kind == "series", look.data.shape
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


def _player(look: Look, n_bytes: int) -> Rich:
    """A player of one channel of 8 bits; long sound has a lower sampling rate, or only its beginning."""
    samples = look.data[: look.rate * 60].astype(np.float64).mean(axis=1)
    samples = np.nan_to_num(samples) / (np.iinfo(look.data.dtype).max if look.data.dtype.kind in "iu" else 1)
    rate, room = look.rate, 3 * n_bytes // 4
    while rate >= 2 * _MIN_RATE and len(samples) > room:
        samples, rate = samples[: len(samples) // 2 * 2].reshape(-1, 2).mean(axis=1), rate // 2
    samples = samples[:room]
    seconds, shown = len(look.data) / look.rate, len(samples) / rate
    text = f"{seconds:.2f} s, {look.rate:,} Hz" if shown > 0.98 * seconds else f"the first {shown:.1f} s of {seconds:.1f} s"
    loudest = max(1.0, float(np.abs(samples).max(initial=0)))
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setparams((1, 1, rate, 0, "NONE", ""))
        writer.writeframes((128 + 127 * samples / loudest).round().astype(np.uint8).tobytes())
    source = base64.b64encode(file.getvalue()).decode("ascii")
    return Rich(text, f'<audio controls="controls" preload="none" src="data:audio/wav;base64,{source}"></audio>{_soft(text)}')


def _layout_text(array: _Array) -> str:
    return f"{array.dtype} {' × '.join(f'{extent:,}' for extent in array.shape)}"


def _range_text(array: _Array) -> str:
    finite = sampled(array)[np.isfinite(sampled(array))]
    return f"{finite.min():.4g} … {finite.max():.4g}" if finite.size else "no finite numbers"


def _soft(text: str) -> str:
    return f'<span class="soft">{html.escape(text)}</span>'
