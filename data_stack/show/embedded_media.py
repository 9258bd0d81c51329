"""Embeds pictures and sounds into HTML, in a given number of bytes."""

from __future__ import annotations

import base64
import html
import io
import wave
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from data_stack.show.display_value import DisplayValue, thin_out_values
from data_stack.show.markup import Rich

if TYPE_CHECKING:
    from PIL.Image import Image

#: The longer edge of a picture on a page, in CSS pixels.
_EDGE = 112

#: The longer edge of a series, the axis of time, in CSS pixels.
_EDGE_OF_SERIES = 170

#: Pictures enlarged by this factor or more keep sharp pixels.
_MIN_SHARP_SCALE = 3

#: A picture is shrunk until its file is small enough, but not below this number of pixels.
_MIN_PIXELS = 256

#: Sound beyond this time is never embedded.
_MAX_AUDIO_SECONDS = 60

#: Long sound is halved in its sampling rate while the rate is at least this, in Hz.
_MIN_RATE_TO_HALVE = 16_000

#: A sound of which at least this share is embedded is not called its beginning.
_SHARE_OF_WHOLE_SOUND = 0.98


class _PictureFile(NamedTuple):
    """A picture, and its file.

    Attributes:
        image: the picture.
        subtype: the second part of the media type of the file: ``"png"`` or ``"jpeg"``.
        content: the bytes of the file.
    """

    image: Image
    subtype: str
    content: bytes


def embed_picture(
    shown: DisplayValue,
    n_bytes: int,
    span: tuple[float, float] | None,
    overlays: Mapping[str, Any],
) -> Rich:
    """Return a picture as HTML of about ``n_bytes`` at most; it is shrunk to fit.

    Args:
        shown: an image, a mask, a series or an array.
        n_bytes: how many bytes of HTML the picture may take.
        span: the values drawn as black and white; pictures with the same span can be compared.
        overlays: boxes and mask drawn over the picture, see ``as_png``.
    """
    file = _draw_small_file(shown, span, overlays, max_bytes=_n_bytes_before_base64(n_bytes))
    text = f"{shown.data.dtype} {_dimensions_text(shown)}"
    size = _size_attributes(shown, file.image)
    source = f"data:image/{file.subtype};base64,{_base64_text(file.content)}"
    element = f'<img {size} alt="{text}" src="{source}"/>'
    if shown.kind in ("series", "array"):
        element += soft_html(_range_text(shown.data))
    return Rich(text, element)


def embed_player(shown: DisplayValue, n_bytes: int) -> Rich:
    """Return a sound as an HTML player of about ``n_bytes`` at most.

    The player has one channel of 8 bits. Long sound has a lower sampling rate, or is cut.

    Args:
        shown: audio.
        n_bytes: how many bytes of HTML the player may take.
    """
    samples = _mix_channels(shown.data[: shown.rate * _MAX_AUDIO_SECONDS])

    # One byte is one sample. Better a lower rate than a shorter sound.
    max_samples = _n_bytes_before_base64(n_bytes)
    rate = shown.rate
    while rate >= _MIN_RATE_TO_HALVE and len(samples) > max_samples:
        n_even = len(samples) // 2 * 2
        samples = samples[:n_even].reshape(-1, 2).mean(axis=1)
        rate //= 2
    samples = samples[:max_samples]

    seconds = len(shown.data) / shown.rate
    embedded_seconds = len(samples) / rate
    if embedded_seconds > _SHARE_OF_WHOLE_SOUND * seconds:
        text = f"{seconds:.2f} s, {shown.rate:,} Hz"
    else:
        text = f"the first {embedded_seconds:.1f} s of {seconds:.1f} s"

    source = f"data:audio/wav;base64,{_base64_text(_encode_wav(samples, rate))}"
    player = (
        f'<audio controls="controls" preload="none" style="width:180px" src="{source}"></audio>'
    )
    return Rich(text, player + soft_html(text))


def soft_html(text: str) -> str:
    """Return text as HTML in a paler color."""
    return f'<span class="soft">{html.escape(text)}</span>'


def _n_bytes_before_base64(n_bytes: int) -> int:
    """Return how many bytes fit into ``n_bytes`` of base64: four characters are three bytes."""
    return 3 * n_bytes // 4


def _base64_text(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def _draw_small_file(
    shown: DisplayValue,
    span: tuple[float, float] | None,
    overlays: Mapping[str, Any],
    *,
    max_bytes: int,
) -> _PictureFile:
    """Draw a picture with fewer and fewer pixels, until its file has at most ``max_bytes``."""
    # Twice the pixels of the page, for screens of high resolution.
    max_pixels = 2 * _EDGE * _EDGE
    file = _draw_file(shown, span, overlays, max_pixels, max_bytes)
    while len(file.content) > max_bytes and max_pixels > 2 * _MIN_PIXELS:
        max_pixels //= 2
        file = _draw_file(shown, span, overlays, max_pixels, max_bytes)
    return file


def _draw_file(
    shown: DisplayValue,
    span: tuple[float, float] | None,
    overlays: Mapping[str, Any],
    max_pixels: int,
    max_bytes: int,
) -> _PictureFile:
    """Draw a picture as PNG, or as JPEG if that is too large and the picture is in colors."""
    from data_stack.show.drawing import draw, encode_image  # needs Pillow

    image = draw(shown, max_pixels, span, **overlays)
    content = encode_image(image)
    if len(content) > max_bytes and image.mode == "RGB":
        return _PictureFile(image, "jpeg", encode_image(image, "jpeg"))
    return _PictureFile(image, "png", content)


def _size_attributes(shown: DisplayValue, image: Image) -> str:
    """Return the HTML attributes of the size on the page."""
    edge = _EDGE
    if shown.kind == "series":
        edge = _EDGE_OF_SERIES
        height = image.height
        width = image.width
    elif shown.kind == "array":
        height, width = shown.data.shape[-2:]
    else:
        height, width = shown.data.shape[:2]

    scale = edge / max(height, width)
    style = ""
    if scale >= _MIN_SHARP_SCALE:
        scale = int(scale)
        style = ' style="image-rendering:pixelated"'
    shown_width = max(4, round(width * scale))
    shown_height = max(4, round(height * scale))
    return f'width="{shown_width}" height="{shown_height}"{style}'


def _dimensions_text(shown: DisplayValue) -> str:
    """Return the shape of a picture as text, such as ``"28 × 28"``."""
    shape = shown.data.shape
    if shown.kind == "series" and shape[1] == 1:
        shape = shape[:1]
    return " × ".join(f"{dimension:,}" for dimension in shape)


def _range_text(array: npt.NDArray[Any]) -> str:
    """Return the smallest and the largest finite number as text; large arrays are sampled."""
    values = thin_out_values(array)
    finite_values = values[np.isfinite(values)]
    if not finite_values.size:
        return "no finite numbers"
    return f"{finite_values.min():.4g} … {finite_values.max():.4g}"


def _mix_channels(samples: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return sound of shape ``(n, channels)`` as one channel, shape ``(n,)``, mostly in -1 … 1."""
    mixed = np.nan_to_num(samples.astype(np.float64).mean(axis=1))
    if samples.dtype.kind in "iu":
        mixed = mixed / np.iinfo(samples.dtype).max
    return np.asarray(mixed)


def _encode_wav(samples: npt.NDArray[np.float64], rate: int) -> bytes:
    """Return sound as a WAV file of one channel of 8 bits.

    Args:
        samples: shape ``(n,)``; if some are beyond -1 … 1, all are scaled down to this range.
        rate: samples per second.
    """
    loudest = max(1.0, float(np.abs(samples).max(initial=0)))
    # Eight bits are unsigned in WAV: silence is 128.
    frames = (128 + 127 * samples / loudest).round().astype(np.uint8)
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(1)
        writer.setframerate(rate)
        writer.writeframes(frames.tobytes())
    return file.getvalue()
